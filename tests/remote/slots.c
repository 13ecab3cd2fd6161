// SPDX-License-Identifier: GPL-2.0-only
/* READ_FIXED and WRITE_FIXED over slots where results may be short; the test requests the rest again. */
#include "ring.h"

#define LENGTH	(MIB(1) + KIB(4))
#define END	(LENGTH - 1234)		/* of the file */
#define SLOT	KIB(516)

static bool direct;

/* Transfers a range within one slot; returns the length transferred. */
static uint64_t move(struct io_uring *ring, bool write, int file, uint64_t at, uint64_t length)
{
	uint64_t done = 0;

	while (done < length) {
		uint64_t start = at + done;
		int ret = slot_io(ring, write, file, start / SLOT, start % SLOT, length - done, start);

		if (ret < 0)
			fail("request at %llu: %s", (unsigned long long)start, strerror(-ret));
		if (!ret)
			break;
		done += ret;
	}
	return done;
}

static void slots(struct buffer *buf)
{
	int file = file_open("data", O_RDONLY | direct_flag(direct));
	int copy = file_open("copy", O_RDWR | O_CREAT | O_TRUNC | direct_flag(direct));
	int dev = dio_context(buf);
	struct io_uring ring;
	uint64_t at;

	trying("%s, %s", buffer_names[buf->kind], direct ? "direct" : "buffered");
	ring_create(&ring, 8, 2);
	expect(slot_register(&ring, dev, 0, 0, SLOT, SLOT_BOTH), 0);
	expect(slot_register(&ring, dev, 1, SLOT, LENGTH - SLOT, SLOT_BOTH), 0);

	buffer_pattern(buf, 2);
	for (at = 0; at < LENGTH; at += SLOT) {
		uint64_t length = at + SLOT < LENGTH ? SLOT : LENGTH - at;
		uint64_t there = at + length < END ? length : END - at;

		expect(move(&ring, false, file, at, length), there);
	}
	buffer_check(buf, 0, 0, END, 1);

	buffer_pattern(buf, 3);
	for (at = 0; at < LENGTH; at += SLOT) {
		uint64_t length = at + SLOT < LENGTH ? SLOT : LENGTH - at;

		expect(move(&ring, true, copy, at, length), length);
	}
	fd_pattern_check(copy, 0, LENGTH, 3);

	io_uring_queue_exit(&ring);
	close(dev);
	close(copy);
	close(file);
}

int main(void)
{
	need_slots();
	file_pattern("data", END, 1);
	for_each_kind_with_slots(LENGTH, slots);
	direct = direct_possible();
	if (direct)
		for_each_kind_with_slots(LENGTH, slots);
	return 0;
}
