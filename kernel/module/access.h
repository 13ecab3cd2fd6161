/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_ACCESS_H
#define DMABUF_DIO_ACCESS_H

#include <linux/dma-buf.h>
#include <linux/fs.h>
#include <linux/mutex.h>

#include "buffer.h"

/*
 * The lock that serialises transfers on a dma-buf whose exporter has no file I/O
 * of its own: the position lock of the dma-buf's struct file. A dma-buf has a
 * single struct file and no position, so nothing else uses that lock.
 */
static inline struct mutex *dbx_access_lock(struct dma_buf *dmabuf)
{
	return &dmabuf->file->f_pos_lock;
}

/*
 * Marks that file I/O is storing into the buffer. Meanwhile, the exporter must
 * not copy a device's data back to memory, neither when a device unmaps nor
 * when others begin CPU access: the data that devices had stored before was
 * copied back when the I/O began. The mark changes with the reservation locked.
 * Exporters that do not check it are not affected.
 */
static inline void dbx_access_set_storing(struct dma_buf *dmabuf, bool storing)
{
	dbx_buffer_set_storing(dmabuf, storing);
}

int dbx_access_take(struct dma_buf *dmabuf, enum dma_data_direction dir);
void dbx_access_drop(struct dma_buf *dmabuf);

int dbx_access_begin(struct dma_buf *dmabuf, enum dma_data_direction dir);
void dbx_access_end(struct dma_buf *dmabuf, enum dma_data_direction dir);

#endif
