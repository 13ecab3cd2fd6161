// SPDX-License-Identifier: GPL-2.0-only
/*
 * timeout=600: a buffer that is mapped for a disk goes while requests are in flight: slot, ring, context, dma-buf
 * and process. It stays mapped until the last request is done, and no longer.
 */
#include <signal.h>

#include "premap.h"
#include "ring.h"

#define LENGTH	MIB(4)
#define PIECE	KIB(256)
#define ROUNDS	4

static int disk;

static void queue_all(struct io_uring *ring)
{
	unsigned int i;

	for (i = 0; i < LENGTH / PIECE; i++)
		slot_queue(ring, false, disk, 0, i * PIECE, PIECE, i * PIECE, i);
	expect(io_uring_submit(ring), LENGTH / PIECE);
}

static void results(struct io_uring *ring)
{
	unsigned int i;

	for (i = 0; i < LENGTH / PIECE; i++)
		expect(ring_result(ring, NULL), PIECE);
}

/* While requests use the slot */
static void unregister_meanwhile(struct io_uring *ring, int dev)
{
	expect(slot_unregister(ring, 0), 1);
	close(dev);
	results(ring);
}

static void slot_begin(struct io_uring *ring, struct buffer *buf, int *dev)
{
	*dev = dio_context(buf);
	ring_create(ring, LENGTH / PIECE, 1);
	expect(slot_register(ring, *dev, 0, 0, LENGTH, SLOT_BOTH), 0);
	queue_all(ring);
}

/* The slot is removed, the buffer stays. */
static void unregistered(struct buffer *buf)
{
	struct io_uring ring;
	int dev;

	trying("slot removed, %s", buffer_names[buf->kind]);
	buffer_pattern(buf, 9);
	slot_begin(&ring, buf, &dev);
	unregister_meanwhile(&ring, dev);
	buffer_check(buf, 0, 0, LENGTH, 1);
	io_uring_queue_exit(&ring);
	/* A buffer of LOAD stays mapped until it is freed. */
	premap_expect_tables(buf->kind == BUFFER_LOAD);
}

/* In the end only the requests keep the buffer. */
static void freed(enum buffer_kind kind)
{
	struct io_uring ring;
	struct buffer buf;
	int dev;

	trying("buffer freed, %s", buffer_names[kind]);
	buffer_create(&buf, kind, LENGTH);
	slot_begin(&ring, &buf, &dev);
	buffer_destroy(&buf);
	unregister_meanwhile(&ring, dev);
	io_uring_queue_exit(&ring);
	premap_expect_tables(0);
}

static void ring_closed(enum buffer_kind kind)
{
	struct io_uring ring;
	struct buffer buf;
	int dev;

	trying("ring closed, %s", buffer_names[kind]);
	buffer_create(&buf, kind, LENGTH);
	slot_begin(&ring, &buf, &dev);
	io_uring_queue_exit(&ring);
	close(dev);
	buffer_destroy(&buf);
	premap_expect_tables(0);
}

static void slot_of_child(enum buffer_kind kind)
{
	struct io_uring ring;
	struct buffer buf;
	int dev;

	buffer_create(&buf, kind, LENGTH);
	slot_begin(&ring, &buf, &dev);
	for (;;) {
		results(&ring);
		queue_all(&ring);
	}
}

static void read_of_child(enum buffer_kind kind)
{
	struct dmabuf_dio_rw rw = { .file_fd = disk, .length = LENGTH, .chunk = KIB(256) };
	struct buffer buf;
	int dev;

	buffer_create(&buf, kind, LENGTH);
	dev = dio_context(&buf);
	for (;;)
		expect(dio_read(dev, &rw), 0);
}

static void copy_of_child(enum buffer_kind kind)
{
	struct buffer buf;

	if (kind == BUFFER_LOAD)
		kind = BUFFER_HEAP;
	buffer_create(&buf, kind, LENGTH);
	for (;;) {
		off_t from = 0, to = 0;

		expect(copy_file_range(disk, &from, buf.fd, &to, LENGTH, 0), LENGTH);
	}
}

static void load_of_child(enum buffer_kind kind)
{
	(void)kind;
	for (;;) {
		int dev = dio_open();

		close(dio_load_fd(dev, disk, 0, LENGTH));
		close(dev);
	}
}

static void killed(void (*child)(enum buffer_kind kind), enum buffer_kind kind, unsigned int round)
{
	pid_t pid = spawn();

	if (!pid) {
		child(kind);
		exit(1);
	}
	sleep_ms(150 + round * 37);
	kill_child(pid);
	premap_expect_tables(0);
}

/* LOAD fails, and frees its allocations and mappings. */
static void load_fails(void)
{
	uint64_t end = lseek(disk, 0, SEEK_END);
	struct dmabuf_dio_load load = {
		.file_fd = disk, .fd_flags = O_RDWR, .file_offset = end - MIB(3),
		.length = LENGTH,
	};
	int dev = dio_open();

	trying("LOAD beyond the end");
	expect(dio_load(dev, &load), -ENODATA);
	expect(load.done, MIB(3));
	close(dev);
	premap_expect_tables(0);
}

int main(void)
{
	static const enum buffer_kind kinds[] = { BUFFER_HEAP, BUFFER_UDMABUF, BUFFER_LOAD };
	unsigned int i, round;

	need_premap();
	need_slots();
	file_pattern(raw_disk(), LENGTH, 1);
	disk = file_open(raw_disk(), O_RDWR | O_DIRECT);
	premap_begin(disk);
	load_fails();
	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct buffer buf;

		if (buffer_try(&buf, kinds[i], LENGTH))
			continue;
		for (round = 0; round < ROUNDS; round++)
			unregistered(&buf);
		buffer_destroy(&buf);
		for (round = 0; round < ROUNDS; round++) {
			freed(kinds[i]);
			ring_closed(kinds[i]);
		}
		for (round = 0; round < 3; round++) {
			trying("process killed, %s", buffer_names[kinds[i]]);
			killed(slot_of_child, kinds[i], round);
			killed(read_of_child, kinds[i], round);
			killed(copy_of_child, kinds[i], round);
			killed(load_of_child, kinds[i], round);
		}
	}
	close(disk);
	return 0;
}
