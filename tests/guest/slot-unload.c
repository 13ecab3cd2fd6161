// SPDX-License-Identifier: GPL-2.0-only
/*
 * The module is unloaded as soon as it is unused. The kernel thread that has
 * ended a ring may still be returning from its code then
 */
#include "ring.h"

#define LENGTH	MIB(2)

/* Only the ring holds the slot, and the process ends with it. */
static void leave_slot(void)
{
	int dev = dio_open(), file = file_open("data", O_RDONLY);
	int fd = dio_load_fd(dev, file, 0, LENGTH);
	struct io_uring ring;

	expect(dio_attach(dev, fd), 0);
	ring_create(&ring, 8, 1);
	expect(slot_register(&ring, dev, 0, 0, LENGTH, SLOT_BOTH), 0);
	exit(0);
}

int main(void)
{
	unsigned int round;
	pid_t pid;
	int ret;

	need_slots();
	file_pattern("data", LENGTH, 1);
	for (round = 0; round < 10; round++) {
		trying("round %u", round);
		pid = spawn();
		if (!pid)
			leave_slot();
		reap(pid);
		/* There is no pause here, because a race is tested. A limit in tries would be one in time. */
		while ((ret = module_remove("dmabuf_dio")) == -EAGAIN)
			continue;
		expect(ret, 0);
		sleep_ms(100);
		expect(module_insert("dmabuf_dio", ""), 0);
	}
	return 0;
}
