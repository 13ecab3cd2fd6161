/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_BUFFER_H
#define DMABUF_DIO_BUFFER_H

#include <linux/dma-buf.h>
#include <linux/list.h>
#include <linux/mutex.h>

#include "segments.h"

/* Memory allocated by this module, a dma-buf once it has been exported */
struct dbx_buffer {
	struct dbx_segments segs;
	u64 length;			/* of the finished buffer, whole pages */
	unsigned int max_order;		/* larger folios are not available */
	struct mutex lock;		/* protects the fields below */
	struct list_head attachments;
	bool storing;			/* file I/O is storing, see access.h */
};

struct dbx_buffer *dbx_buffer_create(u64 length);
int dbx_buffer_grow(struct dbx_buffer *buf);
struct dma_buf *dbx_buffer_export(struct dbx_buffer *buf, int flags);
void dbx_buffer_free(struct dbx_buffer *buf);
void dbx_buffer_destroy(struct dbx_buffer *buf);

/* Keeps one of our buffers mapped for DMA from now on, if that is of use. */
void dbx_buffer_premap(struct dma_buf *dmabuf);

/* Whether file I/O is storing into the buffer, see access.h */
void dbx_buffer_set_storing(struct dma_buf *dmabuf, bool storing);

/* The table of one of our buffers; NULL for those of other exporters */
const struct dbx_segments *dbx_buffer_segments(const struct dma_buf *dmabuf);

#endif
