// SPDX-License-Identifier: GPL-2.0-only
/*
 * io_uring, and slots of the module in it
 */
#include "ring.h"

void ring_create(struct io_uring *ring, unsigned int entries, unsigned int slots)
{
	int ret = io_uring_queue_init(entries, ring, 0);

	if (ret)
		skip("no io_uring: %s", strerror(-ret));
	if (slots)
		expect(io_uring_register_buffers_sparse(ring, slots), 0);
}

void need_slots(void)
{
	if (!dio_has_slots())
		skip("this kernel has no slots");
}

int ring_result(struct io_uring *ring, uint64_t *user_data)
{
	struct io_uring_cqe *cqe;
	int ret;

	do {
		ret = io_uring_wait_cqe(ring, &cqe);
	} while (ret == -EINTR);
	expect(ret, 0);
	ret = cqe->res;
	if (user_data)
		*user_data = cqe->user_data;
	io_uring_cqe_seen(ring, cqe);
	return ret;
}

static struct io_uring_sqe *get_sqe(struct io_uring *ring)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	check(sqe);
	return sqe;
}

int ring_command(struct io_uring *ring, int dev, uint32_t op, const void *arg,
		 uint32_t size)
{
	struct dmabuf_dio_uring_cmd cmd = { .arg = (uintptr_t)arg, .size = size };
	struct io_uring_sqe *sqe = get_sqe(ring);

	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, dev, NULL, 0, 0);
	sqe->cmd_op = op;
	memcpy(sqe->cmd, &cmd, sizeof(cmd));
	expect(io_uring_submit(ring), 1);
	return ring_result(ring, NULL);
}

int slot_register(struct io_uring *ring, int dev, unsigned int index,
		  uint64_t offset, uint64_t length, unsigned int flags)
{
	struct dmabuf_dio_slot slot = {
		.buf_offset = offset,
		.length = length,
		.index = index,
		.flags = flags,
	};

	return ring_command(ring, dev, DMABUF_DIO_URING_REGISTER, &slot, sizeof(slot));
}

int slot_join(struct io_uring *ring, int dev, unsigned int index, const int *contexts,
	      unsigned int count, unsigned int flags, unsigned int reserved)
{
	struct dmabuf_dio_join join = {
		.contexts = (uintptr_t)contexts,
		.count = count,
		.index = index,
		.flags = flags,
		.reserved = reserved,
	};

	return ring_command(ring, dev, DMABUF_DIO_URING_JOIN, &join, sizeof(join));
}

int slot_unregister(struct io_uring *ring, unsigned int index)
{
	struct iovec none = {};

	return io_uring_register_buffers_update_tag(ring, index, &none, NULL, 1);
}

void slot_queue(struct io_uring *ring, bool write, int file, unsigned int index,
		uint64_t slot_offset, unsigned int length, uint64_t position,
		uint64_t user_data)
{
	struct io_uring_sqe *sqe = get_sqe(ring);

	io_uring_prep_rw(write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED, sqe,
			 file, (void *)(uintptr_t)slot_offset, length, position);
	sqe->buf_index = index;
	sqe->user_data = user_data;
}

int slot_io(struct io_uring *ring, bool write, int file, unsigned int index,
	    uint64_t slot_offset, unsigned int length, uint64_t position)
{
	slot_queue(ring, write, file, index, slot_offset, length, position, 0);
	expect(io_uring_submit(ring), 1);
	return ring_result(ring, NULL);
}
