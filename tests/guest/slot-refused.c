// SPDX-License-Identifier: GPL-2.0-only
/* Invalid slots, and I/O that a slot does not allow */
#include <sys/mman.h>

#include "odd.h"
#include "ring.h"

#define LENGTH	MIB(4)

int main(void)
{
	struct dmabuf_dio_uring_cmd cmd = { .size = sizeof(struct dmabuf_dio_slot) };
	struct {
		struct dmabuf_dio_slot slot;
		unsigned char more[40];
	} longer = { .slot = { .length = PAGE, .index = 3, .flags = SLOT_BOTH } };
	struct dmabuf_dio_slot slot = { .index = 3 }, *large;
	struct io_uring ring, other;
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
	/* The slot is empty. */
	expect(slot_unregister(&ring, dev, 0), -EBUSY);
	expect(slot_unregister(&ring, dev, 100), -EBUSY);
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

	/* A buffer of the ring's own is not ours to remove. */
	iov = (struct iovec){ allocate(PAGE), PAGE };
	expect(io_uring_register_buffers_update_tag(&ring, 2, &iov, NULL, 1), 1);
	expect(slot_unregister(&ring, dev, 2), -EBUSY);
	expect(slot_register(&ring, dev, 2, 0, PAGE, SLOT_BOTH), -EBUSY);

	/* Neither is another driver's. */
	iov = (struct iovec){};
	expect(io_uring_register_buffers_update_tag(&ring, 2, &iov, NULL, 1), 1);
	odd = open(ODD_DEVICE, O_RDWR | O_CLOEXEC);
	check(odd >= 0);
	expect(ring_command(&ring, odd, ODD_SLOT, (void *)2L, 0), 0);
	expect(slot_unregister(&ring, dev, 2), -EBUSY);
	expect(slot_io(&ring, false, file, 2, 0, PAGE, 0), PAGE);
	close(odd);

	/* Structures of other versions, and invalid ones */
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_REGISTER, NULL, sizeof(slot)), -EFAULT);
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_REGISTER, (void *)-8L, sizeof(slot)),
	       -EFAULT);
	longer.more[7] = 1;
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_REGISTER, &longer, sizeof(longer)),
	       -E2BIG);
	longer.more[7] = 0;
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_REGISTER, &longer, sizeof(longer)), 0);
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_UNREGISTER, &slot,
			    offsetof(struct dmabuf_dio_slot, flags)), 0);
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_UNREGISTER, &slot, sizeof(slot)), -EBUSY);
	slot.length = 1;
	expect(slot_register(&ring, dev, 3, 0, PAGE, SLOT_BOTH), 0);
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_UNREGISTER, &slot, sizeof(slot)), -EINVAL);
	expect(ring_command(&ring, dev, 0, &slot, sizeof(slot)), -ENOTTY);
	expect(ring_command(&ring, dev, DMABUF_DIO_IOC_ATTACH, &slot, sizeof(slot)), -ENOTTY);

	/* A longer structure is checked in full, so its size is limited. */
	large = allocate(2 * PAGE);
	memset(large, 0, 2 * PAGE);
	large->index = 3;
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_UNREGISTER, large, PAGE + 1), -E2BIG);
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_UNREGISTER, large, 2 * PAGE), -E2BIG);
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_UNREGISTER, NULL, UINT32_MAX), -E2BIG);
	expect(ring_command(&ring, dev, DMABUF_DIO_URING_UNREGISTER, large, PAGE), 0);
	expect(slot_register(&ring, dev, 3, 0, PAGE, SLOT_BOTH), 0);

	cmd.arg = (uintptr_t)&slot;
	cmd.reserved = 1;
	slot.length = 0;
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, dev, NULL, 0, 0);
	sqe->cmd_op = DMABUF_DIO_URING_UNREGISTER;
	memcpy(sqe->cmd, &cmd, sizeof(cmd));
	expect(io_uring_submit(&ring), 1);
	expect(ring_result(&ring, NULL), -EINVAL);

	/* A foreign buffer that has replaced one of our slots is not ours to remove. */
	iov.iov_base = NULL, iov.iov_len = 0;
	expect(io_uring_register_buffers_update_tag(&ring, 1, &iov, NULL, 1), 1);
	iov = (struct iovec){ allocate(PAGE), PAGE };
	expect(io_uring_register_buffers_update_tag(&ring, 1, &iov, NULL, 1), 1);
	expect(slot_unregister(&ring, dev, 1), -EBUSY);
	expect(slot_io(&ring, false, file, 1, (uintptr_t)iov.iov_base, PAGE, 5 * PAGE), PAGE);
	pattern_check(iov.iov_base, 5 * PAGE, PAGE, 1);

	/* A slot with the same index in another ring */
	ring_create(&other, 8, 4);
	expect(slot_unregister(&other, dev, 3), -EBUSY);
	expect(slot_register(&other, empty, 3, 0, PAGE, SLOT_BOTH), -ENOTCONN);
	expect(slot_unregister(&other, dev, 3), -EBUSY);
	io_uring_queue_exit(&other);

	/* Any context can remove any slot, as can any task with access to the ring. */
	expect(slot_unregister(&ring, empty, 3), 0);
	expect(slot_unregister(&ring, dev, 0), 0);
	expect(slot_io(&ring, false, file, 0, 0, PAGE, 0), -EFAULT);
	io_uring_queue_exit(&ring);
	return 0;
}
