// SPDX-License-Identifier: GPL-2.0-only
/*
 * Borrowing the pages of a dma-buf
 *
 * Our own buffers lend their table, and so do other exporters on kernels that
 * have a callback for it. For exporters that are known not to move their pages,
 * the table is built from the kernel mapping (vmap). Buffers of all other
 * exporters are refused without being mapped. Pages are never taken from an
 * sg_table, which belongs to the attached devices.
 */
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/swiotlb.h>
#include <linux/vmalloc.h>

#include <linux/dmabuf_dio.h>

#include "access.h"
#include "attach.h"
#include "buffer.h"
#include "compact.h"
#include "compat.h"
#include "context.h"
#include "exporter.h"
#include "lend.h"
#include "premap.h"

static int dbx_refuse(u32 *refusal, u32 why)
{
	*refusal = why;
	return -EOPNOTSUPP;
}

/*
 * For a buffer of a single page that is the first of a large folio: is that the
 * buffer's page, or did the exporter map it in place of another? Exporters give
 * devices the right pages, so attach as a device and compare DMA addresses.
 */
static bool dbx_is_only_page(struct dma_buf *dmabuf, struct page *page)
{
	struct device *dev = dbx_device.this_device;
	struct dma_buf_attachment *attachment;
	struct sg_table *table;
	bool same = false;
	dma_addr_t addr;

	if (!dev->dma_mask)
		return false;
	attachment = dma_buf_attach(dmabuf, dev);
	if (IS_ERR(attachment))
		return false;
	table = dma_buf_map_attachment_unlocked(attachment, DMA_TO_DEVICE);
	if (IS_ERR(table))
		goto out_detach;

	addr = dma_map_page(dev, page, 0, PAGE_SIZE, DMA_TO_DEVICE);
	if (!dma_mapping_error(dev, addr)) {
		same = addr == sg_dma_address(table->sgl);
		dma_unmap_page(dev, addr, PAGE_SIZE, DMA_TO_DEVICE);
	}
	dma_buf_unmap_attachment_unlocked(attachment, table, DMA_TO_DEVICE);
out_detach:
	dma_buf_detach(dmabuf, attachment);
	return same;
}

static int dbx_walk_mapping(struct dbx_attachment *att, u32 *refusal)
{
	const void *vaddr = att->map.vaddr;
	bool vmalloc = is_vmalloc_addr(vaddr);
	unsigned long next_pfn = 0, checked = 0;
	bool head = false;
	u64 offset;
	int ret;

	if (att->map.is_iomem || !PAGE_ALIGNED(vaddr) ||
	    (!vmalloc && !virt_addr_valid(vaddr)))
		return dbx_refuse(refusal, DMABUF_DIO_REFUSED_MAPPING);

	for (offset = 0; offset < att->dmabuf->size; offset += PAGE_SIZE) {
		struct page *page = vmalloc ? vmalloc_to_page(vaddr + offset) :
					      virt_to_page(vaddr + offset);
		unsigned long pfn;

		ret = dbx_refuse(refusal, DMABUF_DIO_REFUSED_MAPPING);
		if (!page)
			goto err_free;
		pfn = page_to_pfn(page);
		/*
		 * Linux 6.12's udmabuf maps the first page of a large folio in
		 * place of each of its pages. In a correct mapping, the first
		 * page is followed by the second.
		 */
		if (head && pfn != next_pfn)
			goto err_free;

		if (pfn != next_pfn || pfn >= checked) {
			unsigned long count = pfn_valid(pfn) ?
					      dbx_pages_lendable(page) : 0;

			ret = dbx_refuse(refusal, DMABUF_DIO_REFUSED_PAGES);
			if (!count)
				goto err_free;
			checked = pfn + count;
			cond_resched();
		}
		if (!dbx_segments_extend(&att->table, page)) {
			ret = dbx_segments_add(&att->table, page, PAGE_SIZE);
			if (ret)
				goto err_free;
		}
		next_pfn = pfn + 1;
		head = PageHead(page);
	}
	ret = dbx_refuse(refusal, DMABUF_DIO_REFUSED_MAPPING);
	if (head && (att->dmabuf->size > PAGE_SIZE ||
		     !dbx_is_only_page(att->dmabuf,
				       att->table.vec[0].bv_page)))
		goto err_free;
	*refusal = 0;
	dbx_segments_compact(&att->table);
	return 0;

err_free:
	if (ret != -EOPNOTSUPP)
		*refusal = 0;
	dbx_segments_free(&att->table);
	return ret;
}

