// SPDX-License-Identifier: GPL-2.0-only
/* READ of a whole file, buffered and by O_DIRECT, into every kind of buffer */
#include <sys/mman.h>

#include "lib.h"

#define LENGTH	(MIB(20) + 1234)

static bool direct;

static void read_whole(struct buffer *buf)
{
	struct dmabuf_dio_rw rw = { .length = LENGTH };
	int dev = dio_context(buf);
	unsigned char *view;
	int fd;

	buffer_pattern(buf, 2);
	rw.file_fd = file_open("data", O_RDONLY | direct_flag(direct));
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, LENGTH);
	expect(rw.direct, direct ? LENGTH : 0);
	expect(rw.align, 0);

	buffer_begin(buf);
	pattern_check(buf->map, 0, LENGTH, 1);
	pattern_check(buf->map + LENGTH, LENGTH, buf->length - LENGTH, 2);
	buffer_end(buf);

	/* A view made later shows the same. */
	view = map_dmabuf(buf->fd, buf->length, PROT_READ);
	bytes_check(view, buf->map, buf->length);
	unmap(view, buf->length);

	/* Write the buffer to a new file, which must have the same content. */
	fd = file_open("copy", O_RDWR | O_CREAT | O_TRUNC | direct_flag(direct));
	close(rw.file_fd);
	rw.file_fd = fd;
	expect(dio_write(dev, &rw), 0);
	expect(rw.done, LENGTH);
	expect(rw.direct, direct ? LENGTH & -PAGE : 0);
	close(fd);
	file_settle("copy");
	fd = file_open("copy", O_RDONLY);
	expect(lseek(fd, 0, SEEK_END), LENGTH);
	fd_pattern_check(fd, 0, LENGTH, 1);
	close(fd);
	close(dev);
}

int main(void)
{
	file_pattern("data", LENGTH, 1);
	for_each_kind_and_way(LENGTH, &direct, read_whole);
	return 0;
}
