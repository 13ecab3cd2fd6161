// SPDX-License-Identifier: GPL-2.0-only
/* On kernels without slots the commands report that. */
#include "ring.h"

int main(void)
{
	struct io_uring ring;
	struct buffer buf;
	int dev;

	if (dio_has_slots())
		skip("this kernel has slots");
	buffer_create(&buf, BUFFER_LOAD, MIB(1));
	dev = dio_context(&buf);
	ring_create(&ring, 8, 4);
	expect(slot_register(&ring, dev, 0, 0, PAGE, SLOT_BOTH), -EOPNOTSUPP);
	expect(ring_command(&ring, dev, 0, NULL, 0), -EOPNOTSUPP);
	io_uring_queue_exit(&ring);
	return 0;
}
