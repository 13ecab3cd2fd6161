// SPDX-License-Identifier: GPL-2.0-only
/*
 * Only the same LOAD continues one that a signal has ended: a different one on the context
 * starts from the beginning.
 */
#include <signal.h>
#include <sys/mman.h>

#include "lib.h"

#define LENGTH	MIB(64)

static int dev;

/* Leaves a LOAD in the context, interrupted by a signal after @ms; returns the loaded length */
static uint64_t interrupted(int file, uint64_t length, uint64_t gather, int ms)
{
	struct dmabuf_dio_load load = {
		.file_fd = file, .fd_flags = O_RDWR, .length = length, .chunk = PAGE, .depth = 1,
		.gather = gather,
	};

	alarm_every(ms);
	expect(dio_load(dev, &load), -EINTR);
	alarm_every(0);
	check(load.done < length);
	return load.done;
}

/* The memory of the previous LOAD is freed before the next one allocates. */
static void memory_for_both(void)
{
	uint64_t available = memory_available();
	uint64_t length = available / 10 * 6 & -PAGE;
	struct dmabuf_dio_load load = {
		.fd_flags = O_RDWR, .file_offset = PAGE, .length = length,
	};
	int ms = 20;

	trying("two of %llu MiB", (unsigned long long)(length >> 20));
	file_sparse("large", length + PAGE);
	load.file_fd = file_open("large", O_RDONLY);
	/*
	 * All memory is allocated before anything is read. To find out how much is free takes a
	 * slow machine a second.
	 */
	for (; memory_available() > available / 2; ms += ms < 400 ? ms : 0)
		interrupted(load.file_fd, length, length, ms);
	expect(dio_load(dev, &load), 0);
	close(load.dmabuf_fd);
	close(load.file_fd);
}

static void other(const char *what, struct dmabuf_dio_load load, uint64_t position, uint64_t seed,
		  int first)
{
	unsigned char *map;
	int ms = 20;

	trying("%s", what);
	/* On a slow machine the signal comes before the first page. */
	while (!interrupted(first, LENGTH, 0, ms)) {
		ms *= 2;
		check(ms < 1000);
	}
	expect(dio_load(dev, &load), 0);
	expect(load.done, load.length);
	expect(load.buf_length, load.length);
	map = map_dmabuf(load.dmabuf_fd, load.length, 1);
	pattern_check(map, position, load.length, seed);
	unmap(map, load.length);
	map = mmap(NULL, load.length, PROT_WRITE, MAP_SHARED, load.dmabuf_fd, 0);
	expect(map != MAP_FAILED, load.fd_flags == O_RDWR);
	if (map != MAP_FAILED)
		munmap(map, load.length);
	close(load.dmabuf_fd);
}

int main(void)
{
	int direct = direct_flag(direct_possible());
	struct dmabuf_dio_load load = { .fd_flags = O_RDWR, .length = LENGTH };
	int file, second;

	signal_handled(SIGALRM, 0);
	file_pattern("data", LENGTH + PAGE, 1);
	file_pattern("second", LENGTH, 2);
	file = file_open("data", O_RDONLY | direct);
	second = file_open("second", O_RDONLY | direct);
	dev = dio_open();

	load.file_fd = file;
	other("the same", load, 0, 1, file);
	load.file_offset = PAGE;
	other("another range of the file", load, PAGE, 1, file);
	load.file_offset = 0;
	load.length = LENGTH - PAGE;
	other("a shorter one", load, 0, 1, file);
	load.length = LENGTH;
	load.file_fd = second;
	other("another file", load, 0, 2, file);
	load.file_fd = file;
	load.fd_flags = O_RDONLY;
	other("read-only", load, 0, 1, file);
	memory_for_both();
	close(dev);
	return 0;
}
