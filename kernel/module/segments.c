// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table of a buffer's pages
 */
#include <linux/io.h>
#include <linux/limits.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "segments.h"

/* bv_len is an unsigned int; stay well below its end. */
#define DIO_SEGMENT_MAX	SZ_1G

/**
 * dio_segments_init - make room for a buffer of single pages
 * @segs: the table
 * @length: length of the buffer in bytes
 *
 * The worst case is reserved so that entries never move while requests point
 * at them; dio_segments_compact() gives back what was not needed.
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

/**
 * dio_segments_compact - merge what is contiguous and shrink the table
 * @segs: the table; no request may be using it
 */
void dio_segments_compact(struct dio_segments *segs)
{
	struct bio_vec *last = segs->vec, *shrunk;
	unsigned int i;

	for (i = 1; i < segs->nr; i++) {
		const struct bio_vec *bv = &segs->vec[i];

		if (page_to_phys(last->bv_page) + last->bv_len ==
		    page_to_phys(bv->bv_page) &&
		    last->bv_len + bv->bv_len <= DIO_SEGMENT_MAX)
			last->bv_len += bv->bv_len;
		else
			*++last = *bv;
	}
	segs->nr = last - segs->vec + 1;

	/* Not being able to shrink costs memory, nothing else. */
	shrunk = kvmalloc_array(segs->nr, sizeof(*shrunk),
				GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!shrunk)
		return;
	memcpy(shrunk, segs->vec, segs->nr * sizeof(*shrunk));
	kvfree(segs->vec);
	segs->vec = shrunk;
	segs->max = segs->nr;
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
