/* SPDX-License-Identifier: GPL-2.0-only */
/* Definitions that older kernels lack */
#ifndef DMABUF_DIO_COMPAT_H
#define DMABUF_DIO_COMPAT_H

#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/slab.h>
#include <linux/swiotlb.h>

#ifndef kzalloc_obj
#define kzalloc_obj(obj, gfp)	kzalloc(sizeof(obj), gfp)
#endif

/* Since 6.8. MAX_ORDER, its name before, got another meaning in 6.4. */
#ifndef MAX_PAGE_ORDER
#define MAX_PAGE_ORDER	ilog2(MAX_ORDER_NR_PAGES)
#endif

/* Before 6.2 nobody locks the reservation to map: the dma-buf has another lock. */
#ifndef HAVE_DMA_BUF_VMAP_UNLOCKED
#define dma_buf_vmap_unlocked	dma_buf_vmap
#define dma_buf_vunmap_unlocked	dma_buf_vunmap
#endif

/*
 * Before 6.10 the kernel knows this of a mapping only. True for every device
 * that may need it: also for all behind an IOMMU, and for those that cannot
 * address all memory.
 */
#ifndef HAVE_DMA_DEV_NEED_SYNC
static inline bool dma_dev_need_sync(struct device *dev)
{
	return dma_need_sync(dev, 0) || is_swiotlb_force_bounce(dev) ||
	       dma_addressing_limited(dev);
}
#endif

#ifndef HAVE_FOLIO_CONTAIN_HWPOISONED_PAGE
static inline bool folio_contain_hwpoisoned_page(struct folio *folio)
{
	return folio_test_hwpoison(folio) ||
	       (folio_test_large(folio) && folio_test_has_hwpoisoned(folio));
}
#endif

#endif
