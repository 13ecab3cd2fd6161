// SPDX-License-Identifier: GPL-2.0-only
/* READ, WRITE and LOAD on a block device, up to its end and not beyond it */
#include <sys/ioctl.h>
#include <sys/mount.h>

#include "lib.h"

#define LENGTH	MIB(8)

static bool direct;
static uint64_t disk_size;

static void device(struct buffer *buf)
{
	int disk = file_open(raw_disk(), O_RDWR | direct_flag(direct));
	int plain = file_open(raw_disk(), O_RDWR);
	int dev = dio_context(buf);
	unsigned char *got = allocate(LENGTH);
	struct dmabuf_dio_rw rw;
	int fd;

	/* Whole, at the start */
	fd_pattern_write(plain, 0, LENGTH, 1);
	check(!fsync(plain));
	check(!posix_fadvise(plain, 0, 0, POSIX_FADV_DONTNEED));
	rw = (struct dmabuf_dio_rw){ .file_fd = disk, .length = LENGTH };
	buffer_pattern(buf, 2);
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, LENGTH);
	expect(rw.direct, direct ? LENGTH : 0);
	pattern_check(buf->map, 0, LENGTH, 1);

	/* An odd range, both ways */
	rw = (struct dmabuf_dio_rw){
		.file_fd = disk, .file_offset = 12345, .buf_offset = 57,
		.length = MIB(3) + 99,
	};
	rw.buf_offset = 12345 + PAGE;
	buffer_pattern(buf, 2);
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, MIB(3) + 99);
	pattern_check(buf->map, 0, rw.buf_offset, 2);
	pattern_check(buf->map + rw.buf_offset, 12345, rw.done, 1);
	pattern_check(buf->map + rw.buf_offset + rw.done, rw.buf_offset + rw.done,
		      buf->length - rw.buf_offset - rw.done, 2);

	buffer_pattern(buf, 3);
	expect(dio_write(dev, &rw), 0);
	expect(rw.done, MIB(3) + 99);
	check(!fsync(disk));
	fd_read(plain, got, LENGTH, 0);
	pattern_check(got, 0, 12345, 1);
	pattern_check(got + 12345, 12345 + PAGE, rw.done, 3);
	pattern_check(got + 12345 + rw.done, 12345 + rw.done,
		      LENGTH - 12345 - rw.done, 1);

	/* The end of the device */
	fd_pattern_write(plain, disk_size - KIB(100), KIB(100), 4);
	check(!fsync(plain));
	check(!posix_fadvise(plain, 0, 0, POSIX_FADV_DONTNEED));
	rw = (struct dmabuf_dio_rw){
		.file_fd = disk, .file_offset = disk_size - KIB(100), .length = MIB(1),
		.chunk = CHUNK_OF(KIB(16)),
	};
	buffer_pattern(buf, 2);
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, KIB(100));
	pattern_check(buf->map, disk_size - KIB(100), KIB(100), 4);
	rw.file_offset = disk_size;
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, 0);
	rw.file_offset = disk_size + 123 * PAGE;
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, 0);

	buffer_pattern(buf, 5);
	rw.file_offset = disk_size - KIB(60);
	expect(dio_write(dev, &rw), -ENOSPC);
	expect(rw.done, KIB(60));
	check(!fsync(disk));
	fd_read(plain, got, KIB(100), disk_size - KIB(100));
	pattern_check(got, disk_size - KIB(100), KIB(40), 4);
	pattern_check(got + KIB(40), 0, KIB(60), 5);

	/* LOAD, and LOAD beyond the end */
	close(dev);
	dev = dio_open();
	fd_pattern_write(plain, 0, LENGTH, 6);
	check(!fsync(plain));
	fd = dio_load_fd(dev, disk, PAGE, LENGTH - PAGE - 5);
	unmap(buf->map, buf->length);
	buf->map = map_dmabuf(fd, LENGTH - PAGE, 1);
	pattern_check(buf->map, PAGE, LENGTH - PAGE - 5, 6);
	zero_check(buf->map + LENGTH - PAGE - 5, 5);
	unmap(buf->map, LENGTH - PAGE);
	buf->map = NULL;
	close(fd);
	{
		struct dmabuf_dio_load load = {
			.file_fd = disk, .fd_flags = O_RDWR,
			.file_offset = disk_size - PAGE, .length = 2 * PAGE,
		};

		expect(dio_load(dev, &load), -ENODATA);
		expect(load.done, PAGE);
	}

	free(got);
	close(plain);
	close(disk);
	close(dev);
}

int main(void)
{
	int disk = file_open(raw_disk(), O_RDONLY);

	check(!ioctl(disk, BLKGETSIZE64, &disk_size));
	close(disk);
	for_each_kind(LENGTH, device);
	direct = true;
	for_each_kind(LENGTH, device);
	return 0;
}
