/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_LEND_H
#define DMABUF_DIO_LEND_H

#include <linux/dma-buf.h>

#include "segments.h"

int dio_borrow(struct dma_buf *dmabuf, struct dio_segments *segs, u32 *refusal);

#ifdef HAVE_DMA_BUF_LEND
static inline bool dio_lends(const struct dma_buf *dmabuf)
{
	return dmabuf->ops->lend;
}

int dio_buffer_lend(struct dma_buf *dmabuf, u64 offset, size_t length,
		    struct dma_buf_loan *loan);
#else
static inline bool dio_lends(const struct dma_buf *dmabuf)
{
	return false;
}
#endif

#endif
