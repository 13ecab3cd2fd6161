// SPDX-License-Identifier: GPL-2.0-only
/*
 * Loans between exporters, on kernels whose exporters carry out file I/O
 */
#include <linux/bvec.h>
#include <linux/err.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/pfn.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include <linux/dmabuf_dio.h>

#include "buffer.h"
#include "exporter.h"
#include "lend.h"

#ifdef HAVE_DMA_BUF_LOAN

/* Bytes borrowed at a time: the table needs room for as many single pages. */
#define DBX_LOAN	SZ_4M

static bool dbx_vector_lendable(const struct bio_vec *bv, u32 *refusal)
{
	struct page *page = bv->bv_page;
	struct page *end = page + PFN_UP(bv->bv_len);
	unsigned long count;

	for (; page < end; page += count) {
		count = dbx_pages_lendable(page, refusal);
		if (!count)
			return false;
	}
	return true;
}

static int dbx_borrow_range(struct dma_buf *dmabuf, struct dbx_segments *segs,
			    const struct dma_buf_file_ops *ops,
			    struct dma_buf_file_pages *pages, u64 offset,
			    unsigned int length, u32 *refusal)
{
	unsigned int room = segs->nr + PFN_UP(length);
	unsigned int i;
	int ret;

	if (room > segs->max) {
		ret = dbx_segments_reserve(segs, max(room, 2 * segs->max));
		if (ret)
			return ret;
	}
	pages->vecs = segs->vec + segs->nr;
	pages->nr = 0;
	ops->pages(dmabuf, offset, length, pages);
	for (i = 0; i < pages->nr; i++) {
		if (!dbx_vector_lendable(&pages->vecs[i], refusal))
			return -EOPNOTSUPP;
		segs->length += pages->vecs[i].bv_len;
	}
	segs->nr += pages->nr;
	return 0;
}

/**
 * dbx_borrow - get the pages of a dma-buf from an exporter that lends
 * @dmabuf: a dma-buf whose exporter lends. The caller holds a reference while
 *	it uses the table
 * @segs: filled in; dbx_segments_free() frees it
 * @ops: set to what describes and synchronises its memory
 * @refusal: set to DMABUF_DIO_REFUSED_* with -EOPNOTSUPP
 *
 * Return: 0 or -errno; EOPNOTSUPP if the exporter does not lend this buffer.
 */
int dbx_borrow(struct dma_buf *dmabuf, struct dbx_segments *segs,
	       const struct dma_buf_file_ops **ops, u32 *refusal)
{
	struct dma_buf_file_pages pages = {};
	unsigned int length;
	u64 offset;
	int ret;

	ret = dma_buf_loan(dmabuf, ops);
	if (ret) {
		if (ret == -EOPNOTSUPP)
			*refusal = DMABUF_DIO_REFUSED_EXPORTER;
		return ret;
	}
	for (offset = 0; offset < dmabuf->size; offset += length) {
		length = min_t(u64, dmabuf->size - offset, DBX_LOAN);
		ret = fatal_signal_pending(current) ? -EINTR :
			dbx_borrow_range(dmabuf, segs, *ops, &pages, offset,
					 length, refusal);
		if (ret) {
			dbx_segments_free(segs);
			return ret;
		}
		cond_resched();
	}
	dbx_segments_compact(segs);
	return 0;
}

static void dbx_buffer_pages(struct dma_buf *dmabuf, u64 offset, size_t length,
			     struct dma_buf_file_pages *pages)
{
	const struct dbx_segments *segs = dbx_buffer_segments(dmabuf);
	struct dbx_cursor cur = {
		.index = (unsigned long)pages->pos,
		.start = pages->pos_offset,
	};
	const struct bio_vec *bv;
	u64 skip;
	size_t part;

	for (; length; offset += part, length -= part) {
		dbx_segments_seek(segs, &cur, offset);
		bv = &segs->vec[cur.index];
		skip = offset - cur.start;
		part = min_t(u64, length, bv->bv_len - skip);
		dma_buf_file_add(pages, bv->bv_page, skip, part);
	}
	pages->pos = (void *)(unsigned long)cur.index;
	pages->pos_offset = cur.start;
}

static const struct dma_buf_file_ops dbx_buffer_file_ops = {
	.pages = dbx_buffer_pages,
	.sync = dbx_buffer_sync,
};

/* The callback of our own buffers */
ssize_t dbx_buffer_rw_file(struct dma_buf *dmabuf, const struct dma_buf_rw *rw)
{
	return dma_buf_file_rw(dmabuf, rw, &dbx_buffer_file_ops);
}

#else

/* Exporters with file I/O of their own that do not lend: copy_file_range() */
int dbx_borrow(struct dma_buf *dmabuf, struct dbx_segments *segs,
	       const struct dma_buf_file_ops **ops, u32 *refusal)
{
	*refusal = DMABUF_DIO_REFUSED_EXPORTER;
	return -EOPNOTSUPP;
}

#endif
