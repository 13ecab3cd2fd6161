/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_LEND_H
#define DMABUF_DIO_LEND_H

#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#ifdef HAVE_DMA_BUF_LOAN
#include <linux/dma-buf-file.h>
#endif

#include "segments.h"

struct dma_buf_file_ops;

bool dbx_segments_extend(struct dbx_segments *segs, const struct page *page,
			 unsigned int length);
void dbx_segments_compact(struct dbx_segments *segs);

/*
 * Does the exporter carry out file I/O itself? Then its pages are only borrowed
 * by a loan, which takes turns with the file I/O of others.
 */
static inline bool dbx_lends(const struct dma_buf *dmabuf)
{
#ifdef HAVE_DMA_BUF_RW_FILE
	return dmabuf->ops->rw_file;
#else
	return false;
#endif
}

int dbx_borrow(struct dma_buf *dmabuf, struct dbx_segments *segs,
	       const struct dma_buf_file_ops **ops, u32 *refusal);

/* Like dma_sync_sgtable_for_cpu(), except for pages that file I/O stores into */
static inline void dbx_sync_rest(struct dma_buf *dmabuf, bool storing,
				 struct device *dev, struct sg_table *table,
				 enum dma_data_direction dir)
{
#ifdef HAVE_DMA_BUF_LOAN
	dma_buf_file_sync_rest(dmabuf, dev, table, dir);
#else
	if (!storing)
		dma_sync_sgtable_for_cpu(dev, table, dir);
#endif
}

/* Like dma_unmap_sgtable(), but keeps the newer data of file I/O. */
static inline void dbx_unmap(struct dma_buf *dmabuf, bool storing,
			     struct device *dev, struct sg_table *table,
			     enum dma_data_direction dir)
{
#ifdef HAVE_DMA_BUF_LOAN
	dma_buf_file_unmap(dmabuf, dev, table, dir);
#else
	dma_unmap_sgtable(dev, table, dir,
			  storing ? DMA_ATTR_SKIP_CPU_SYNC : 0);
#endif
}

#ifdef HAVE_DMA_BUF_LOAN
ssize_t dbx_buffer_rw_file(struct dma_buf *dmabuf, const struct dma_buf_rw *rw);
void dbx_buffer_sync(struct dma_buf *dmabuf, u64 offset, u64 length,
		     enum dma_data_direction dir, bool to_device);
#endif

#endif
