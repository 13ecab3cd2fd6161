// SPDX-License-Identifier: GPL-2.0-only
/* JOIN: a slot over several buffers, across whose borders requests go */
#include "ring.h"

#define BUFFERS	4
#define LENGTH	KIB(192)

/*
 * The requested lengths. The second is a single page, so that requests begin
 * and end beyond it. Buffers of huge pages are longer.
 */
static size_t lengths[BUFFERS] = { LENGTH, 0, KIB(320), KIB(128) };

/* The start of each buffer in the slot, and the end */
static uint64_t starts[BUFFERS + 1];

static void refused(struct io_uring *ring, int dev, const int *contexts)
{
	int many[DMABUF_DIO_JOIN_MAX + 1];
	int empty = dio_open(), other = file_open("data", O_RDONLY), i;

	trying("bad arguments");
	for (i = 0; i <= DMABUF_DIO_JOIN_MAX; i++)
		many[i] = contexts[0];
	expect(slot_join(ring, dev, 0, contexts, 0, SLOT_BOTH, 0), -EINVAL);
	expect(slot_join(ring, dev, 0, many, DMABUF_DIO_JOIN_MAX + 1, SLOT_BOTH, 0), -EINVAL);
	expect(slot_join(ring, dev, 0, contexts, BUFFERS, 0, 0), -EINVAL);
	expect(slot_join(ring, dev, 0, contexts, BUFFERS, 4, 0), -EINVAL);
	expect(slot_join(ring, dev, 0, contexts, BUFFERS, SLOT_BOTH, 1), -EINVAL);
	expect(slot_join(ring, dev, 0, NULL, BUFFERS, SLOT_BOTH, 0), -EFAULT);
	many[1] = -1;
	expect(slot_join(ring, dev, 0, many, 2, SLOT_BOTH, 0), -EBADF);
	many[1] = other;
	expect(slot_join(ring, dev, 0, many, 2, SLOT_BOTH, 0), -EINVAL);
	many[1] = empty;
	expect(slot_join(ring, dev, 0, many, 2, SLOT_BOTH, 0), -ENOTCONN);
	/* None of the failed calls has left a slot behind. */
	expect(slot_io(ring, false, other, 0, 0, 1, 0), -EFAULT);
	close(other);
	close(empty);
}

/* The whole slot, with a pattern that tells where each byte is */
static void slot_fill(struct buffer *const *buffers, uint64_t seed)
{
	unsigned int i;

	for (i = 0; i < BUFFERS; i++) {
		buffer_begin(buffers[i]);
		pattern_fill(buffers[i]->map, starts[i], buffers[i]->length, seed);
		buffer_end(buffers[i]);
	}
}

/* Bytes @from to @to of the slot have the pattern at @position. */
static void slot_check(struct buffer *const *buffers, uint64_t from, uint64_t to,
		       uint64_t position, uint64_t seed)
{
	unsigned int i;

	for (i = 0; i < BUFFERS; i++) {
		uint64_t begin = from > starts[i] ? from : starts[i];
		uint64_t end = to < starts[i + 1] ? to : starts[i + 1];

		if (begin >= end)
			continue;
		buffer_begin(buffers[i]);
		pattern_check(buffers[i]->map + (begin - starts[i]),
			      position + (begin - from), end - begin, seed);
		buffer_end(buffers[i]);
	}
}

/* A request each way changes exactly these bytes, and takes exactly these. */
static void across(struct io_uring *ring, struct buffer *const *buffers, const int *files,
		   uint64_t at, unsigned int count, uint64_t position)
{
	trying("%s, %u bytes at %llu, from %llu", buffer_names[buffers[0]->kind], count,
	       (unsigned long long)at, (unsigned long long)position);
	slot_fill(buffers, 2);
	expect(slot_io(ring, false, files[0], 0, at, count, position), count);
	slot_check(buffers, 0, at, 0, 2);
	slot_check(buffers, at, at + count, position, 1);
	slot_check(buffers, at + count, starts[BUFFERS], at + count, 2);

	slot_fill(buffers, 3);
	check(!ftruncate(files[1], 0));
	expect(slot_io(ring, true, files[1], 0, at, count, at), count);
	fd_pattern_check(files[1], at, count, 3);
}

