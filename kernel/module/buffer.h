/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_BUFFER_H
#define DMABUF_DIO_BUFFER_H

#include <linux/dma-buf.h>
#include <linux/list.h>
#include <linux/mutex.h>

#include "segments.h"

/* Memory allocated by this module, a dma-buf once it has been exported */
struct dio_buffer {
	struct dio_segments segs;
	u64 length;			/* of the finished buffer, whole pages */
	unsigned int max_order;		/* larger folios are not available */
	struct mutex lock;		/* protects the fields below */
	struct list_head attachments;
	bool storing;			/* file I/O is storing, see access.h */
};

struct dio_buffer *dio_buffer_create(u64 length);
int dio_buffer_grow(struct dio_buffer *buf);
struct dma_buf *dio_buffer_export(struct dio_buffer *buf, int flags);
void dio_buffer_free(struct dio_buffer *buf);
void dio_buffer_destroy(struct dio_buffer *buf);

/* Keeps one of our buffers mapped for DMA from now on, if that is of use. */
void dio_buffer_premap(struct dma_buf *dmabuf);

/* Whether file I/O is storing into the buffer, see access.h */
void dio_buffer_set_storing(struct dma_buf *dmabuf, bool storing);

/* The table of one of our buffers; NULL for those of other exporters */
const struct dio_segments *dio_buffer_segments(const struct dma_buf *dmabuf);

#endif
