// SPDX-License-Identifier: GPL-2.0-only
/*
 * The buffers over which the module allows slots
 */
#include "ring.h"

bool slots_possible(const struct buffer *buf)
{
	struct io_uring ring;
	int dev, ret;

	if (buffer_synced(buf))
		return true;

	dev = dio_context(buf);
	ring_create(&ring, 1, 1);
	ret = slot_register(&ring, dev, 0, 0, PAGE, SLOT_BOTH);
	expect(ret, -EOPNOTSUPP);
	io_uring_queue_exit(&ring);
	close(dev);
	return false;
}

static void (*slot_test)(struct buffer *buf);

static void test_if_possible(struct buffer *buf)
{
	if (slots_possible(buf))
		slot_test(buf);
}

void for_each_kind_with_slots(size_t length, void (*test)(struct buffer *buf))
{
	slot_test = test;
	for_each_kind(length, test_if_possible);
}