/* The exporter of our own buffers and of all buffers that are lent */
static const struct dbx_exporter dbx_lender;

/* Borrows through the kernel mapping, kept for the life of the attachment */
static int dbx_borrow_mapping(struct dbx_attachment *att, u32 *refusal)
{
	const struct dbx_exporter *exporter = dbx_exporter_find(att->dmabuf);
	int ret;

	if (!exporter)
		return dbx_refuse(refusal, DMABUF_DIO_REFUSED_EXPORTER);
	if (!att->dmabuf->ops->vmap || !att->dmabuf->size ||
	    !PAGE_ALIGNED(att->dmabuf->size))
		return dbx_refuse(refusal, DMABUF_DIO_REFUSED_MAPPING);

	/* The operation exists, so EINVAL means out of memory (udmabuf). */
	ret = dma_buf_vmap_unlocked(att->dmabuf, &att->map);
	if (ret)
		return ret == -EINVAL ? -ENOMEM : ret;

	ret = dbx_walk_mapping(att, refusal);
	if (ret) {
		dma_buf_vunmap_unlocked(att->dmabuf, &att->map);
		return ret;
	}
	att->exporter = exporter;
	return 0;
}

/**
 * dbx_attach - borrow the pages of a dma-buf
 * @fd: file descriptor of the dma-buf
 * @refusal: with -EOPNOTSUPP set to DMABUF_DIO_REFUSED_*
 *
 * The attachment holds a reference to the dma-buf and, if the exporter does not
 * lend, its kernel mapping. dbx_detach() drops both.
 *
 * Return: the attachment or an ERR_PTR, see struct dmabuf_dio_attach.
 */
struct dbx_attachment *dbx_attach(int fd, u32 *refusal)
{
	struct dbx_attachment *att;
	int ret;

	att = kzalloc_obj(*att, GFP_KERNEL_ACCOUNT);
	if (!att)
		return ERR_PTR(-ENOMEM);

	att->dmabuf = dma_buf_get(fd);
	if (IS_ERR(att->dmabuf)) {
		ret = PTR_ERR(att->dmabuf);
		goto err_free;
	}

	att->exporter = &dbx_lender;
	att->segs = dbx_buffer_segments(att->dmabuf);
	if (att->segs) {
		/* Kernels without loans have none for our own either. */
		dbx_loan(att->dmabuf, &att->loan);
		dbx_buffer_premap(att->dmabuf);
		return att;
	}

	att->segs = &att->table;
	ret = dbx_lends(att->dmabuf) ?
		dbx_borrow(att->dmabuf, &att->table, &att->loan, refusal) :
		dbx_borrow_mapping(att, refusal);
	if (ret)
		goto err_put;
	dbx_premap(&att->table);
	return att;

err_put:
	dma_buf_put(att->dmabuf);
err_free:
	kfree(att);
	return ERR_PTR(ret);
}

/*
 * Is a device attached that needs synchronisation? A device may attach at any
 * time, so the result says nothing about the future.
 */
static bool dbx_unsynced(struct dbx_attachment *att)
{
	struct dma_buf_attachment *device;
	bool found = false;

	dma_resv_lock(att->dmabuf->resv, NULL);
	list_for_each_entry(device, &att->dmabuf->attachments, node)
		found |= device->dev != dbx_device.this_device &&
			 dma_dev_need_sync(device->dev);
	dma_resv_unlock(att->dmabuf->resv);
	return found;
}

/*
 * udmabuf maps its pages for a device of its own when CPU access begins first: it
 * does not clean the caches then, but invalidates them. Where devices are not
 * coherent by default, as on arm64, what the CPU has stored before would be lost.
 * So it maps them now, for a device that reads, which invalidates nothing, and
 * the end of CPU access cleans. Bounce buffers have copies instead, which later
 * stores through the memfd would not reach.
 */
