// SPDX-License-Identifier: GPL-2.0-only
/* timeout=600: behind an IOMMU every way of moving bytes takes the addresses at which a buffer stays mapped */
#include "dm.h"
#include "premap.h"
#include "ring.h"

#define LENGTH		MIB(9)
#define BLOCKS		64
/* QEMU's NVMe takes at most this in one request, so a look-up covers no more. */
#define LARGEST		KIB(512)
#define SGL		"/sys/module/nvme/parameters/sgl_threshold"

static const char *place;
static bool exact;		/* no other user of the disk: requests can be counted */
static struct premap before;
static uint64_t requests;
static unsigned char *data;

static void begin(const char *what)
{
	trying("%s, %s", place, what);
	before = premap_now();
	requests = disk_requests();
}

/* Checks that all of @bytes used existing addresses. */
static void used(uint64_t bytes)
{
	uint64_t times = premap_now().used - before.used;

	check(times * LARGEST >= bytes);
	if (exact)
		expect(times, disk_requests() - requests);
}

static void content(int file, uint64_t seed)
{
	pattern_fill(data, 0, LENGTH, seed);
	check(pwrite(file, data, LENGTH, 0) == (ssize_t)LENGTH);
	check(!fdatasync(file));
}

static void written(int file, uint64_t seed)
{
	check(!fdatasync(file));
	check(pread(file, data, LENGTH, 0) == (ssize_t)LENGTH);
	pattern_check(data, 0, LENGTH, seed);
}

static void calls(struct buffer *buf, int file)
{
	int dev = dio_context(buf);
	struct dmabuf_dio_rw rw = { .file_fd = file, .length = LENGTH };

	content(file, 1);
	buffer_pattern(buf, 9);
	begin("READ");
	expect(dio_read(dev, &rw), 0);
	used(LENGTH);
	expect(rw.direct, LENGTH);
	buffer_check(buf, 0, 0, LENGTH, 1);

	buffer_pattern(buf, 2);
	begin("WRITE");
	expect(dio_write(dev, &rw), 0);
	used(LENGTH);
	written(file, 2);
	close(dev);
}

static void slots(struct buffer *buf, int file)
{
	int dev = dio_context(buf), i;
	uint64_t half = LENGTH / 2, state = 1;
	struct io_uring ring;

	ring_create(&ring, BLOCKS, 1);
	/* The range begins after the first vector and ends before the end of the last. */
	expect(slot_register(&ring, dev, 0, PAGE, LENGTH - 2 * PAGE, SLOT_BOTH), 0);
	content(file, 3);
	buffer_pattern(buf, 9);
	begin("slot, read");
	expect(slot_io(&ring, false, file, 0, 0, half, PAGE), half);
	expect(slot_io(&ring, false, file, 0, half, half - 2 * PAGE, PAGE + half),
	       half - 2 * PAGE);
	used(LENGTH - 2 * PAGE);
	buffer_begin(buf);
	pattern_check(buf->map, 0, PAGE, 9);
	pattern_check(buf->map + PAGE, PAGE, LENGTH - 2 * PAGE, 3);
	pattern_check(buf->map + LENGTH - PAGE, LENGTH - PAGE, PAGE, 9);
	buffer_end(buf);

	buffer_pattern(buf, 4);
	begin("slot, write");
	expect(slot_io(&ring, true, file, 0, 0, LENGTH - 2 * PAGE, PAGE), LENGTH - 2 * PAGE);
	used(LENGTH - 2 * PAGE);
	fd_pattern_check(file, PAGE, LENGTH - 2 * PAGE, 4);

	/* Many small pieces, each a single segment, as in a gather */
	content(file, 5);
	begin("slot, blocks");
	for (i = 0; i < BLOCKS; i++) {
		uint64_t at = random_below(&state, LENGTH / PAGE - 2) * PAGE;

		slot_queue(&ring, false, file, 0, at, PAGE, at + PAGE, at);
	}
	expect(io_uring_submit(&ring), BLOCKS);
	for (i = 0; i < BLOCKS; i++) {
		uint64_t at;

		expect(ring_result(&ring, &at), PAGE);
		buffer_check(buf, PAGE + at, at + PAGE, PAGE, 5);
	}
	/* Blocks that follow each other may be merged; each is looked up. */
	check(premap_now().used - before.used >= BLOCKS);
	expect(slot_unregister(&ring, 0), 1);
	io_uring_queue_exit(&ring);
	close(dev);
}

