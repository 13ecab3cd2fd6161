// SPDX-License-Identifier: GPL-2.0-only
/* Mapped views of a LOADed dma-buf: any part, shared, and outliving the fds */
#include <sys/mman.h>

#include "lib.h"

#define LENGTH	MIB(11)

static int load_whole(int flags)
{
	struct dmabuf_dio_load load = { .fd_flags = flags, .length = LENGTH };
	int dev = dio_open();

	load.file_fd = file_open("data", O_RDONLY);
	expect(dio_load(dev, &load), 0);
	close(load.file_fd);
	close(dev);
	return load.dmabuf_fd;
}

/* A view outside the buffer is refused, whatever the memory layout. */
static void private(int dmabuf, size_t length)
{
	static const int protections[] = { PROT_READ, PROT_READ | PROT_WRITE, PROT_NONE };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(protections); i++) {
		errno = 0;
		check(mmap(NULL, length, protections[i], MAP_PRIVATE, dmabuf, 0) == MAP_FAILED);
		expect(-errno, -EINVAL);
	}
}

/* Buffers of one segment and of several */
static void fragments(void)
{
	bool one = false, several = false;
	unsigned int pages;

	for (pages = 1; pages < 2000 && !(one && several); pages += 1 + pages / 3) {
		struct dmabuf_dio_load load = { .fd_flags = O_RDWR, .length = pages * PAGE };
		int dev = dio_open();

		load.file_fd = file_open("data", O_RDONLY);
		expect(dio_load(dev, &load), 0);
		trying("private view of %u pages in %u pieces", pages, load.segments);
		one |= load.segments == 1;
		several |= load.segments > 1;
		private(load.dmabuf_fd, load.length);
		close(load.dmabuf_fd);
		close(load.file_fd);
		close(dev);
	}
	check(one && several);
}

int main(void)
{
	const struct {
		size_t offset, length;
	} parts[] = {
		{ 0, PAGE }, { PAGE, PAGE }, { LENGTH - PAGE, PAGE }, { MIB(4) - PAGE, 2 * PAGE },
		{ MIB(3), MIB(6) }, { MIB(8) + 5 * PAGE, KIB(2560) }, { 0, LENGTH },
	};
	int file, dmabuf = -1;
	unsigned char *map, *other;
	unsigned int i;

	file_pattern("data", LENGTH, 1);
	dmabuf = load_whole(O_RDWR | O_CLOEXEC);

	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		trying("part %u", i);
		map = mmap(NULL, parts[i].length, PROT_READ, MAP_SHARED, dmabuf,
			   parts[i].offset);
		check(map != MAP_FAILED);
		pattern_check(map, parts[i].offset, parts[i].length, 1);
		unmap(map, parts[i].length);
	}

	trying("beyond the end");
	check(mmap(NULL, LENGTH + PAGE, PROT_READ, MAP_SHARED, dmabuf, 0) == MAP_FAILED);
	check(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, dmabuf, LENGTH) == MAP_FAILED);
	check(mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, dmabuf, LENGTH - PAGE) == MAP_FAILED);

	trying("private views");
	private(dmabuf, LENGTH);
	fragments();

	trying("two views of the same memory");
	map = map_dmabuf(dmabuf, LENGTH, PROT_READ | PROT_WRITE);
	other = map_dmabuf(dmabuf, LENGTH, PROT_READ);
	pattern_fill(map, 0, LENGTH, 2);
	pattern_check(other, 0, LENGTH, 2);

	trying("system calls on a view");
	file = file_open("out", O_RDWR | O_CREAT | O_TRUNC);
	fd_write(file, map, LENGTH, 0);
	fd_pattern_check(file, 0, LENGTH, 2);
	close(file);

	trying("after fork and close");
	close(dmabuf);
	{
		pid_t pid = spawn();

		if (!pid) {
			pattern_check(other, 0, LENGTH, 2);
			pattern_fill(map, 0, LENGTH, 3);
			exit(0);
		}
		reap(pid);
	}
	pattern_check(other, 0, LENGTH, 3);

	trying("part of a view unmapped");
	check(!munmap(map + MIB(2), MIB(3)));
	pattern_check(map, 0, MIB(2), 3);
	pattern_check(map + MIB(5), MIB(5), LENGTH - MIB(5), 3);
	unmap(map, MIB(2));
	unmap(map + MIB(5), LENGTH - MIB(5));
	pattern_check(other, 0, LENGTH, 3);
	unmap(other, LENGTH);
	return 0;
}
