// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table of a buffer's pages
 */
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "segments.h"
#ifdef HAVE_BIO_PREMAP
#include "premap.h"
#endif

/* Enough for 256 MiB in large folios */
#define DBX_SEGMENTS_MIN	64

/* Requests in flight may point into any of them. */
struct dbx_array {
	struct dbx_array *older;
	struct bio_vec vec[];
};

/**
 * dbx_segments_reserve - make room for vectors
 * @segs: the table, zeroed at first
 * @max: number of vectors to make room for
 *
 * The present vectors are copied. Requests in flight may use the older copies
 * until dbx_segments_free().
 *
 * Return: 0 or -ENOMEM, also at the limit of a memory cgroup: the OOM killer is
 * not invoked.
 */
int dbx_segments_reserve(struct dbx_segments *segs, unsigned int max)
{
	struct dbx_array *array;

	array = kvmalloc(struct_size(array, vec, max), GFP_KERNEL_ACCOUNT |
			 __GFP_NOWARN | __GFP_RETRY_MAYFAIL);
	if (!array)
		return -ENOMEM;

	array->older = segs->array;
	if (segs->nr)
		memcpy(array->vec, segs->vec, segs->nr * sizeof(*segs->vec));
	segs->array = array;
	segs->vec = array->vec;
	segs->max = max;
	return 0;
}

/**
 * dbx_segments_add - add contiguous pages at the end
 * @segs: the table, zeroed at first
 * @page: first page
 * @length: bytes
 *
 * Return: 0 or -ENOMEM.
 */
int dbx_segments_add(struct dbx_segments *segs, struct page *page,
		     unsigned int length)
{
	unsigned int max;
	int ret;

	if (segs->nr == segs->max) {
		max = segs->max ? : DBX_SEGMENTS_MIN / 2;
		if (check_mul_overflow(max, 2, &max))
			return -ENOMEM;
		ret = dbx_segments_reserve(segs, max);
		if (ret)
			return ret;
	}
	bvec_set_page(&segs->vec[segs->nr++], page, length, 0);
	segs->length += length;
	return 0;
}

void dbx_segments_free(struct dbx_segments *segs)
{
	struct dbx_array *array = segs->array;

#ifdef HAVE_BIO_PREMAP
	dbx_premap_drop(segs);
#endif
	while (array) {
		struct dbx_array *older = array->older;

		kvfree(array);
		array = older;
	}
	*segs = (struct dbx_segments){};
}

/**
 * dbx_segments_seek - move a cursor to the vector that contains @offset
 * @segs: the table
 * @cur: where to start; a zeroed cursor is at the beginning
 * @offset: bytes from the start of the buffer, less than its length
 */
void dbx_segments_seek(const struct dbx_segments *segs, struct dbx_cursor *cur,
		       u64 offset)
{
	if (offset < cur->start)
		*cur = (struct dbx_cursor){};

	while (offset - cur->start >= segs->vec[cur->index].bv_len)
		cur->start += segs->vec[cur->index++].bv_len;
}

/**
 * dbx_segments_iter - describe part of the buffer to the I/O path
 * @segs: the table; it must stay as it is until the I/O is done
 * @cur: cursor, as for dbx_segments_seek()
 * @iter: filled in
 * @direction: ITER_DEST or ITER_SOURCE
 * @offset: bytes from the start of the buffer
 * @count: bytes, at least 1; @offset + @count is within the buffer
 */
void dbx_segments_iter(const struct dbx_segments *segs, struct dbx_cursor *cur,
		       struct iov_iter *iter, unsigned int direction,
		       u64 offset, size_t count)
{
	struct dbx_cursor last;

	dbx_segments_seek(segs, cur, offset);
	last = *cur;
	dbx_segments_seek(segs, &last, offset + count - 1);
	iov_iter_bvec(iter, direction, segs->vec + cur->index,
		      last.index - cur->index + 1, count);
	iter->iov_offset = offset - cur->start;
}

/**
 * dbx_segments_zero - zero part of the buffer
 * @segs: the table
 * @offset: where to start, bytes from the start of the buffer
 * @length: bytes; @offset + @length is within the buffer
 */
void dbx_segments_zero(const struct dbx_segments *segs, u64 offset, u64 length)
{
	struct dbx_cursor cur = {};
	struct iov_iter iter;
	size_t count;

	for (; length; offset += count, length -= count) {
		count = min_t(u64, length, SZ_1M);
		dbx_segments_iter(segs, &cur, &iter, ITER_DEST, offset, count);
		iov_iter_zero(count, &iter);
		cond_resched();
	}
}
