/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_BUFFER_H
#define DMABUF_DIO_BUFFER_H

#include <linux/dma-buf.h>
#include <linux/list.h>
#include <linux/mutex.h>

#include "segments.h"

/* Memory allocated by this module */
struct dbx_buffer {
	struct dma_buf *dmabuf;		/* which owns this */
	struct dbx_segments segs;
	u64 length;			/* of the finished buffer, whole pages */
	unsigned long promised;		/* pages that are still to be allocated */
	unsigned int max_order;		/* larger folios are not available */
	struct mutex lock;		/* protects the fields below */
	struct list_head attachments;
	unsigned int storing;		/* how many transfers are, see below */
};

struct dbx_buffer *dbx_buffer_create(u64 length, int flags);
int dbx_buffer_grow(struct dbx_buffer *buf);
void dbx_buffer_free(struct dbx_buffer *buf);

/* Keeps one of our buffers mapped for DMA from now on, if that is of use. */
void dbx_buffer_premap(struct dma_buf *dmabuf);

/*
 * Counts, for one of our buffers, the transfers that are storing into it.
 * Meanwhile no data of a device is copied back to memory, neither when the
 * device unmaps nor when others begin CPU access: earlier data of a device was
 * copied back when the first transfer began. Called with the reservation
 * locked.
 */
void dbx_buffer_storing(struct dma_buf *dmabuf, int change);

/* The table of one of our buffers; NULL for buffers of other exporters */
const struct dbx_segments *dbx_buffer_segments(const struct dma_buf *dmabuf);

#endif
