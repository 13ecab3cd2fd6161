// SPDX-License-Identifier: GPL-2.0-only
/* READ_FIXED and WRITE_FIXED over slots: any depth, any offset, several slots */
#include "ring.h"

#define LENGTH	MIB(4)
#define PIECE	KIB(16)
#define SLOTS	4

static bool direct;

/* Blocks in scattered order, @depth of them in flight */
static void transfer(struct io_uring *ring, bool write, int file, unsigned int depth)
{
	unsigned int count = LENGTH / PIECE, started = 0, ended = 0;
	uint64_t slot = LENGTH / SLOTS;

	while (ended < count) {
		while (started < count && started - ended < depth) {
			uint64_t at = (uint64_t)(started * 37 % count) * PIECE;

			slot_queue(ring, write, file, at / slot, at % slot, PIECE,
				   at, started++);
		}
		check(io_uring_submit(ring) >= 0);
		expect(ring_result(ring, NULL), PIECE);
		ended++;
	}
}

static void slots(struct buffer *buf)
{
	static const unsigned int depths[] = { 1, 2, 8, 64 };
	int file = file_open("data", O_RDONLY | direct_flag(direct));
	int copy = file_open("copy", O_RDWR | O_CREAT | O_TRUNC | direct_flag(direct));
	int dev = dio_context(buf);
	struct io_uring ring;
	unsigned int i, n;

	ring_create(&ring, 64, SLOTS);
	for (i = 0; i < SLOTS; i++)
		expect(slot_register(&ring, dev, i, i * LENGTH / SLOTS, LENGTH / SLOTS,
				     SLOT_BOTH), 0);

	for (i = 0; i < ARRAY_SIZE(depths); i++) {
		trying("%s, %s, depth %u", buffer_names[buf->kind],
		       direct ? "direct" : "buffered", depths[i]);
		buffer_pattern(buf, 2);
		transfer(&ring, false, file, depths[i]);
		buffer_check(buf, 0, 0, LENGTH, 1);
		check(!ftruncate(copy, 0));
		transfer(&ring, true, copy, depths[i]);
		fd_pattern_check(copy, 0, LENGTH, 1);
	}

	/* Any offset and length: exactly these bytes change */
	for (i = 0; i < 24; i++) {
		static uint64_t state = 4711;
		unsigned int unit = direct ? 4096 : 1;
		unsigned int at = random_below(&state, LENGTH / SLOTS / 2 / unit) * unit;
		unsigned int count = (1 + random_below(&state, KIB(256) / unit)) * unit;
		unsigned int from = random_below(&state, LENGTH / 2 / unit) * unit;
		uint64_t start;

		n = random_below(&state, SLOTS);
		start = n * LENGTH / SLOTS + at;
		trying("%s, %s, slot %u, offset %u, length %u, from %u",
		       buffer_names[buf->kind], direct ? "direct" : "buffered",
		       n, at, count, from);
		buffer_pattern(buf, 3);
		expect(slot_io(&ring, false, file, n, at, count, from), count);
		buffer_begin(buf);
		pattern_check(buf->map, 0, start, 3);
		pattern_check(buf->map + start, from, count, 1);
		pattern_check(buf->map + start + count, start + count,
			      buf->length - start - count, 3);
		buffer_end(buf);

		buffer_pattern(buf, 4 + i);
		expect(slot_io(&ring, true, copy, n, at, count, from), count);
		buffer_pattern(buf, 3);
		expect(slot_io(&ring, false, copy, n, at, count, from), count);
		pattern_check(buf->map + start, start, count, 4 + i);
	}

	/* The end of the file */
	expect(slot_io(&ring, false, file, 0, 0, MIB(1), LENGTH - PIECE), PIECE);
	expect(slot_io(&ring, false, file, 0, 0, MIB(1), LENGTH), 0);

	/* Two overlapping slots */
	trying("%s, overlapping slots", buffer_names[buf->kind]);
	expect(slot_unregister(&ring, 1), 1);
	expect(slot_register(&ring, dev, 1, 3 * PAGE, LENGTH - 3 * PAGE - 17, SLOT_BOTH), 0);
	buffer_pattern(buf, 5);
	expect(slot_io(&ring, false, file, 1, 0, KIB(512), PAGE), KIB(512));
	pattern_check(buf->map, 0, 3 * PAGE, 5);
	pattern_check(buf->map + 3 * PAGE, PAGE, KIB(512), 1);
	expect(slot_io(&ring, false, file, 0, 3 * PAGE, KIB(512), 0), KIB(512));
	pattern_check(buf->map + 3 * PAGE, 0, KIB(512), 1);
	/* The last byte of a slot that ends inside a page */
	if (!direct) {
		buffer_pattern(buf, 5);
		expect(slot_io(&ring, false, file, 1, LENGTH - 3 * PAGE - 17 - 100, 100, 50), 100);
		pattern_check(buf->map, 0, LENGTH - 117, 5);
		pattern_check(buf->map + LENGTH - 117, 50, 100, 1);
		pattern_check(buf->map + LENGTH - 17, LENGTH - 17, 17, 5);
	}

	io_uring_queue_exit(&ring);
	close(copy);
	close(file);
	close(dev);
}

int main(void)
{
	need_slots();
	file_pattern("data", LENGTH, 1);
	for (;;) {
		for_each_kind_with_slots(LENGTH, slots);
		if (direct || !direct_possible())
			return 0;
		direct = true;
	}
}
