// SPDX-License-Identifier: GPL-2.0-only
/*
 * DMA operations of a device that is not coherent
 *
 * Emulated machines have no caches: a device sees at once what the CPU stores.
 * A device with these operations does not. Each of its mappings has a shadow,
 * and the device accesses nothing else. Only synchronisation copies between the
 * shadow and the memory, in the same cases as between bounce buffers and
 * memory: data that is stored at the wrong time is lost.
 *
 * Unlike swiotlb=force this concerns one device, so disks transfer to and from
 * memory directly. A mapping may be long, and is a single segment for the device, as
 * behind an IOMMU. DMA_ATTR_SKIP_CPU_SYNC is honoured when mapping, which bounce
 * buffers do not: until the first synchronisation the shadow holds poison.
 */
#include <linux/dma-map-ops.h>
#include <linux/list.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/vmalloc.h>

#include "../../module/compat.h"
#include "shadow_dma.h"

#define SHADOW_POISON	0xa5

struct shadow {
	struct list_head list;
	struct sg_table memory;	/* the exporter's may be changed by CONFIG_DMABUF_DEBUG */
	void *copy;		/* its address is the DMA address */
	size_t length;
};

static LIST_HEAD(shadows);
static DEFINE_SPINLOCK(shadows_lock);

/* The mapping that an address belongs to. It lives until it is unmapped. */
static struct shadow *shadow_find(dma_addr_t addr)
{
	void *at = shadow_dma_memory(addr);
	struct shadow *shadow, *found = NULL;
	unsigned long flags;

	spin_lock_irqsave(&shadows_lock, flags);
	list_for_each_entry(shadow, &shadows, list)
		if (at >= shadow->copy && at < shadow->copy + shadow->length)
			found = shadow;
	spin_unlock_irqrestore(&shadows_lock, flags);
	return found;
}

static void shadow_sync_for_cpu(struct device *dev, dma_addr_t addr,
				size_t size, enum dma_data_direction dir)
{
	struct shadow *shadow = shadow_find(addr);
	void *at = shadow_dma_memory(addr);

	if (!WARN_ON(!shadow) && dir != DMA_TO_DEVICE)
		sg_pcopy_from_buffer(shadow->memory.sgl, shadow->memory.nents,
				     at, size, at - shadow->copy);
}

static void shadow_sync_for_device(struct device *dev, dma_addr_t addr,
				   size_t size, enum dma_data_direction dir)
{
	struct shadow *shadow = shadow_find(addr);
	void *at = shadow_dma_memory(addr);

	if (!WARN_ON(!shadow) && dir != DMA_FROM_DEVICE)
		sg_pcopy_to_buffer(shadow->memory.sgl, shadow->memory.nents,
				   at, size, at - shadow->copy);
}

/* The first entry of a list has the address of all. */
static void shadow_sync_sg_for_cpu(struct device *dev, struct scatterlist *sgl,
				   int nents, enum dma_data_direction dir)
{
	shadow_sync_for_cpu(dev, sg_dma_address(sgl), sg_dma_len(sgl), dir);
}

static void shadow_sync_sg_for_device(struct device *dev,
				      struct scatterlist *sgl, int nents,
				      enum dma_data_direction dir)
{
	shadow_sync_for_device(dev, sg_dma_address(sgl), sg_dma_len(sgl), dir);
}

static void shadow_free(struct shadow *shadow)
{
	sg_free_table(&shadow->memory);
	vfree(shadow->copy);
	kfree(shadow);
}

static struct shadow *shadow_alloc(struct scatterlist *sgl, int nents)
{
	struct scatterlist *from, *to;
	struct shadow *shadow;
	int i;

	shadow = kzalloc_obj(*shadow, GFP_KERNEL);
	if (!shadow)
		return NULL;
	if (sg_alloc_table(&shadow->memory, nents, GFP_KERNEL)) {
		kfree(shadow);
		return NULL;
	}
	to = shadow->memory.sgl;
	for_each_sg(sgl, from, nents, i) {
		sg_set_page(to, sg_page(from), from->length, from->offset);
		shadow->length += from->length;
		to = sg_next(to);
	}
	shadow->copy = vmalloc(shadow->length);
	if (!shadow->copy) {
		shadow_free(shadow);
		return NULL;
	}
	memset(shadow->copy, SHADOW_POISON, shadow->length);
	return shadow;
}

static int shadow_map_sg(struct device *dev, struct scatterlist *sgl, int nents,
			 enum dma_data_direction dir, unsigned long attrs)
{
	struct shadow *shadow = shadow_alloc(sgl, nents);
	unsigned long flags;

	if (!shadow)
		return -ENOMEM;
	if (shadow->length > UINT_MAX) {
		shadow_free(shadow);
		return -EINVAL;
	}
	sg_dma_address(sgl) = (uintptr_t)shadow->copy;
	sg_dma_len(sgl) = shadow->length;
	/* This also applies to a device that only writes, because it may write a part. */
	if (!(attrs & DMA_ATTR_SKIP_CPU_SYNC))
		sg_copy_to_buffer(shadow->memory.sgl, shadow->memory.nents,
				  shadow->copy, shadow->length);

	spin_lock_irqsave(&shadows_lock, flags);
	list_add(&shadow->list, &shadows);
	spin_unlock_irqrestore(&shadows_lock, flags);
	return 1;
}

static void shadow_unmap_sg(struct device *dev, struct scatterlist *sgl,
			    int nents, enum dma_data_direction dir,
			    unsigned long attrs)
{
	struct shadow *shadow = shadow_find(sg_dma_address(sgl));
	unsigned long flags;

	if (WARN_ON(!shadow))
		return;
	if (!(attrs & DMA_ATTR_SKIP_CPU_SYNC))
		shadow_sync_for_cpu(dev, sg_dma_address(sgl), shadow->length,
				    dir);
	spin_lock_irqsave(&shadows_lock, flags);
	list_del(&shadow->list);
	spin_unlock_irqrestore(&shadows_lock, flags);
	shadow_free(shadow);
}

/* Exporters map whole scatterlists; the device has no other use for DMA. */
static const struct dma_map_ops shadow_dma_ops = {
	.map_sg = shadow_map_sg,
	.unmap_sg = shadow_unmap_sg,
	.sync_single_for_cpu = shadow_sync_for_cpu,
	.sync_single_for_device = shadow_sync_for_device,
	.sync_sg_for_cpu = shadow_sync_sg_for_cpu,
	.sync_sg_for_device = shadow_sync_sg_for_device,
};

void shadow_dma_use(struct device *dev)
{
	set_dma_ops(dev, &shadow_dma_ops);
}
