// SPDX-License-Identifier: GPL-2.0-only
/* Holes read as zeros, and WRITE fills exactly its range of a hole. */
#include "lib.h"

#define LENGTH	MIB(8)

/* The file's data; the rest is a hole. */
static const struct {
	unsigned int start, length;
} islands[] = {
	{ 0, 4096 }, { 70000, 5000 }, { MIB(1), MIB(1) + 1 }, { MIB(7), 100 },
};

static bool direct;

static void holes(struct buffer *buf)
{
	struct dmabuf_dio_rw rw = { .length = LENGTH, .chunk = KIB(256) };
	unsigned int i, at = 0;
	int dev = dio_context(buf);
	unsigned char *got = allocate(LENGTH);

	rw.file_fd = file_open("data", O_RDONLY | direct_flag(direct));
	buffer_pattern(buf, 2);
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, LENGTH);
	close(rw.file_fd);

	buffer_begin(buf);
	for (i = 0; i < ARRAY_SIZE(islands); i++) {
		zero_check(buf->map + at, islands[i].start - at);
		pattern_check(buf->map + islands[i].start, islands[i].start,
			      islands[i].length, 1);
		at = islands[i].start + islands[i].length;
	}
	zero_check(buf->map + at, LENGTH - at);
	buffer_end(buf);

	buffer_pattern(buf, 3);
	file_sparse("sparse", LENGTH);
	rw = (struct dmabuf_dio_rw){
		.file_fd = file_open("sparse", O_RDWR | direct_flag(direct)),
		.file_offset = MIB(2) + 1000,
		.buf_offset = 1000,
		.length = MIB(1) + 5000,
	};
	expect(dio_write(dev, &rw), 0);
	expect(rw.done, rw.length);
	close(rw.file_fd);
	file_settle("sparse");
	rw.file_fd = file_open("sparse", O_RDONLY);
	expect(lseek(rw.file_fd, 0, SEEK_END), LENGTH);
	fd_read(rw.file_fd, got, LENGTH, 0);
	close(rw.file_fd);
	zero_check(got, rw.file_offset);
	pattern_check(got + rw.file_offset, 1000, rw.length, 3);
	zero_check(got + rw.file_offset + rw.length,
		   LENGTH - rw.file_offset - rw.length);
	free(got);
	close(dev);
}

int main(void)
{
	unsigned int i;
	int fd;

	file_sparse("data", LENGTH);
	fd = file_open("data", O_RDWR);
	for (i = 0; i < ARRAY_SIZE(islands); i++)
		fd_pattern_write(fd, islands[i].start, islands[i].length, 1);
	close(fd);
	file_settle("data");

	for_each_kind_and_way(LENGTH, &direct, holes);
	return 0;
}
