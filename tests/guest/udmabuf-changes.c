// SPDX-License-Identifier: GPL-2.0-only
/*
 * While READ stores into a udmabuf, operations on its memfd try to move, split
 * or free its pages: the buffer keeps its pages, and no other memory changes.
 * The stored data stays in the memfd after the buffer is freed.
 */
#include <pthread.h>
#include <sys/mman.h>

#include "lib.h"

#define LENGTH	(2 * huge_page())

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE	25
#endif

static int memfd, dev;
static unsigned char *map;		/* of the memfd */
static volatile bool over;

static void collapse(void)
{
	madvise(map, LENGTH, MADV_COLLAPSE);
}

static void compact(void)
{
	proc_try_write("/proc/sys/vm/compact_memory", "1");
}

static void page_out(void)
{
	madvise(map, LENGTH, MADV_PAGEOUT);
	proc_try_write("/proc/sys/vm/drop_caches", "3");
}

static const struct {
	const char *what;
	void (*change)(void);
} changes[] = {
	{ "collapsed", collapse }, { "compacted", compact }, { "paged out", page_out },
};

static void *change(void *arg)
{
	void (**function)(void) = arg;

	while (!over)
		(*function)();
	return NULL;
}

static void beside(unsigned int number, unsigned int flags)
{
	int file = file_open("data", O_RDONLY | direct_flag(direct_possible())), fd;
	struct dmabuf_dio_rw rw = { .file_fd = file, .length = LENGTH, .chunk = CHUNK_OF(KIB(64)) };
	void (*function)(void) = changes[number].change;
	unsigned int round;
	pthread_t thread;

	memfd = memfd_for_udmabuf(LENGTH, flags);
	if (memfd < 0)
		return;
	trying("%s%s", changes[number].what, flags ? ", huge pages" : "");
	map = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	check(map != MAP_FAILED);
	fd = udmabuf_over(memfd, 0, LENGTH);
	check(fd >= 0);
	dev = dio_open();
	if (flags && udmabuf_is_wrong())
		goto out;
	expect(dio_attach(dev, fd), 0);
	over = false;
	check(!pthread_create(&thread, NULL, change, &function));
	for (round = 0; round < 4; round++) {
		memset(map, round, LENGTH);
		expect(dio_read(dev, &rw), 0);
		pattern_check(map, 0, LENGTH, 1);
	}
	over = true;
	check(!pthread_join(thread, NULL));
	pattern_check(map, 0, LENGTH, 1);
out:
	munmap(map, LENGTH);
	close(dev);
	close(fd);
	close(memfd);
	close(file);
}

/* The memfd then has other pages, the buffer keeps those that it has. */
static void punched(void)
{
	int file = file_open("data", O_RDONLY | direct_flag(direct_possible())), fd;
	struct dmabuf_dio_rw rw = { .file_fd = file, .length = LENGTH };
	unsigned char *view;

	trying("punched");
	memfd = memfd_for_udmabuf(LENGTH, 0);
	fd = udmabuf_over(memfd, 0, LENGTH);
	check(fd >= 0);
	view = map_dmabuf(fd, LENGTH, PROT_READ);
	dev = dio_open();
	expect(dio_attach(dev, fd), 0);
	fd_punch(memfd, 0, LENGTH);
	fd_pattern_write(memfd, 0, LENGTH, 3);
	expect(dio_read(dev, &rw), 0);
	pattern_check(view, 0, LENGTH, 1);
	fd_pattern_check(memfd, 0, LENGTH, 3);
	unmap(view, LENGTH);
	close(dev);
	close(fd);
	close(memfd);
	close(file);
}

/* DMA leaves no trace in pages, and clean ones are dropped. */
static void kept(void)
{
	int file = file_open("data", O_RDONLY | direct_flag(direct_possible())), fd;
	struct dmabuf_dio_rw rw = { .file_fd = file, .length = LENGTH };

	trying("after close");
	memfd = memfd_for_udmabuf(LENGTH, 0);
	fd = udmabuf_over(memfd, 0, LENGTH);
	check(fd >= 0);
	dev = dio_open();
	expect(dio_attach(dev, fd), 0);
	expect(dio_read(dev, &rw), 0);
	close(dev);
	close(fd);
	sleep_ms(200);
	proc_write("/proc/sys/vm/drop_caches", "3");
	fd_pattern_check(memfd, 0, LENGTH, 1);
	close(memfd);
	close(file);
}

int main(void)
{
	unsigned int i;

	if (access("/dev/udmabuf", F_OK))
		skip("no /dev/udmabuf");
	file_pattern("data", LENGTH, 1);
	kept();
	punched();
	for (i = 0; i < ARRAY_SIZE(changes); i++) {
		beside(i, 0);
		beside(i, MFD_HUGETLB);
	}
	return 0;
}
