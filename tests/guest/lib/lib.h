/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared code of the guest tests
 *
 * Every test is a program: exit status 0 means passed, 1 failed, 77 skipped.
 * Functions below that cannot return a result end the program.
 */
#ifndef TESTS_GUEST_LIB_H
#define TESTS_GUEST_LIB_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <linux/dmabuf_dio.h>

#define KIB(n)		((uint64_t)(n) << 10)
#define MIB(n)		((uint64_t)(n) << 20)
#define GIB(n)		((uint64_t)(n) << 30)
/* Has 64 bits in 32-bit programs, too, because its negative is used as a mask. */
#define PAGE		((uint64_t)sysconf(_SC_PAGESIZE))
#define LARGEST_PAGE	KIB(64)
/* The smallest chunk that is allowed and not smaller than @bytes */
#define CHUNK_OF(bytes)	(PAGE > (bytes) ? PAGE : (bytes))
#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

#define EXIT_SKIP	77

/* lib.c: verdicts. "expect" names what is expected in its message. */
__attribute__((format(printf, 3, 4), noreturn))
void fail_at(const char *file, int line, const char *format, ...);
__attribute__((format(printf, 1, 2), noreturn))
void skip(const char *format, ...);
void expect_at(const char *file, int line, const char *what, int64_t got,
	       int64_t want);

#define fail(...)		fail_at(__FILE__, __LINE__, __VA_ARGS__)
/* A condition of the test itself, or one without numbers to show */
#define check(condition)						\
	do {								\
		if (!(condition))					\
			fail("%s is not so: %s", #condition,		\
			     strerror(errno));				\
	} while (0)
