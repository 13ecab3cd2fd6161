// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table of a buffer's pages
 */
#include <linux/limits.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "segments.h"

/**
 * dio_segments_init - make room for a buffer of single pages
 * @segs: the table
 * @length: length of the buffer in bytes
 *
 * The worst case is reserved so that entries never move while requests point
 * at them.
 */
int dio_segments_init(struct dio_segments *segs, u64 length)
{
	u64 nr = DIV_ROUND_UP_ULL(length, PAGE_SIZE);

	if (nr > UINT_MAX)
		return -ENOMEM;

	*segs = (struct dio_segments){ .max = nr };
	segs->vec = kvmalloc_array(nr, sizeof(*segs->vec),
				   GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	return segs->vec ? 0 : -ENOMEM;
}

void dio_segments_add(struct dio_segments *segs, struct page *page,
		      unsigned int length)
{
	if (WARN_ON_ONCE(segs->nr == segs->max))
		return;

	bvec_set_page(&segs->vec[segs->nr++], page, length, 0);
	segs->length += length;
}

void dio_segments_free(struct dio_segments *segs)
{
	kvfree(segs->vec);
	*segs = (struct dio_segments){};
}

/**
 * dio_segments_seek - move a cursor to the vector that holds @offset
 * @segs: the table
 * @cur: where to start; a zeroed cursor stands at the beginning
 * @offset: bytes from the start of the buffer, less than its length
 */
void dio_segments_seek(const struct dio_segments *segs, struct dio_cursor *cur,
		       u64 offset)
{
	if (offset < cur->start)
		*cur = (struct dio_cursor){};

	while (offset - cur->start >= segs->vec[cur->index].bv_len)
		cur->start += segs->vec[cur->index++].bv_len;
}

/**
 * dio_segments_iter - describe part of the buffer to the I/O path
 * @segs: the table; it must stay as it is until the I/O is done
 * @cur: cursor, as for dio_segments_seek()
 * @iter: filled in
 * @direction: ITER_DEST or ITER_SOURCE
 * @offset: bytes from the start of the buffer
 * @count: bytes, at least 1; @offset + @count is within the buffer
 */
void dio_segments_iter(const struct dio_segments *segs, struct dio_cursor *cur,
		       struct iov_iter *iter, unsigned int direction,
		       u64 offset, size_t count)
{
	struct dio_cursor last;

	dio_segments_seek(segs, cur, offset);
	last = *cur;
	dio_segments_seek(segs, &last, offset + count - 1);
	iov_iter_bvec(iter, direction, segs->vec + cur->index,
		      last.index - cur->index + 1, count);
	iter->iov_offset = offset - cur->start;
}

/**
 * dio_segments_zero - zero the end of the buffer
 * @segs: the table
 * @offset: where to start, bytes from the start of the buffer
 */
void dio_segments_zero(const struct dio_segments *segs, u64 offset)
{
	struct dio_cursor cur = {};
	struct iov_iter iter;
	size_t count;

	/* In pieces, as the end may be most of a large buffer. */
	for (; offset < segs->length; offset += count) {
		count = min(segs->length - offset, (u64)SZ_1M);
		dio_segments_iter(segs, &cur, &iter, ITER_DEST, offset, count);
		iov_iter_zero(count, &iter);
		cond_resched();
	}
}
