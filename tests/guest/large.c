// SPDX-License-Identifier: GPL-2.0-only
/*
 * More than 4 GiB in one call: LOAD, WRITE and READ. memory=5500 timeout=900
 */
#include <sys/mman.h>

#include "lib.h"

#define LENGTH	(GIB(4) + MIB(37) + 321)
#define WINDOW	MIB(1)

/* Data in windows spread over the file, with holes of zeros between them. */
static bool has_data(uint64_t position)
{
	return !(position / WINDOW % 64) || position >= GIB(4) - WINDOW;
}

/* 32-bit programs cannot map all of it. */
static unsigned char *map_part(int dmabuf, uint64_t position, size_t length)
{
	void *map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, dmabuf, position);

	check(map != MAP_FAILED);
	return map;
}

static void check_content(int dmabuf)
{
	uint64_t at;

	for (at = 0; at < LENGTH; at += WINDOW) {
		uint64_t count = LENGTH - at < WINDOW ? LENGTH - at : WINDOW;
		uint64_t padding = -count & (PAGE - 1);
		unsigned char *map = map_part(dmabuf, at, count + padding);

		if (has_data(at))
			pattern_check(map, at, count, 1);
		else
			zero_check(map, count);
		zero_check(map + count, padding);
		unmap(map, count + padding);
	}
}

static void fill(int dmabuf, uint64_t position, size_t length, int byte)
{
	unsigned char *map = map_part(dmabuf, position, length);

	memset(map, byte, length);
	unmap(map, length);
}

int main(void)
{
	struct dmabuf_dio_rw rw = { .length = LENGTH };
	int direct = direct_flag(direct_possible());
	int dev = dio_open();
	int file, dmabuf;
	unsigned char *map;
	uint64_t at;

	need_memory(LENGTH + MIB(512));
	file_sparse("data", LENGTH);
	file = file_open("data", O_RDWR);
	for (at = 0; at < LENGTH; at += WINDOW) {
		if (has_data(at))
			fd_pattern_write(file, at, LENGTH - at < WINDOW ?
					 LENGTH - at : WINDOW, 1);
	}
	close(file);
	file_settle("data");

	trying("load");
	file = file_open("data", O_RDONLY | direct);
	dmabuf = dio_load_fd(dev, file, 0, LENGTH);
	check_content(dmabuf);
	close(file);

	trying("write");
	expect(dio_attach(dev, dmabuf), 0);
	rw.file_fd = file_open("copy", O_RDWR | O_CREAT | O_TRUNC | direct);
	expect(dio_write(dev, &rw), 0);
	expect(rw.done, LENGTH);
	expect(lseek(rw.file_fd, 0, SEEK_END), LENGTH);

	trying("read");
	expect(buffer_sync(dmabuf, 2 | 1), 0);
	for (at = 0; at < LENGTH; at += MIB(256))
		fill(dmabuf, at, PAGE, 0x55);
	fill(dmabuf, GIB(4) - PAGE, 2 * PAGE, 0x55);
	expect(buffer_sync(dmabuf, 4 | 2 | 1), 0);
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, LENGTH);
	check_content(dmabuf);

	trying("read across 4 GiB");
	fill(dmabuf, GIB(4) - MIB(8), MIB(16), 0);
	rw.file_offset = rw.buf_offset = GIB(4) - MIB(8) + 33;
	rw.length = MIB(16) - 66;
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, MIB(16) - 66);
	map = map_part(dmabuf, GIB(4) - MIB(8), MIB(16));
	/* Everything before the last window below 4 GiB is a hole. */
	zero_check(map, MIB(8) - WINDOW);
	pattern_check(map + MIB(8) - WINDOW, GIB(4) - WINDOW, WINDOW + MIB(8) - 33, 1);
	zero_check(map + MIB(16) - 33, 33);

	unmap(map, MIB(16));
	unlink("copy");
	return 0;
}
