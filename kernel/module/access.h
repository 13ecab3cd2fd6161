/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_ACCESS_H
#define DMABUF_DIO_ACCESS_H

#include <linux/dma-buf.h>

/*
 * The right to do file I/O on a dma-buf, shared by all contexts that have it
 * attached. It is held by one transfer at a time: beginning CPU access may
 * bring memory to the state that a device saw, and so undo what another
 * transfer has just stored and not yet handed over.
 */
struct dio_access;

struct dio_access *dio_access_get(struct dma_buf *dmabuf);
void dio_access_put(struct dio_access *access);

int dio_access_begin(struct dio_access *access, enum dma_data_direction dir);
void dio_access_end(struct dio_access *access, enum dma_data_direction dir);

#endif