static void joined(struct buffer *buf, int file)
{
	int contexts[2], dev = dio_open(), i;
	struct dmabuf_dio_join join = {
		.contexts = (uintptr_t)contexts, .count = 2, .flags = SLOT_BOTH,
	};
	struct buffer other, *both[2] = { buf, &other };
	struct io_uring ring;

	buffer_create(&other, buf->kind, LENGTH);
	for (i = 0; i < 2; i++)
		contexts[i] = dio_context(both[i]);
	ring_create(&ring, 4, 1);
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_JOIN, &join, sizeof(join)), 0);
	content(file, 6);
	for (i = 0; i < 2; i++) {
		buffer_pattern(both[i], 9);
		begin(i ? "JOIN, second" : "JOIN, first");
		expect(slot_io(&ring, false, file, 0, i * LENGTH, LENGTH, 0), LENGTH);
		used(LENGTH);
		buffer_check(both[i], 0, 0, LENGTH, 6);
	}
	/* A request across the border has two addresses, and is mapped individually. */
	begin("JOIN, border");
	expect(slot_io(&ring, false, file, 0, LENGTH - KIB(64), KIB(128), 0), KIB(128));
	buffer_check(buf, LENGTH - KIB(64), 0, KIB(64), 6);
	buffer_check(&other, 0, KIB(64), KIB(64), 6);
	expect(slot_unregister(&ring, 0), 1);
	io_uring_queue_exit(&ring);
	for (i = 0; i < 2; i++)
		close(contexts[i]);
	close(dev);
	buffer_destroy(&other);
}

static void load(int file)
{
	int dev = dio_open(), fd;
	unsigned char *map;

	content(file, 7);
	begin("LOAD");
	fd = dio_load_fd(dev, file, 0, LENGTH);
	used(LENGTH);
	map = map_dmabuf(fd, LENGTH, 1);
	pattern_check(map, 0, LENGTH, 7);
	unmap(map, LENGTH);
	close(fd);
	close(dev);
}

static void copy(int from, uint64_t from_at, int to, uint64_t to_at, uint64_t bytes)
{
	off_t in = from_at, out = to_at;

	check(copy_file_range(from, &in, to, &out, bytes, 0) == (ssize_t)bytes);
}

/* The kernel's own copies: mapped once half of the buffer has been asked for */
static void copies(enum buffer_kind kind, int file)
{
	struct buffer buf;

	buffer_create(&buf, kind, LENGTH);
	content(file, 8);
	buffer_pattern(&buf, 9);
	begin("copy_file_range, a part");
	copy(file, 0, buf.fd, 0, LENGTH / 3 & ~(PAGE - 1));
	expect(premap_now().tables, before.tables);
	begin("copy_file_range, read");
	copy(file, 0, buf.fd, 0, LENGTH);
	used(LENGTH);
	expect(premap_now().tables, before.tables + 1);
	buffer_check(&buf, 0, 0, LENGTH, 8);

	buffer_pattern(&buf, 9);
	begin("copy_file_range, from the middle, and on");
	copy(file, LENGTH / 2, buf.fd, LENGTH / 2, LENGTH / 2 - PAGE);
	copy(file, PAGE, buf.fd, PAGE, LENGTH / 2 - PAGE);
	used(LENGTH - 2 * PAGE);
	buffer_begin(&buf);
	pattern_check(buf.map, 0, PAGE, 9);
	pattern_check(buf.map + PAGE, PAGE, LENGTH - 2 * PAGE, 8);
	pattern_check(buf.map + LENGTH - PAGE, LENGTH - PAGE, PAGE, 9);
	buffer_end(&buf);

	buffer_pattern(&buf, 10);
	begin("copy_file_range, write");
	copy(buf.fd, 0, file, 0, LENGTH);
	used(LENGTH);
	written(file, 10);
	buffer_destroy(&buf);
}

static void through(const char *path)
{
	static const enum buffer_kind kinds[] = { BUFFER_HEAP, BUFFER_UDMABUF, BUFFER_LOAD };
	int file = file_open(path, O_RDWR | O_DIRECT);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct buffer buf;

		if (buffer_try(&buf, kinds[i], LENGTH))
			continue;
		calls(&buf, file);
		slots(&buf, file);
		joined(&buf, file);
		buffer_destroy(&buf);
		if (kinds[i] != BUFFER_LOAD)
			copies(kinds[i], file);
	}
	load(file);
	close(file);
	premap_expect_tables(0);
}

int main(void)
{
	static const char * const thresholds[] = { "0", "4096" };
	unsigned int i;
	int disk;

	need_premap();
	need_slots();
	data = allocate(LENGTH);
	disk = file_open(raw_disk(), O_RDWR | O_DIRECT);
	content(disk, 1);
	premap_begin(disk);
	close(disk);
	for (i = 0; i < ARRAY_SIZE(thresholds); i++) {
		proc_write(SGL, thresholds[i]);
		place = i ? "disk, SGL" : "disk, PRP";
		exact = true;
		through(raw_disk());
		place = i ? "dm-linear, SGL" : "dm-linear, PRP";
		dm_create(LENGTH);
		through(DM_PATH);
		dm_remove();
	}
	check(fs_format(raw_disk(), guest_fs(), ""));
	fs_mount(raw_disk(), guest_fs(), "");
	exact = false;
	for (i = 0; i < ARRAY_SIZE(thresholds); i++) {
		proc_write(SGL, thresholds[i]);
		place = i ? "file, SGL" : "file, PRP";
		file_pattern("mnt/data", LENGTH, 1);
		file_settle("mnt/data");
		through("mnt/data");
	}
	proc_write(SGL, "32768");
	return 0;
}
