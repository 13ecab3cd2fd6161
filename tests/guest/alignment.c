// SPDX-License-Identifier: GPL-2.0-only
/*
 * Offsets that are incompatible under O_DIRECT: EINVAL, the required alignment, and no
 * data transferred; with that alignment the call works.
 */
#include "lib.h"

#define LENGTH	MIB(1)

static const char *path;

static void mismatch(struct buffer *buf)
{
	int file = file_open(path, O_RDWR | O_DIRECT);
	int plain = file_open(path, O_RDONLY);
	int dev = dio_context(buf);
	unsigned int shift, write;

	for (write = 0; write < 2; write++) {
		for (shift = 1; shift < PAGE; shift = shift * 2 + shift % 3) {
			struct dmabuf_dio_rw rw = {
				.file_fd = file,
				.buf_offset = shift,
				.length = LENGTH / 2,
				.chunk = KIB(64),
			};
			unsigned int align;
			int ret;

			trying("%s, %s, %s, shift %u", path, buffer_names[buf->kind],
			       write ? "write" : "read", shift);
			buffer_pattern(buf, 1);
			ret = write ? dio_write(dev, &rw) : dio_read(dev, &rw);
			if (!ret) {
				expect(rw.done, LENGTH / 2);
				expect(rw.align, 0);
				if (write)
					fd_pattern_check(plain, 0, 0, 0);
				else
					pattern_check(buf->map + shift, 0, LENGTH / 2, 1);
				goto restore;
			}
			expect(ret, -EINVAL);
			expect(rw.done, 0);
			expect(rw.direct, 0);
			align = rw.align;
			check(align > 1 && align <= PAGE && !(align & (align - 1)));
			check(shift % align);
			pattern_check(buf->map, 0, buf->length, 1);
			fd_pattern_check(plain, 0, LENGTH, 1);

			/* LOAD's buffer offset is fixed. */
			if (!write) {
				struct dmabuf_dio_load load = {
					.file_fd = file, .fd_flags = O_RDWR,
					.file_offset = shift, .length = LENGTH / 2,
				};

				expect(dio_load(dev, &load), -EINVAL);
				expect(load.align, align);
				expect(load.done, 0);
				expect(load.dmabuf_fd, -1);
			}

			/* The reported alignment is sufficient. */
			trying("%s, %s, %s, align %u", path, buffer_names[buf->kind],
			       write ? "write" : "read", align);
			rw.buf_offset = align;
			if (write) {
				buffer_begin(buf);
				pattern_fill(buf->map + align, 0, LENGTH / 2, 1);
				buffer_end(buf);
			}
			expect(write ? dio_write(dev, &rw) : dio_read(dev, &rw), 0);
			expect(rw.done, LENGTH / 2);
			expect(rw.align, 0);
			if (!write)
				pattern_check(buf->map + align, 0, LENGTH / 2, 1);
restore:
			if (write) {
				int fd = file_open(path, O_RDWR);

				fd_pattern_write(fd, 0, LENGTH, 1);
				check(!fsync(fd));
				close(fd);
			}
		}
	}

	/* A range within one block needs no alignment. */
	{
		struct dmabuf_dio_rw rw = {
			.file_fd = file, .file_offset = 10, .buf_offset = 777,
			.length = 3000,
		};

		trying("%s, %s, inside a block", path, buffer_names[buf->kind]);
		buffer_pattern(buf, 2);
		expect(dio_read(dev, &rw), 0);
		expect(rw.done, 3000);
		pattern_check(buf->map, 0, 777, 2);
		pattern_check(buf->map + 777, 10, 3000, 1);
		pattern_check(buf->map + 3777, 3777, buf->length - 3777, 2);
	}
	close(plain);
	close(file);
	close(dev);
}

int main(void)
{
	int fd;

	if (direct_possible()) {
		path = "data";
		file_pattern(path, LENGTH, 1);
		for_each_kind(LENGTH, mismatch);
	}

	path = raw_disk();
	fd = file_open(path, O_RDWR);
	fd_pattern_write(fd, 0, LENGTH, 1);
	check(!fsync(fd));
	close(fd);
	for_each_kind(LENGTH, mismatch);
	return 0;
}
