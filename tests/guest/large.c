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

static void check_view(const unsigned char *map)
{
	uint64_t at;

	for (at = 0; at < LENGTH; at += WINDOW) {
		uint64_t count = LENGTH - at < WINDOW ? LENGTH - at : WINDOW;

		if (has_data(at))
			pattern_check(map + at, at, count, 1);
		else
			zero_check(map + at, count);
	}
	zero_check(map + LENGTH, -LENGTH & (PAGE - 1));
}

int main(void)
{
	size_t length = (LENGTH + PAGE - 1) & -PAGE;
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
	map = map_dmabuf(dmabuf, length, PROT_READ | PROT_WRITE);
	check_view(map);
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
		memset(map + at, 0x55, PAGE);
	memset(map + GIB(4) - PAGE, 0x55, 2 * PAGE);
	expect(buffer_sync(dmabuf, 4 | 2 | 1), 0);
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, LENGTH);
	check_view(map);

	trying("read across 4 GiB");
	memset(map + GIB(4) - MIB(8), 0, MIB(16));
	rw.file_offset = rw.buf_offset = GIB(4) - MIB(8) + 33;
	rw.length = MIB(16) - 66;
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, MIB(16) - 66);
	pattern_check(map + GIB(4), GIB(4), MIB(8) - 33, 1);
	zero_check(map + GIB(4) + MIB(8) - 33, 33);

	unmap(map, length);
	unlink("copy");
	return 0;
}
