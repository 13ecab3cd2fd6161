// SPDX-License-Identifier: GPL-2.0-only
/* Invalid slots, and I/O that a slot does not allow */
#include <sys/mman.h>

#include "odd.h"
#include "ring.h"

#define LENGTH	MIB(4)

/* UNREGISTER, before it was left to io_uring */
#define URING_FORMER	_IOW(DMABUF_DIO_IOC_MAGIC, 0x81, struct dmabuf_dio_slot)

int main(void)
{
	struct dmabuf_dio_uring_cmd cmd = { .size = sizeof(struct dmabuf_dio_slot) };
	struct {
		struct dmabuf_dio_slot slot;
		unsigned char more[40];
	} longer = { .slot = { .length = PAGE, .index = 3, .flags = SLOT_BOTH } };
	struct dmabuf_dio_slot *large;
	struct io_uring ring;
	struct io_uring_sqe *sqe;
	struct buffer buf;
	struct iovec iov;
	int dev, empty, file, odd;

	need_slots();
	file_pattern("data", LENGTH, 1);
	file = file_open("data", O_RDWR);
	buffer_create(&buf, BUFFER_LOAD, LENGTH);
	buffer_pattern(&buf, 2);
	dev = dio_context(&buf);
	empty = dio_open();
	ring_create(&ring, 8, 4);

	expect(slot_register(&ring, empty, 0, 0, PAGE, SLOT_BOTH), -ENOTCONN);
	expect(slot_register(&ring, dev, 4, 0, PAGE, SLOT_BOTH), -EINVAL);
	expect(slot_register(&ring, dev, UINT32_MAX, 0, PAGE, SLOT_BOTH), -EINVAL);
	expect(slot_register(&ring, dev, 0, 0, PAGE, 0), -EINVAL);
	expect(slot_register(&ring, dev, 0, 0, PAGE, 4), -EINVAL);
	expect(slot_register(&ring, dev, 0, 0, PAGE, SLOT_BOTH | 0x80000000), -EINVAL);
	expect(slot_register(&ring, dev, 0, 0, 0, SLOT_BOTH), -EINVAL);
	expect(slot_register(&ring, dev, 0, 1, PAGE, SLOT_BOTH), -EINVAL);
	expect(slot_register(&ring, dev, 0, 512, PAGE, SLOT_BOTH), -EINVAL);
	expect(slot_register(&ring, dev, 0, 0, GIB(4), SLOT_BOTH), -EINVAL);
	expect(slot_register(&ring, dev, 0, 0, UINT64_MAX, SLOT_BOTH), -EINVAL);
	expect(slot_register(&ring, dev, 0, 0, LENGTH + 1, SLOT_BOTH), -ERANGE);
	expect(slot_register(&ring, dev, 0, LENGTH, 1, SLOT_BOTH), -ERANGE);
	expect(slot_register(&ring, dev, 0, LENGTH - PAGE, PAGE + 1, SLOT_BOTH), -ERANGE);
	expect(slot_register(&ring, dev, 0, -PAGE, PAGE, SLOT_BOTH), -ERANGE);
	/* None of the failed calls has left a slot behind. */
	expect(slot_io(&ring, false, file, 0, 0, PAGE, 0), -EFAULT);
	expect(module_users("dmabuf_dio"), 3);	/* two contexts, one buffer */

	/* An index in use, directions, and the end of the slot */
	expect(slot_register(&ring, dev, 0, 0, LENGTH, DMABUF_DIO_SLOT_READ), 0);
	expect(slot_register(&ring, dev, 0, 0, LENGTH, SLOT_BOTH), -EBUSY);
	expect(slot_register(&ring, dev, 1, PAGE, 3 * PAGE, DMABUF_DIO_SLOT_WRITE), 0);
	expect(slot_io(&ring, true, file, 0, 0, PAGE, 0), -EFAULT);
	expect(slot_io(&ring, false, file, 1, 0, PAGE, 0), -EFAULT);
	expect(slot_io(&ring, true, file, 1, 2 * PAGE, PAGE + 1, 0), -EFAULT);
	expect(slot_io(&ring, true, file, 1, 3 * PAGE, 1, 0), -EFAULT);
	expect(slot_io(&ring, true, file, 1, -1, 1, 0), -EFAULT);
	expect(slot_io(&ring, true, file, 1, UINT64_MAX - PAGE, 3 * PAGE, 0), -EFAULT);
	expect(slot_io(&ring, false, file, 2, 0, PAGE, 0), -EFAULT);
	pattern_check(buf.map, 0, LENGTH, 2);
	fd_pattern_check(file, 0, LENGTH, 1);
	expect(slot_io(&ring, true, file, 1, 0, 3 * PAGE, 0), 3 * PAGE);
	expect(slot_io(&ring, false, file, 0, 0, LENGTH, 0), LENGTH);
	pattern_check(buf.map, PAGE, 3 * PAGE, 2);
	pattern_check(buf.map + 3 * PAGE, 3 * PAGE, LENGTH - 3 * PAGE, 1);

	/* A buffer of the ring's own, and one of another driver, are not replaced. */
	iov = (struct iovec){ allocate(PAGE), PAGE };
	expect(io_uring_register_buffers_update_tag(&ring, 2, &iov, NULL, 1), 1);
	expect(slot_register(&ring, dev, 2, 0, PAGE, SLOT_BOTH), -EBUSY);
	expect(slot_unregister(&ring, 2), 1);
	odd = open(ODD_DEVICE, O_RDWR | O_CLOEXEC);
	check(odd >= 0);
	expect(ring_command(&ring, odd, ODD_SLOT, (void *)2L, 0), 0);
	expect(slot_register(&ring, dev, 2, 0, PAGE, SLOT_BOTH), -EBUSY);
	expect(slot_io(&ring, false, file, 2, 0, PAGE, 0), PAGE);
	close(odd);

	/* Structures of other versions, and invalid ones */
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_REGISTER, NULL, sizeof(*large)), -EFAULT);
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_REGISTER, (void *)-8L, sizeof(*large)),
	       -EFAULT);
	longer.more[7] = 1;
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_REGISTER, &longer, sizeof(longer)),
	       -E2BIG);
	longer.more[7] = 0;
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_REGISTER, &longer, sizeof(longer)), 0);
	expect(slot_unregister(&ring, 3), 1);
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_REGISTER, &longer,
			    offsetof(struct dmabuf_dio_slot, flags)), -EINVAL);
	expect(ring_command(&ring, dev, 0, &longer, sizeof(longer)), -ENOTTY);
	expect(ring_command(&ring, dev, DMABUF_DIO_IOC_ATTACH, &longer, sizeof(longer)), -ENOTTY);
	expect(ring_command(&ring, dev, URING_FORMER, &longer, sizeof(longer.slot)), -ENOTTY);

	/* A longer structure is checked in full, so its size is limited. */
	large = allocate(2 * PAGE);
	memset(large, 0, 2 * PAGE);
	*large = longer.slot;
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_REGISTER, large, PAGE + 1), -E2BIG);
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_REGISTER, large, 2 * PAGE), -E2BIG);
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_REGISTER, NULL, UINT32_MAX), -E2BIG);
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_REGISTER, large, PAGE), 0);

	cmd.arg = (uintptr_t)&longer;
	cmd.reserved = 1;
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, dev, NULL, 0, 0);
	sqe->cmd_op = DMABUF_DIO_URING_REGISTER;
	memcpy(sqe->cmd, &cmd, sizeof(cmd));
	expect(slot_unregister(&ring, 3), 1);
	expect(io_uring_submit(&ring), 1);
	expect(ring_result(&ring, NULL), -EINVAL);

	/* A buffer of the ring's own replaces a slot. */
	iov = (struct iovec){ allocate(PAGE), PAGE };
	expect(io_uring_register_buffers_update_tag(&ring, 1, &iov, NULL, 1), 1);
	expect(slot_io(&ring, false, file, 1, (uintptr_t)iov.iov_base, PAGE, 5 * PAGE), PAGE);
	pattern_check(iov.iov_base, 5 * PAGE, PAGE, 1);

	/* An index is emptied once or often, but not beyond the table. */
	expect(slot_unregister(&ring, 0), 1);
	expect(slot_unregister(&ring, 0), 1);
	expect(slot_unregister(&ring, 4), -EINVAL);
	expect(slot_io(&ring, false, file, 0, 0, PAGE, 0), -EFAULT);
	io_uring_queue_exit(&ring);
	return 0;
}