static void borders(struct io_uring *ring, struct buffer *const *buffers, bool direct)
{
	int files[] = {
		file_open("data", O_RDONLY | direct_flag(direct)),
		file_open("copy", O_RDWR | O_CREAT | O_TRUNC | direct_flag(direct)),
	};
	uint64_t unit = direct ? PAGE : 1, end = starts[BUFFERS];
	unsigned int i;

	across(ring, buffers, files, 0, end, 0);
	across(ring, buffers, files, 0, end, 3 * unit);
	for (i = 1; i < BUFFERS; i++) {
		/* On both sides of a border, up to it, and from it on */
		across(ring, buffers, files, starts[i] - unit, 2 * unit, 5 * unit);
		across(ring, buffers, files, starts[i] - PAGE, 3 * PAGE, 7 * unit);
		across(ring, buffers, files, starts[i] - 2 * unit, 2 * unit, 9 * unit);
		across(ring, buffers, files, starts[i], 2 * unit, 11 * unit);
	}
	across(ring, buffers, files, end - unit, unit, 0);
	slot_fill(buffers, 2);
	expect(slot_io(ring, false, files[0], 0, end - unit, 2 * unit, 0), -EFAULT);
	expect(slot_io(ring, true, files[1], 0, end, unit, 0), -EFAULT);
	slot_check(buffers, 0, end, 0, 2);
	close(files[0]);
	close(files[1]);
}

static void joined(struct buffer *first)
{
	struct buffer others[BUFFERS - 1];
	struct buffer *buffers[BUFFERS] = { first, &others[0], &others[1], &others[2] };
	int contexts[BUFFERS], dev = dio_open(), i;
	struct io_uring ring;

	for (i = 0; i < BUFFERS; i++) {
		if (i)
			buffer_create(buffers[i], first->kind, lengths[i]);
		starts[i + 1] = starts[i] + buffers[i]->length;
		contexts[i] = dio_context(buffers[i]);
	}
	ring_create(&ring, 8, 1);
	refused(&ring, dev, contexts);

	trying("%s", buffer_names[first->kind]);
	expect(slot_join(&ring, dev, 0, contexts, BUFFERS, SLOT_BOTH, 0), 0);
	expect(slot_join(&ring, dev, 0, contexts, BUFFERS, SLOT_BOTH, 0), -EBUSY);
	/* The slot keeps the buffers. */
	for (i = 0; i < BUFFERS; i++)
		close(contexts[i]);
	borders(&ring, buffers, false);
	if (direct_possible())
		borders(&ring, buffers, true);
	expect(slot_unregister(&ring, 0), 1);
	io_uring_queue_exit(&ring);
	for (i = 1; i < BUFFERS; i++)
		buffer_destroy(buffers[i]);
	close(dev);
}

/* A slot is less than 4 GiB, and allows the requested directions that its buffers allow. */
static void limits(void)
{
	int contexts[DMABUF_DIO_JOIN_MAX], dev = dio_open(), file = file_open("data", O_RDWR), i;
	struct dmabuf_dio_load load = { .fd_flags = O_RDONLY, .length = PAGE };
	struct io_uring ring;
	struct buffer buf;

	trying("limits");
	buffer_create(&buf, BUFFER_LOAD, GIB(4) / DMABUF_DIO_JOIN_MAX);
	contexts[0] = dio_context(&buf);
	for (i = 1; i < DMABUF_DIO_JOIN_MAX; i++)
		contexts[i] = contexts[0];
	ring_create(&ring, 8, 1);
	expect(slot_join(&ring, dev, 0, contexts, DMABUF_DIO_JOIN_MAX, SLOT_BOTH, 0), -EINVAL);
	expect(slot_join(&ring, dev, 0, contexts, DMABUF_DIO_JOIN_MAX - 1, SLOT_BOTH, 0), 0);
	expect(slot_unregister(&ring, 0), 1);
	expect(slot_join(&ring, dev, 0, contexts, 2, DMABUF_DIO_SLOT_WRITE, 0), 0);
	expect(slot_io(&ring, false, file, 0, 0, PAGE, 0), -EFAULT);
	expect(slot_unregister(&ring, 0), 1);
	expect(slot_join(&ring, dev, 0, contexts, 2, DMABUF_DIO_SLOT_READ, 0), 0);
	expect(slot_io(&ring, true, file, 0, 0, PAGE, 0), -EFAULT);
	expect(slot_unregister(&ring, 0), 1);

	/* A buffer that its owner may not write */
	load.file_fd = file;
	expect(dio_load(dev, &load), 0);
	contexts[1] = dio_open();
	expect(dio_attach(contexts[1], load.dmabuf_fd), 0);
	expect(slot_join(&ring, dev, 0, contexts, 2, SLOT_BOTH, 0), -EACCES);
	expect(slot_join(&ring, dev, 0, contexts, 2, DMABUF_DIO_SLOT_WRITE, 0), 0);
	expect(slot_unregister(&ring, 0), 1);
	close(contexts[1]);
	close(load.dmabuf_fd);
	io_uring_queue_exit(&ring);
	close(contexts[0]);
	buffer_destroy(&buf);
	close(file);
	close(dev);
}

int main(void)
{
	need_slots();
	lengths[1] = PAGE;
	file_pattern("data", BUFFERS * huge_page() + MIB(1), 1);
	limits();
	for_each_kind_with_slots(LENGTH, joined);
	return 0;
}
