/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared code of the tests of the short path for direct reads: which path a read took, and
 * all the interfaces for reading
 */
#ifndef TESTS_SMALL_READS_SMALL_H
#define TESTS_SMALL_READS_SMALL_H

#include <linux/aio_abi.h>

#include "ring.h"

#define BLOCK	4096

/*
 * small.c: the switch of 6.12-series. The short path of 7.3-series has no
 * switch and is always taken where possible; tests there check the bytes and
 * the results of reads.
 */
bool small_has_switch(void);
void small_switch(bool on);	/* does nothing without a switch */

/* small.c: counts, by probes, the functions that ran. Without a switch
 * nothing is counted, and expected counts are not checked. */
struct hits {
	uint64_t tried;		/* the short path, including fallbacks */
	uint64_t ordinary;	/* __iomap_dio_rw() */
	uint64_t deferred;	/* errors of the short path, in a work queue */
};

/* Skips without a short path; otherwise the first call switches it on. */
struct hits hits(void);
struct hits hits_since(struct hits before);

enum path {
	BUFFERED,		/* no direct I/O at all */
	SHORT,
	LONG,			/* without trying the short path */
	FELL_BACK,		/* the short path gave up, with nothing done */
	REFUSED,		/* the short path found an error */
};

void expect_path_at(const char *file, int line, struct hits since, enum path path,
		    unsigned int reads);
#define expect_path(...)	expect_path_at(__FILE__, __LINE__, __VA_ARGS__)
/* For an unknown number of reads: some tried the short path, more than took the other. */
void expect_tried(struct hits since);
void expect_mostly_short(struct hits since);
void expect_deferred(struct hits since, unsigned int errors);

/* small.c: interfaces for reading */
enum way {
	SYNC,
	VECTORS,		/* of 512 bytes, each in its own page */
	AIO,
	URING,
	URING_FIXED,		/* registered memory and file */
	WAYS
};

extern const char * const way_names[WAYS];

/* Returns the count or -errno. */
ssize_t read_by(enum way way, int fd, void *memory, size_t length, uint64_t position);

/* Waits for that many completions. */
void aio_wait(aio_context_t context, unsigned int count, struct io_event *events);

/*
 * Reads through every interface, with the switch on and off, to memory that begins @shift
 * bytes into a page. The result must be @result and the content @content, the adjacent
 * memory unchanged, and the path @path with the switch on and the ordinary one with it off.
 */
struct reading {
	int fd;
	uint64_t position;
	size_t length, shift;
	enum path path;
	ssize_t result;
	const void *content;
	bool whole;			/* not in vectors smaller than a block */
};

void read_all_ways_at(const char *file, int line, const struct reading *reading);
#define read_all_ways(...)	read_all_ways_at(__FILE__, __LINE__,		\
						 &(struct reading){ __VA_ARGS__ })

/*
 * Submits reads of the first @count blocks of a file; ring_result() returns the block number
 * as user data.
 */
void blocks_send(struct io_uring *ring, int fd, void *memory, unsigned int count);

/* disk.c: the second disk, through dm.h */
void disk_begin(void);				/* test_fs() on it, mounted at "mnt" */
void disk_end(void);
void disk_unmount(void);			/* mounted by fs_mount() */
void disk_fail_reads(void);			/* all of them, writes are done */
void disk_slow(unsigned int ms);		/* every read takes that long; 0: none */
const char *test_fs(void);			/* ext4 or xfs, as the guest has, or skip */

#endif