static void dbx_map_own(struct dbx_attachment *att)
{
	const struct dma_buf_ops *ops = att->dmabuf->ops;
	struct device *dev = dbx_device.this_device;

	if (dev_is_dma_coherent(dev) || is_swiotlb_force_bounce(dev))
		return;
	/* Where that fails, CPU access can never begin. */
	if (ops->begin_cpu_access)
		ops->begin_cpu_access(att->dmabuf, DMA_TO_DEVICE);
}

/**
 * dbx_attachment_begin - wait for fences and other transfers, begin CPU access
 * @att: the attachment
 * @turn: filled in
 * @rw: READ to store into the buffer, else WRITE
 * @offset: where to start in it, bytes
 * @length: bytes, at least 1; a loan is of the pages of this range only
 * @refusal: set to DMABUF_DIO_REFUSED_UNSYNCED with -EBUSY
 *
 * The begin of CPU access is not requested of an exporter that does not
 * synchronise devices: udmabuf would synchronise only a mapping of its own, and
 * so restore old data. See dbx_map_own().
 *
 * Return: 0, -ERESTARTSYS if there is a signal, -EBUSY, or the exporter's error.
 */
int dbx_attachment_begin(struct dbx_attachment *att, struct dbx_turn *turn,
			 int rw, u64 offset, u64 length, u32 *refusal)
{
	const struct dma_buf_ops *ops = att->dmabuf->ops;
	enum dma_data_direction dir;
	int ret;

#ifdef HAVE_DMA_BUF_LOAN
	if (att->loan)
		return dma_buf_file_begin(att->dmabuf, att->loan, &turn->range,
					  offset, length, rw);
#endif
	/*
	 * The range may cover only part of the data that a device has written.
	 * READ therefore needs both directions: otherwise, handing over its own
	 * bytes would overwrite that data.
	 */
	dir = rw == WRITE ? DMA_FROM_DEVICE : DMA_BIDIRECTIONAL;
	turn->dir = dir;
	if (!att->exporter->locks)
		return dbx_access_begin(att->dmabuf, dir);

	ret = dbx_access_take(att->dmabuf, dir);
	if (ret)
		return ret;
	if (!att->exporter->unsynced) {
		if (ops->begin_cpu_access)
			ret = ops->begin_cpu_access(att->dmabuf, dir);
	} else if (dbx_unsynced(att)) {
		*refusal = DMABUF_DIO_REFUSED_UNSYNCED;
		ret = -EBUSY;
	} else if (rw == READ) {
		dbx_map_own(att);
	}
	if (ret)
		dbx_access_drop(att->dmabuf);
	return ret;
}

/**
 * dbx_attachment_end - end CPU access, let the next transfer run
 * @att: the attachment, after a successful dbx_attachment_begin()
 * @turn: as there
 * @refusal: set to DMABUF_DIO_REFUSED_UNSYNCED with -EBUSY
 *
 * Return: 0, or -EBUSY if a device is attached now that may not see the stored
 * data, or whose data may not have been read. One that came and went is missed.
 */
int dbx_attachment_end(struct dbx_attachment *att, struct dbx_turn *turn,
		       u32 *refusal)
{
	bool unsynced = att->exporter->unsynced && dbx_unsynced(att);
	enum dma_data_direction dir = turn->dir;

#ifdef HAVE_DMA_BUF_LOAN
	if (att->loan) {
		dma_buf_file_end(att->dmabuf, att->loan, &turn->range);
		return 0;
	}
#endif
	if (att->exporter->locks) {
		/* udmabuf's own mapping receives the stored data. */
		if (!att->exporter->unsynced || dir != DMA_FROM_DEVICE)
			dma_buf_end_cpu_access(att->dmabuf, dir);
		dbx_access_drop(att->dmabuf);
	} else {
		dbx_access_end(att->dmabuf, dir);
	}
	if (unsynced) {
		*refusal = DMABUF_DIO_REFUSED_UNSYNCED;
		return -EBUSY;
	}
	return 0;
}
