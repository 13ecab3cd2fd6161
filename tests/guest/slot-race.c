// SPDX-License-Identifier: GPL-2.0-only
/*
 * REGISTER by one of the ring's workers while the same index is emptied: in either order, a slot
 * that remains can be removed, and nothing else keeps the context.
 */
#include <liburing.h>

#include "ring.h"

#define SECONDS	2

static struct io_uring ring;
static int dev;

static void start(const struct dmabuf_dio_slot *slot)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	struct dmabuf_dio_uring_cmd cmd = {
		.arg = (uintptr_t)slot, .size = sizeof(*slot),
	};

	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, dev, NULL, 0, 0);
	sqe->cmd_op = DMABUF_DIO_URING_REGISTER;
	sqe->flags |= IOSQE_ASYNC;
	memcpy(sqe->cmd, &cmd, sizeof(cmd));
	check(io_uring_submit(&ring) == 1);
}

int main(void)
{
	struct dmabuf_dio_slot slot = { .length = PAGE, .flags = SLOT_BOTH };
	unsigned long round;
	struct buffer buf;
	double end;

	need_slots();
	buffer_create(&buf, BUFFER_LOAD, PAGE);
	dev = dio_context(&buf);
	ring_create(&ring, 16, 1);
	end = race_end(SECONDS);
	for (round = 0; seconds() < end; round++) {
		volatile unsigned int wait;
		int ret;

		trying("round %lu", round);
		if (round % 2)
			expect(slot_register(&ring, dev, 0, 0, PAGE, SLOT_BOTH), 0);
		start(&slot);
		for (wait = 0; wait < round * 37 % 3000; wait++)
			;
		expect(slot_unregister(&ring, 0), 1);
		ret = ring_result(&ring, NULL);
		check(!ret || (round % 2 && ret == -EBUSY));

		ret = slot_register(&ring, dev, 0, 0, PAGE, SLOT_BOTH);
		check(!ret || ret == -EBUSY);
		expect(slot_unregister(&ring, 0), 1);
	}
	close(dev);
	module_wait_users(1);	/* the buffer */
	return 0;
}
