/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SHADOW_DMA_H
#define SHADOW_DMA_H

#include <linux/types.h>

struct device;

/* Gives a device without a driver these DMA operations. Before its DMA mask is set. */
void shadow_dma_use(struct device *dev);

/*
 * The memory that the device accesses at a DMA address of a mapping. The memory
 * behind it is not touched until the mapping is synchronised.
 */
static inline void *shadow_dma_memory(dma_addr_t addr)
{
	return (void *)(uintptr_t)addr;
}

#endif
