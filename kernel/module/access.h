/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_ACCESS_H
#define DMABUF_DIO_ACCESS_H

#include <linux/dma-buf.h>
#include <linux/fs.h>
#include <linux/mutex.h>

#include "buffer.h"

/*
 * What decides turns on a dma-buf. Kernels that lend have a mutex for it, which
 * copy_file_range() takes, too. Elsewhere it is the one that a struct file has
 * for positions: a dma-buf has one struct file, and no position of its own.
 */
static inline struct mutex *dio_access_lock(struct dma_buf *dmabuf)
{
#ifdef HAVE_DMA_BUF_LEND
	return &dmabuf->file_io_lock;
#else
	return &dmabuf->file->f_pos_lock;
#endif
}

/*
 * Is file I/O storing into the buffer? Then neither a mapping that ends nor
 * anyone else's CPU access brings anything back: what devices had stored before
 * has been fetched already. Changes with the reservation locked. Only exporters
 * that ask are kept from it.
 */
static inline void dio_access_set_storing(struct dma_buf *dmabuf, bool storing)
{
#ifdef HAVE_DMA_BUF_LEND
	dmabuf->file_io_stores = storing;
#else
	dio_buffer_set_storing(dmabuf, storing);
#endif
}

static inline bool dio_access_storing(const struct dma_buf *dmabuf)
{
#ifdef HAVE_DMA_BUF_LEND
	return dmabuf->file_io_stores;
#else
	return dio_buffer_storing(dmabuf);
#endif
}

int dio_access_take(struct dma_buf *dmabuf, enum dma_data_direction dir);
void dio_access_drop(struct dma_buf *dmabuf);

int dio_access_begin(struct dma_buf *dmabuf, enum dma_data_direction dir);
void dio_access_end(struct dma_buf *dmabuf, enum dma_data_direction dir);

#endif
