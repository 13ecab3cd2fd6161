// SPDX-License-Identifier: GPL-2.0-only
/*
 * Loans between exporters, on kernels whose dma-bufs have the callback for them
 */
#include <linux/bvec.h>
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "buffer.h"
#include "compact.h"
#include "lend.h"

#ifdef HAVE_DMA_BUF_LEND

/* What is borrowed at a time: there has to be room for its single pages. */
#define DIO_LOAN	SZ_4M

/**
 * dio_borrow - let the exporter tell what pages it lends
 * @dmabuf: the caller holds a reference for as long as it uses the table
 * @segs: filled in; dio_segments_free() frees it
 *
 * Return: 0 or -errno; EOPNOTSUPP if the exporter does not lend.
 */
int dio_borrow(struct dma_buf *dmabuf, struct dio_segments *segs)
{
	struct dma_buf_loan loan = {};
	u64 offset, length;
	unsigned int i;
	int ret;

	if (!dmabuf->ops->lend)
		return -EOPNOTSUPP;

	loan.vecs = kvmalloc_array(DIO_LOAN >> PAGE_SHIFT, sizeof(*loan.vecs),
				   GFP_KERNEL);
	if (!loan.vecs)
		return -ENOMEM;
	ret = dio_segments_init(segs, dmabuf->size);
	if (ret)
		goto out_free;

	for (offset = 0; offset < dmabuf->size; offset += length) {
		length = min_t(u64, dmabuf->size - offset, DIO_LOAN);
		loan.nr = 0;
		ret = dmabuf->ops->lend(dmabuf, offset, length, &loan);
		if (ret) {
			dio_segments_free(segs);
			goto out_free;
		}
		for (i = 0; i < loan.nr; i++)
			dio_segments_add(segs, loan.vecs[i].bv_page,
					 loan.vecs[i].bv_len);
		cond_resched();
	}
	dio_segments_compact(segs);
out_free:
	kvfree(loan.vecs);
	return ret;
}

/* The callback of our own buffers. */
int dio_buffer_lend(struct dma_buf *dmabuf, u64 offset, size_t length,
		    struct dma_buf_loan *loan)
{
	const struct dio_segments *segs = dio_buffer_segments(dmabuf);
	struct dio_cursor cur = {
		.index = (unsigned long)loan->pos,
		.start = loan->pos_offset,
	};
	const struct bio_vec *bv;
	u64 skip;
	size_t part;

	for (; length; offset += part, length -= part) {
		dio_segments_seek(segs, &cur, offset);
		bv = &segs->vec[cur.index];
		skip = offset - cur.start;
		part = min_t(u64, length, bv->bv_len - skip);
		dma_buf_lend_add(loan, bv->bv_page, skip, part);
	}
	loan->pos = (void *)(unsigned long)cur.index;
	loan->pos_offset = cur.start;
	return 0;
}

#else

int dio_borrow(struct dma_buf *dmabuf, struct dio_segments *segs)
{
	return -EOPNOTSUPP;
}

#endif
