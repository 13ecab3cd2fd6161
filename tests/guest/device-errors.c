// SPDX-License-Identifier: GPL-2.0-only
/* The device fails in the middle of the range: the bytes before the error are reported. */
#include <sys/mount.h>

#include "dm.h"
#include "ring.h"

#define SIZE	MIB(400)
#define LENGTH	MIB(2)
#define BROKEN	(MIB(1) + KIB(64))
#define BREAK	KIB(64)

static struct {
	uint64_t chunk;
	unsigned int depth;
} shapes[] = {
	/* The chunks of the first two are pages, see main(). */
	{ 0, 1 }, { 0, 64 }, { KIB(64), 4 }, { KIB(256), 8 }, { MIB(1), 2 }, { 0, 0 },
};

/* Small requests: one begins shortly before the error, and several follow it. */
static uint64_t margin(unsigned int shape)
{
	uint64_t chunk = shapes[shape].chunk;

	return chunk && chunk < KIB(256) ? MIB(1) - KIB(256) : 0;
}

static const char *path;
static uint64_t broken_at;	/* in the file */
static bool direct, slots;

/*
 * Checks the reported length: it may be less than what precedes the error by one request.
 * The page cache drops whole folios, so buffered reads may lose 1 MiB more.
 */
static void check_done(uint64_t done, uint64_t offset, uint64_t chunk)
{
	uint64_t before = broken_at - offset;

	if (chunk && !direct)
		chunk += MIB(1);

	if (done > before)
		fail("%llu bytes before the error, %llu said to be done",
		     (unsigned long long)before, (unsigned long long)done);
	if (chunk && done + chunk < before)
		fail("%llu bytes before the error, only %llu done",
		     (unsigned long long)before, (unsigned long long)done);
}

static void errors(struct buffer *buf)
{
	int file = file_open(path, O_RDWR | direct_flag(direct));
	int plain = file_open(path, O_RDONLY);
	int dev = dio_context(buf);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(shapes); i++) {
		uint64_t start = margin(i), offset = start + i % 2 * 100;
		struct dmabuf_dio_rw rw = {
			.file_fd = file,
			.file_offset = offset,
			.buf_offset = offset,
			.length = LENGTH - 2 * offset,
			.chunk = shapes[i].chunk,
			.depth = shapes[i].depth,
		};
		struct dmabuf_dio_load load = {
			.file_fd = file, .fd_flags = O_RDWR,
			.file_offset = start, .length = LENGTH - 2 * start,
			.chunk = rw.chunk, .depth = rw.depth, .dmabuf_fd = -1,
		};
		unsigned int fds = count_fds();

		trying("%s, %s, %s, chunk %llu, depth %u", path, buffer_names[buf->kind],
		       direct ? "direct" : "buffered", rw.chunk, rw.depth);
		check(!posix_fadvise(plain, 0, 0, POSIX_FADV_DONTNEED));
		buffer_pattern(buf, 2);
		expect(dio_read(dev, &rw), -EIO);
		check_done(rw.done, offset, rw.chunk);
		pattern_check(buf->map, 0, offset, 2);
		pattern_check(buf->map + offset, offset, rw.done, 1);
		pattern_check(buf->map + LENGTH - offset, LENGTH - offset,
			      buf->length - LENGTH + offset, 2);

		check(!posix_fadvise(plain, 0, 0, POSIX_FADV_DONTNEED));
		expect(dio_load(dev, &load), -EIO);
		check_done(load.done, start, load.chunk);
		expect(load.dmabuf_fd, -1);
		expect(count_fds(), fds);

		/* Ranges before and after the error work. */
		if (direct) {
			rw.length = broken_at - offset;
			expect(dio_read(dev, &rw), 0);
			expect(rw.done, broken_at - offset);
			pattern_check(buf->map + offset, offset, rw.done, 1);

			rw.file_offset = rw.buf_offset = broken_at + BREAK;
			rw.length = LENGTH - start - rw.file_offset;
			buffer_pattern(buf, 2);
			expect(dio_read(dev, &rw), 0);
			expect(rw.done, rw.length);
			pattern_check(buf->map, 0, rw.buf_offset, 2);
			pattern_check(buf->map + rw.buf_offset, rw.buf_offset, rw.done, 1);
		}
	}

	if (slots && direct && slots_possible(buf)) {
		struct io_uring ring;

		ring_create(&ring, 4, 1);
		expect(slot_register(&ring, dev, 0, 0, LENGTH, SLOT_BOTH), 0);
		expect(slot_io(&ring, false, file, 0, broken_at, KIB(64), broken_at), -EIO);
		expect(slot_io(&ring, false, file, 0, 0, KIB(64), 0), KIB(64));
		io_uring_queue_exit(&ring);
	}
	close(dev);
	close(plain);
	close(file);
}

/* Used on the bare disk only, where the place of a write is known. */
static void write_errors(struct buffer *buf)
{
	int file = file_open(path, O_RDWR | O_DIRECT);
	int dev = dio_context(buf);
	unsigned int i;

	buffer_pattern(buf, 1);
	for (i = 0; i < ARRAY_SIZE(shapes); i++) {
		uint64_t start = margin(i);
		struct dmabuf_dio_rw rw = {
			.file_fd = file,
			.file_offset = start,
			.buf_offset = start,
			.length = LENGTH - 2 * start,
			.chunk = shapes[i].chunk,
			.depth = shapes[i].depth,
		};

		trying("write, %s, chunk %llu, depth %u", buffer_names[buf->kind],
		       rw.chunk, rw.depth);
		expect(dio_write(dev, &rw), -EIO);
		check_done(rw.done, start, rw.chunk);
		fd_pattern_check(file, start, rw.done & -PAGE, 1);
	}
	pattern_check(buf->map, 0, LENGTH, 1);
	close(dev);
	close(file);
}

static void on_disk(void)
{
	int fd = file_open(DM_PATH, O_RDWR);

	path = DM_PATH;
	fd_pattern_write(fd, 0, LENGTH, 1);
	check(!fsync(fd));
	close(fd);
	broken_at = BROKEN;
	dm_break(broken_at, BREAK);
	direct = false;
	for_each_kind(LENGTH, errors);
	direct = true;
	for_each_kind(LENGTH, errors);
	for_each_kind(LENGTH, write_errors);
	dm_break(0, 0);
}

static void on_file_system(const char *type)
{
	if (!fs_format(DM_PATH, type, "")) {
		printf("no mkfs.%s\n", type);
		return;
	}
	fs_mount(DM_PATH, type, NULL);
	path = "mnt/data";
	file_pattern(path, LENGTH, 1);
	broken_at = BROKEN;
	dm_break(disk_position(path, BROKEN, BREAK), BREAK);
	direct = false;
	for_each_kind(LENGTH, errors);
	direct = true;
	for_each_kind(LENGTH, errors);
	dm_break(0, 0);

	/* Once the device is healed, the whole file can be loaded. */
	trying("healed");
	{
		int file = file_open(path, O_RDONLY | O_DIRECT), dev = dio_open();
		int fd = dio_load_fd(dev, file, 0, LENGTH);
		unsigned char *map = map_dmabuf(fd, LENGTH, 1);

		pattern_check(map, 0, LENGTH, 1);
		unmap(map, LENGTH);
		close(fd);
		close(dev);
		close(file);
	}
	check(!umount("mnt"));
	check(!rmdir("mnt"));
}

int main(void)
{
	shapes[0].chunk = shapes[1].chunk = PAGE;
	slots = dio_has_slots();
	dm_create(SIZE);
	on_disk();
	on_file_system(guest_fs());
	dm_remove();
	return 0;
}
