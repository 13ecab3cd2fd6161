// SPDX-License-Identifier: GPL-2.0-only
/* JOIN: a slot over several buffers, across whose borders requests go */
#include "ring.h"

#define BUFFERS	3
#define LENGTH	KIB(192)
#define PIECE	KIB(16)

static int join(struct io_uring *ring, int dev, const int *contexts, unsigned int count,
		unsigned int flags, unsigned int reserved)
{
	struct dmabuf_dio_join arg = {
		.contexts = (uintptr_t)contexts,
		.count = count,
		.index = 0,
		.flags = flags,
		.reserved = reserved,
	};

	return ring_command(ring, dev, DMABUF_DIO_URING_JOIN, &arg, sizeof(arg));
}

static void refused(struct io_uring *ring, int dev, const int *contexts)
{
	int many[DMABUF_DIO_JOIN_MAX + 1];
	int empty = dio_open(), other = file_open("data", O_RDONLY), i;

	trying("bad arguments");
	for (i = 0; i <= DMABUF_DIO_JOIN_MAX; i++)
		many[i] = contexts[0];
	expect(join(ring, dev, contexts, 0, SLOT_BOTH, 0), -EINVAL);
	expect(join(ring, dev, many, DMABUF_DIO_JOIN_MAX + 1, SLOT_BOTH, 0), -EINVAL);
	expect(join(ring, dev, contexts, BUFFERS, 0, 0), -EINVAL);
	expect(join(ring, dev, contexts, BUFFERS, 4, 0), -EINVAL);
	expect(join(ring, dev, contexts, BUFFERS, SLOT_BOTH, 1), -EINVAL);
	expect(join(ring, dev, NULL, BUFFERS, SLOT_BOTH, 0), -EFAULT);
	many[1] = -1;
	expect(join(ring, dev, many, 2, SLOT_BOTH, 0), -EBADF);
	many[1] = other;
	expect(join(ring, dev, many, 2, SLOT_BOTH, 0), -EINVAL);
	many[1] = empty;
	expect(join(ring, dev, many, 2, SLOT_BOTH, 0), -ENOTCONN);
	/* Nothing of that has left a slot behind. */
	expect(slot_unregister(ring, dev, 0), -EBUSY);
	close(other);
	close(empty);
}

static void joined(struct buffer *first)
{
	int file = file_open("data", O_RDONLY | direct_flag(direct_possible()));
	int copy = file_open("copy", O_RDWR | O_CREAT | O_TRUNC | direct_flag(direct_possible()));
	struct buffer others[BUFFERS - 1];
	struct buffer *buffers[BUFFERS] = { first, &others[0], &others[1] };
	int contexts[BUFFERS], dev = dio_open(), i;
	size_t length = first->length;
	struct io_uring ring;
	uint64_t at;

	for (i = 0; i < BUFFERS; i++) {
		if (i)
			buffer_create(buffers[i], first->kind, LENGTH);
		contexts[i] = dio_context(buffers[i]);
	}
	ring_create(&ring, 8, 1);
	refused(&ring, dev, contexts);

	trying("%s", buffer_names[first->kind]);
	expect(join(&ring, dev, contexts, BUFFERS, SLOT_BOTH, 0), 0);
	expect(join(&ring, dev, contexts, BUFFERS, SLOT_BOTH, 0), -EBUSY);
	/* The slot keeps the buffers. */
	for (i = 0; i < BUFFERS; i++)
		close(contexts[i]);
	expect(slot_io(&ring, false, file, 0, 0, BUFFERS * length, 0), BUFFERS * length);
	for (i = 0; i < BUFFERS; i++) {
		buffer_begin(buffers[i]);
		pattern_check(buffers[i]->map, i * length, length, 1);
		buffer_end(buffers[i]);
	}
	/* Pieces that end in the next buffer, and no request beyond the last */
	for (at = 0; at + PIECE <= BUFFERS * length; at += length / 4)
		expect(slot_io(&ring, true, copy, 0, at, PIECE, at), PIECE);
	for (at = 0; at + PIECE <= BUFFERS * length; at += length / 4)
		fd_pattern_check(copy, at, PIECE, 1);
	at = length - PIECE / 2;
	expect(slot_io(&ring, true, copy, 0, at, PIECE, at), PIECE);
	fd_pattern_check(copy, at, PIECE, 1);
	expect(slot_io(&ring, true, copy, 0, BUFFERS * length - PAGE, 2 * PAGE, 0), -EFAULT);
	expect(slot_unregister(&ring, dev, 0), 0);
	io_uring_queue_exit(&ring);
	for (i = 1; i < BUFFERS; i++)
		buffer_destroy(buffers[i]);
	close(dev);
	close(copy);
	close(file);
}

int main(void)
{
	need_slots();
	file_pattern("data", BUFFERS * MIB(2), 1);
	for_each_kind_with_slots(LENGTH, joined);
	return 0;
}
