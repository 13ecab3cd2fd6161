// SPDX-License-Identifier: GPL-2.0-only
/*
 * Block devices that end in the middle of a page: every byte up to the last one, and
 * nothing beyond it. timeout=300
 */
#include "dm.h"

#define LENGTH	MIB(2)
#define AROUND	KIB(64)		/* of the underlying raw disk */

static const unsigned int sizes[] = { MIB(1) + 512, KIB(4) + 3584 };
static const uint64_t chunks[] = { 0, KIB(64) };

static bool direct;
static unsigned int size;

static int disk_open(const char *path, int flags)
{
	int fd = file_open(path, flags);

	check(!posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	return fd;
}

static void disk_fill(uint64_t seed)
{
	int fd = disk_open(raw_disk(), O_RDWR);

	fd_pattern_write(fd, 0, size + AROUND, seed);
	check(!fsync(fd));
	check(!posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	close(fd);
	/* The device has its own pages in the page cache. */
	close(disk_open(DM_PATH, O_RDONLY));
}

/* [@from, @to) of the disk has seed 3, the rest seed 1. */
static void disk_check(uint64_t from, uint64_t to)
{
	int fd = disk_open(DM_PATH, O_RDONLY);

	check(!fsync(fd));
	close(fd);
	fd = disk_open(raw_disk(), O_RDONLY);
	fd_pattern_check(fd, 0, from, 1);
	fd_pattern_check(fd, from, to - from, 3);
	fd_pattern_check(fd, to, size + AROUND - to, 1);
	close(fd);
}

static void one(struct buffer *buf, int dev, unsigned int start, uint64_t chunk)
{
	unsigned int left = start < size ? size - start : 0;
	struct dmabuf_dio_rw rw = {
		.file_offset = start, .buf_offset = start % PAGE, .length = LENGTH - start % PAGE,
		.chunk = chunk,
	};

	trying("%s, %s, size %u, start %u, chunk %llu", buffer_names[buf->kind],
	       direct ? "direct" : "buffered", size, start, (unsigned long long)chunk);
	disk_fill(1);
	buffer_pattern(buf, 2);
	rw.file_fd = disk_open(DM_PATH, O_RDWR | direct_flag(direct));
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, left);
	buffer_begin(buf);
	pattern_check(buf->map, 0, rw.buf_offset, 2);
	pattern_check(buf->map + rw.buf_offset, start, left, 1);
	pattern_check(buf->map + rw.buf_offset + left, rw.buf_offset + left,
		      buf->length - rw.buf_offset - left, 2);
	/* Different from the disk's content, and written at the file's offset */
	pattern_fill(buf->map + rw.buf_offset, start, LENGTH - rw.buf_offset, 3);
	buffer_end(buf);

	expect(dio_write(dev, &rw), -ENOSPC);
	expect(rw.done, left);
	close(rw.file_fd);
	if (left)
		disk_check(start, size);
	else
		disk_check(0, 0);
}

static void load(int dev)
{
	struct dmabuf_dio_load arg = { .fd_flags = O_RDWR, .length = size + 1 };
	unsigned int length = (size + PAGE - 1) & -PAGE;
	unsigned char *map;

	trying("LOAD, %s, size %u", direct ? "direct" : "buffered", size);
	disk_fill(1);
	arg.file_fd = disk_open(DM_PATH, O_RDONLY | direct_flag(direct));
	expect(dio_load(dev, &arg), -ENODATA);
	expect(arg.done, size);

	arg.length = size;
	expect(dio_load(dev, &arg), 0);
	expect(arg.done, size);
	map = map_dmabuf(arg.dmabuf_fd, length, 1);
	pattern_check(map, 0, size, 1);
	zero_check(map + size, length - size);
	unmap(map, length);
	close(arg.dmabuf_fd);
	close(arg.file_fd);
}

static void every_size(struct buffer *buf)
{
	unsigned int s, i, c;
	int dev = dio_context(buf);

	for (s = 0; s < ARRAY_SIZE(sizes); s++) {
		size = sizes[s];
		dm_create(size);
		for (c = 0; c < ARRAY_SIZE(chunks); c++) {
			unsigned int starts[] = {
				0, size - 100, size / PAGE * PAGE, PAGE, size, size + PAGE,
			};

			for (i = 0; i < ARRAY_SIZE(starts); i++)
				one(buf, dev, starts[i], chunks[c]);
		}
		load(dev);
		dm_remove();
	}
	close(dev);
}

int main(void)
{
	struct buffer buf;

	buffer_create(&buf, BUFFER_LOAD, LENGTH);
	every_size(&buf);
	direct = true;
	every_size(&buf);
	buffer_destroy(&buf);
	if (!buffer_try(&buf, BUFFER_UDMABUF, LENGTH))
		every_size(&buf);
	return 0;
}
