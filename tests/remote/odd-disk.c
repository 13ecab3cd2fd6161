// SPDX-License-Identifier: GPL-2.0-only
/*
 * READ, WRITE and LOAD on block devices whose size is not a multiple of the page size: up to the
 * last byte and never beyond. timeout=900
 */
#include <sys/ioctl.h>

#include <linux/loop.h>

#include "dm.h"

static bool direct;
static uint64_t disk_size;
static int disk, plain;

/* Fills the whole disk with @seed and drops it from the page cache. */
static void disk_pattern(uint64_t seed)
{
	fd_pattern_write(plain, 0, disk_size, seed);
	check(!fsync(plain));
	check(!posix_fadvise(plain, 0, 0, POSIX_FADV_DONTNEED));
}

static void read_to_end(struct buffer *buf, int dev, uint64_t start, uint64_t length)
{
	struct dmabuf_dio_rw rw = {
		.file_fd = disk, .file_offset = start, .buf_offset = start % PAGE,
		.length = length,
	};
	uint64_t left = start < disk_size ? disk_size - start : 0;
	uint64_t behind = rw.buf_offset + length;

	trying("%s, %s, %llu bytes, READ from %llu, length %llu", buffer_names[buf->kind],
	       direct ? "direct" : "buffered", (unsigned long long)disk_size,
	       (unsigned long long)start, (unsigned long long)length);
	if (left > length)
		left = length;
	buffer_pattern(buf, 2);
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, left);
	expect(rw.direct, direct ? left : 0);
	buffer_begin(buf);
	pattern_check(buf->map, 0, rw.buf_offset, 2);
	pattern_check(buf->map + rw.buf_offset, start, left, 1);
	pattern_check(buf->map + behind, behind, buf->length - behind, 2);
	buffer_end(buf);
}

static void write_to_end(struct buffer *buf, int dev, uint64_t start, uint64_t length)
{
	struct dmabuf_dio_rw rw = {
		.file_fd = disk, .file_offset = start, .buf_offset = start % PAGE,
		.length = length,
	};
	uint64_t left = start < disk_size ? disk_size - start : 0;

	trying("%s, %s, %llu bytes, WRITE at %llu, length %llu", buffer_names[buf->kind],
	       direct ? "direct" : "buffered", (unsigned long long)disk_size,
	       (unsigned long long)start, (unsigned long long)length);
	disk_pattern(1);
	buffer_pattern(buf, 3);
	expect(dio_write(dev, &rw), length > left ? -ENOSPC : 0);
	expect(rw.done, length > left ? left : length);
	check(!fsync(disk));
	check(!posix_fadvise(plain, 0, 0, POSIX_FADV_DONTNEED));
	fd_pattern_check(plain, 0, start < disk_size ? start : disk_size, 1);
	if (left) {
		unsigned char *got = allocate(rw.done);

		fd_read(plain, got, rw.done, start);
		pattern_check(got, rw.buf_offset, rw.done, 3);
		fd_read(plain, got, left - rw.done, start + rw.done);
		pattern_check(got, start + rw.done, left - rw.done, 1);
		free(got);
	}
}

static void load_to_end(uint64_t start)
{
	uint64_t length = disk_size - start;
	struct dmabuf_dio_load load = {
		.file_fd = disk, .fd_flags = O_RDWR | O_CLOEXEC, .file_offset = start,
		.length = length + 1,
	};
	int dev = dio_open(), fd;
	unsigned char *map;

	trying("%s, %llu bytes, LOAD from %llu", direct ? "direct" : "buffered",
	       (unsigned long long)disk_size, (unsigned long long)start);
	fd = dio_load_fd(dev, disk, start, length);
	map = map_dmabuf(fd, load.length, 1);
	pattern_check(map, start, length, 1);
	zero_check(map + length, -length % PAGE);
	unmap(map, load.length);
	close(fd);
	expect(dio_load(dev, &load), -ENODATA);
	expect(load.done, length);
	close(dev);
}

static void ends(struct buffer *buf)
{
	int dev = dio_context(buf);
	static const unsigned int before[] = { 1, 511, 512, 513, 4095, 4096, 4097, 4608, 70001 };
	unsigned int i;

	disk_pattern(1);
	read_to_end(buf, dev, 0, buf->length - PAGE);
	read_to_end(buf, dev, PAGE, disk_size - PAGE);
	read_to_end(buf, dev, disk_size, 1);
	read_to_end(buf, dev, disk_size + 77, PAGE);
	for (i = 0; i < ARRAY_SIZE(before); i++) {
		read_to_end(buf, dev, disk_size - before[i], before[i]);
		read_to_end(buf, dev, disk_size - before[i], before[i] + 10000);
	}
	load_to_end(0);
	load_to_end(PAGE);
	load_to_end((disk_size - 512) & -PAGE);

	write_to_end(buf, dev, 0, disk_size);
	write_to_end(buf, dev, 0, buf->length - PAGE);
	write_to_end(buf, dev, disk_size, 1);
	for (i = 0; i < ARRAY_SIZE(before); i++) {
		write_to_end(buf, dev, disk_size - before[i], before[i]);
		write_to_end(buf, dev, disk_size - before[i], before[i] + 10000);
	}
	close(dev);
}

/* Longer than one request */
static void whole(struct buffer *buf)
{
	int dev = dio_context(buf);

	disk_pattern(1);
	read_to_end(buf, dev, 0, buf->length - PAGE);
	load_to_end(0);
	write_to_end(buf, dev, 0, buf->length - PAGE);
	close(dev);
}

static void on_disk(const char *path, void (*test)(struct buffer *buf))
{
	int both;

	for (both = 0; both < 2; both++) {
		direct = both;
		plain = file_open(path, O_RDWR);
		disk = file_open(path, O_RDWR | direct_flag(direct));
		expect(lseek(disk, 0, SEEK_END), disk_size);
		for_each_kind(2 * disk_size, test);
		close(disk);
		close(plain);
	}
}

static void on_loop(uint64_t size, bool direct_below, void (*test)(struct buffer *buf))
{
	struct loop_config config = {
		/* Removed when this process exits, also after a failure */
		.info.lo_flags = LO_FLAGS_AUTOCLEAR | (direct_below ? LO_FLAGS_DIRECT_IO : 0),
	};
	int control = file_open("/dev/loop-control", O_RDWR), loop;
	char path[32];

	/* An incomplete sector does not count. */
	file_sparse("image", size + 300);
	config.fd = file_open("image", O_RDWR);
	snprintf(path, sizeof(path), "/dev/loop%d", ioctl(control, LOOP_CTL_GET_FREE));
	loop = file_open(path, O_RDWR);
	check(!ioctl(loop, LOOP_CONFIGURE, &config));
	disk_size = size;
	on_disk(path, test);
	close(loop);
	close(config.fd);
	close(control);
}

int main(void)
{
	static const uint64_t sizes[] = { KIB(96) + 512, KIB(100) + 3584 };
	unsigned int i;

	on_loop(MIB(1) + 512, false, whole);
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		on_loop(sizes[i], true, ends);
		disk_size = sizes[i];
		dm_create(sizes[i]);
		on_disk(DM_PATH, ends);
		dm_remove();
	}
	return 0;
}