/* Compares numbers; small negative ones are shown as errno values. */
#define expect(got, want)						\
	expect_at(__FILE__, __LINE__, #got, (int64_t)(got), (int64_t)(want))

/* The current step, shown if something fails from here on. */
__attribute__((format(printf, 1, 2)))
void trying(const char *format, ...);

/* lib.c: content. Byte @position of @seed depends on both. */
void pattern_fill(void *data, uint64_t position, size_t length, uint64_t seed);
void pattern_check_at(const char *file, int line, const void *data,
		      uint64_t position, size_t length, uint64_t seed);
void bytes_check_at(const char *file, int line, const void *got,
		    const void *want, size_t length);
void zero_check_at(const char *file, int line, const void *data, size_t length);

#define pattern_check(...)	pattern_check_at(__FILE__, __LINE__, __VA_ARGS__)
#define bytes_check(...)	bytes_check_at(__FILE__, __LINE__, __VA_ARGS__)
#define zero_check(...)		zero_check_at(__FILE__, __LINE__, __VA_ARGS__)

/* lib.c: small things */
uint64_t random_below(uint64_t *state, uint64_t limit);
void *allocate(size_t length);		/* page aligned, touched */
double seconds(void);
/* When a race that usually runs for @usual seconds ends: later where TESTS_GUEST_SLOW says that tests take longer */
double race_end(double usual);
void sleep_ms(unsigned int ms);

/* files.c: files in the current directory. Existing paths are replaced. */
int file_open(const char *path, int flags);
bool direct_possible(void);		/* does this file system take O_DIRECT? */
int direct_flag(bool direct);		/* O_DIRECT or 0 */
void file_pattern(const char *path, uint64_t length, uint64_t seed);
void file_sparse(const char *path, uint64_t length);
void file_settle(const char *path);	/* written back and dropped from the cache */
void fd_write(int fd, const void *data, size_t length, uint64_t position);
void fd_read(int fd, void *data, size_t length, uint64_t position);
void fd_pattern_write(int fd, uint64_t position, uint64_t length, uint64_t seed);
void fd_pattern_check_at(const char *file, int line, int fd, uint64_t position,
			 uint64_t length, uint64_t seed);
#define fd_pattern_check(...)	fd_pattern_check_at(__FILE__, __LINE__, __VA_ARGS__)
void fd_punch(int fd, uint64_t position, uint64_t length);

/* file-system.c: file systems on other disks */
const char *guest_fs(void);		/* the type of the current directory's */
/* False if it cannot be made, for example because mkfs is missing */
bool fs_format(const char *device, const char *type, const char *options);
void fs_mount(const char *device, const char *type, const char *options);	/* at "mnt" */
/* Position on disk of a contiguous range of a file */
uint64_t disk_position(const char *path, uint64_t position, uint64_t length);

/* buffer.c: dma-bufs by kind */
enum buffer_kind {
	BUFFER_HEAP,			/* system heap */
	BUFFER_UDMABUF,			/* udmabuf over 4 KiB memfd pages */
	BUFFER_HUGE,			/* udmabuf over 2 MiB hugetlb pages */
	BUFFER_CMA,			/* CMA heap */
	BUFFER_LOAD,			/* from LOAD */
	BUFFER_VGEM,			/* virtual GPU, whose objects are shared memory */
	BUFFER_KINDS
};

struct buffer {
	enum buffer_kind kind;
	int fd;
	size_t length;
	unsigned char *map;
};

extern const char * const buffer_names[BUFFER_KINDS];

/* Are attached devices synchronised? Else those that need it make transfers fail. */
bool buffer_synced(const struct buffer *buf);

/* 0 or -errno when this machine cannot make such a buffer */
int buffer_try(struct buffer *buf, enum buffer_kind kind, size_t length);
void buffer_create(struct buffer *buf, enum buffer_kind kind, size_t length);
void buffer_destroy(struct buffer *buf);
void buffer_forget(struct buffer *buf);		/* others keep it alive */
/* Bracket accesses through @map. */
void buffer_begin(struct buffer *buf);
void buffer_end(struct buffer *buf);
void buffer_pattern(struct buffer *buf, uint64_t seed);
/* pattern_check() of the bytes at @offset, bracketed */
#define buffer_check(buf, offset, ...)					\
	do {								\
		buffer_begin(buf);					\
		pattern_check((buf)->map + (offset), __VA_ARGS__);	\
		buffer_end(buf);					\
	} while (0)
int buffer_sync(int fd, uint64_t flags);

/* A memfd that can become a udmabuf, and a udmabuf over part of it: fds or -errno */
int memfd_for_udmabuf(size_t length, unsigned int flags);
int udmabuf_over(int memfd, uint64_t offset, size_t length);

/*
 * Runs @test with a buffer of every kind that can be made. Fails if a kind is missing that
 * the guest's kernel supports; skips the whole test if there is none.
 */
void for_each_kind(size_t length, void (*test)(struct buffer *buf));
/* Repeats it with *@direct set, where files can be opened with O_DIRECT */
void for_each_kind_and_way(size_t length, bool *direct, void (*test)(struct buffer *buf));

/* device.c: the module. Calls return 0 or -errno. */
int dio_open(void);
int dio_call(int dev, unsigned long request, void *arg);
int dio_attach(int dev, int dmabuf_fd);		/* without flags */
int dio_context(const struct buffer *buf);	/* open and attached */
int dio_read(int dev, struct dmabuf_dio_rw *rw);
int dio_write(int dev, struct dmabuf_dio_rw *rw);
int dio_load(int dev, struct dmabuf_dio_load *load);
uint64_t dio_fdinfo(int dev, const char *name);	/* a number, which must be there */
uint64_t dio_moved(int dev);		/* bytes so far, from its fdinfo */
bool dio_has_slots(void);
bool udmabuf_is_wrong(void);
/* LOAD that must succeed; returns the dma-buf */
int dio_load_fd(int dev, int file, uint64_t offset, uint64_t length);
unsigned char *map_dmabuf(int fd, size_t length, int prot);
void unmap(void *map, size_t length);

/* system.c: the machine */
const char *guest_kernel(void);		/* its name in vm/run, or "" */
bool guest_of_debian(void);
bool guest_with_series(void);		/* kernel/series is applied */
bool guest_with_fixes(void);		/* at least the fixes of kernel/series are */
bool guest_without_udmabuf(void);
bool guest_with_vgem(void);		/* and its buffers are lent */
/* Has the kernel no dma-heaps at all? */
bool guest_without_heaps(void);		/* built by Debian, with all its modules */
/* Steps of a test of fixes: all, or the one that the command line names; skips on kernels without the fixes */
void run_steps(int argc, char **argv, void (* const steps[])(void), int count);
uint64_t memory_available(void);	/* after dropping caches */
uint64_t memory_estimated(void);	/* the kernel's MemAvailable, after that, without CMA */
uint64_t memory_total(void);
uint64_t memory_of_cma(void);
uint64_t memory_kept_free(void);
/* Bytes of a huge page */
uint64_t huge_page(void);
void need_memory(uint64_t bytes);	/* or skip */
/* Fails if more than @slack less than @before is free for seconds. */
void expect_memory_back(uint64_t before, uint64_t slack);
unsigned int count_fds(void);
void proc_write(const char *path, const char *text);	/* must work */
bool proc_try_write(const char *path, const char *text);
bool proc_read(const char *path, char *text, size_t size);
int run_command(const char *format, ...)
	__attribute__((format(printf, 1, 2)));		/* exit status */
const char *raw_disk(void);		/* or skip */
/* The first of PATH0, PATH1, ... for which is() holds, opened; or -ENODEV */
int open_numbered(const char *path, int count, bool (*is)(int fd));
/* The signal interrupts calls and does nothing else. */
void signal_handled(int number, int flags);
/* Repeats SIGALRM, because the first may come before the call on a busy machine; 0 stops it. */
void alarm_every(unsigned int ms);
void wait_for_state(pid_t pid, char state);	/* proc_pid_stat(5): 'S', 'D', 'T' */
/* Forks; returns 0 in the child, which must call exit(). */
pid_t spawn(void);
void reap(pid_t pid);			/* its exit status must be 0 */
void reap_killed(pid_t pid);		/* it must have died of SIGKILL */
void kill_child(pid_t pid);		/* by SIGKILL */
int module_remove(const char *name);	/* 0 or -errno */
int module_insert(const char *name, const char *parameters);
unsigned int module_users(const char *name);
void module_wait_users(unsigned int count);	/* until so many use dmabuf_dio */

#endif
