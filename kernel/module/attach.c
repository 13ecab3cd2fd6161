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

#include "attach.h"
#include "buffer.h"
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

static int dbx_walk_mapping(struct dbx_attachment *att, u32 *refusal)
{
	const void *vaddr = att->map.vaddr;
	bool vmalloc = is_vmalloc_addr(vaddr);
	unsigned long next_pfn = 0, checked = 0;
	bool head = false;
	int ret = -EOPNOTSUPP;
	u64 offset;

	*refusal = DMABUF_DIO_REFUSED_MAPPING;
	if (att->map.is_iomem || !PAGE_ALIGNED(vaddr) ||
	    (!vmalloc && !virt_addr_valid(vaddr)))
		return ret;

	for (offset = 0; offset < att->dmabuf->size; offset += PAGE_SIZE) {
		struct page *page = vmalloc ? vmalloc_to_page(vaddr + offset) :
					      virt_to_page(vaddr + offset);
		unsigned long pfn;

		if (!page)
			goto err_free;
		pfn = page_to_pfn(page);
		/*
		 * Linux 6.12's udmabuf maps the first page of a large folio in
		 * place of each of its pages. In a correct mapping, the first
		 * page is followed by the second; if the buffer ends there, the
		 * mapping may be of either kind, unless it is DRM's.
		 */
		if (head && pfn != next_pfn)
			goto err_free;

		if (pfn != next_pfn || pfn >= checked) {
			if (!pfn_valid(pfn)) {
				*refusal = DMABUF_DIO_REFUSED_PAGES;
				goto err_free;
			}
			checked = dbx_pages_lendable(page, refusal);
			if (!checked)
				goto err_free;
			checked += pfn;
		} else if (PageHWPoison(page)) {
			*refusal = DMABUF_DIO_REFUSED_POISONED;
			goto err_free;
		}
		if (!dbx_segments_extend(&att->table, page, PAGE_SIZE)) {
			ret = dbx_segments_add(&att->table, page, PAGE_SIZE);
			if (ret)
				goto err_free;
			ret = -EOPNOTSUPP;
		}
		next_pfn = pfn + 1;
		head = PageHead(page);

		if (IS_ALIGNED(offset, SZ_1M)) {
			cond_resched();
			if (fatal_signal_pending(current)) {
				ret = -EINTR;
				goto err_free;
			}
		}
	}
	if (head && !att->exporter->pins)
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

static bool dbx_own_unsynced(const struct dbx_exporter *exporter,
			     const struct dma_buf *dmabuf)
{
	return exporter->own_device &&
	       dma_dev_need_sync(exporter->own_device(dmabuf));
}

/* Linux 6.1's DRM waits for locks interruptibly. */
static int dbx_restarted(int ret)
{
	return ret == -EINTR ? -ERESTARTSYS : ret;
}

/*
 * As an importer, for which the exporter allocates and pins the pages; dropped
 * by dbx_detach(). A buffer that it cannot pin must not be mapped to try.
 */
static int dbx_pin(struct dbx_attachment *att, u32 *refusal)
{
	struct dma_buf_attachment *pin;

	pin = dma_buf_attach(att->dmabuf, dbx_device.this_device);
	if (!IS_ERR(pin)) {
		att->pin = pin;
		return 0;
	}
	switch (PTR_ERR(pin)) {
	case -EINVAL:
		return dbx_refuse(refusal, DMABUF_DIO_REFUSED_EXPORTER);
	case -ENOSPC:
		return -ENOMEM;
	default:
		return dbx_restarted(PTR_ERR(pin));
	}
}

/*
 * Borrows through the kernel mapping. It and the pin are kept for the life of the
 * attachment, but a mapping that pages do not need to stay in place: nobody is
 * charged for its page tables.
 */
static int dbx_borrow_mapping(struct dbx_attachment *att, u32 *refusal)
{
	const struct dbx_exporter *exporter;
	int ret;

	exporter = dbx_exporter_find(att->dmabuf, refusal);
	if (!exporter)
		return -EOPNOTSUPP;
	*refusal = 0;
	if (!att->dmabuf->ops->vmap || !att->dmabuf->size ||
	    !PAGE_ALIGNED(att->dmabuf->size))
		return dbx_refuse(refusal, DMABUF_DIO_REFUSED_MAPPING);
	if (dbx_own_unsynced(exporter, att->dmabuf))
		return dbx_refuse(refusal, DMABUF_DIO_REFUSED_UNSYNCED);

	att->exporter = exporter;
	if (exporter->pins) {
		ret = dbx_pin(att, refusal);
		if (ret)
			return ret;
	}
	/* The operation exists, so EINVAL means out of memory (udmabuf). */
	ret = dma_buf_vmap_unlocked(att->dmabuf, &att->map);
	if (ret) {
		ret = ret == -EINVAL ? -ENOMEM : dbx_restarted(ret);
		goto err_unpin;
	}

	ret = dbx_walk_mapping(att, refusal);
	if (ret)
		goto err_vunmap;
	if (exporter->stays) {
		dma_buf_vunmap_unlocked(att->dmabuf, &att->map);
		iosys_map_clear(&att->map);
	}
	return 0;

err_vunmap:
	dma_buf_vunmap_unlocked(att->dmabuf, &att->map);
err_unpin:
	if (att->pin)
		dma_buf_detach(att->dmabuf, att->pin);
	return ret;
}

/**
 * dbx_attach - borrow the pages of a dma-buf
 * @fd: file descriptor of the dma-buf
 * @refusal: with -EOPNOTSUPP set to DMABUF_DIO_REFUSED_*
 *
 * The attachment holds a reference to the dma-buf and, if the pages need it to
 * stay in place, its kernel mapping. dbx_detach() drops both.
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
#ifdef HAVE_DMA_BUF_LOAN
		dma_buf_loan(att->dmabuf, &att->loan);
#endif
		dbx_buffer_premap(att->dmabuf);
		return att;
	}

	att->segs = &att->table;
	ret = dbx_lends(att->dmabuf) ?
		dbx_borrow(att->dmabuf, &att->table, &att->loan, refusal) :
		dbx_borrow_mapping(att, refusal);
	if (ret)
		goto err_put;
	dbx_premap(&att->table, true);
	return att;

err_put:
	dma_buf_put(att->dmabuf);
err_free:
	kfree(att);
	return ERR_PTR(ret);
}

/*
 * Does a device that the exporter would not synchronise use the buffer: one that
 * is attached, or the exporter's own?
 */
static bool dbx_unsynced(const struct dbx_attachment *att)
{
	bool found;

	if (!att->exporter->unsynced)
		return false;
	if (dbx_own_unsynced(att->exporter, att->dmabuf))
		return true;
	dma_resv_lock(att->dmabuf->resv, NULL);
	found = dbx_access_needs_sync(att->dmabuf);
	dma_resv_unlock(att->dmabuf->resv);
	return found;
}

/*
 * udmabuf maps its pages for a device of its own when CPU access begins for the
 * first time. It does not clean the caches then, but invalidates them. If
 * devices are not coherent by default, as on arm64, data that the CPU has
 * stored before would be lost. This function therefore begins CPU access for a
 * device that reads: that invalidates nothing, and the end of the access
 * cleans. It does nothing with bounce buffers, because later stores through the
 * memfd would not reach these copies.
 */
static DEFINE_MUTEX(dbx_own_lock);	/* udmabuf has none for its mapping */

static void dbx_map_own(struct dbx_attachment *att)
{
	const struct dma_buf_ops *ops = att->dmabuf->ops;
	struct device *dev = dbx_device.this_device;

	if (dev_is_dma_coherent(dev) || is_swiotlb_force_bounce(dev))
		return;
	/* If this fails, CPU access can never begin. */
	mutex_lock(&dbx_own_lock);
	if (ops->begin_cpu_access)
		ops->begin_cpu_access(att->dmabuf, DMA_TO_DEVICE);
	mutex_unlock(&dbx_own_lock);
}

/* udmabuf's own mapping receives the stored data. */
static void dbx_end_own(struct dbx_attachment *att, enum dma_data_direction dir)
{
	mutex_lock(&dbx_own_lock);
	dma_buf_end_cpu_access(att->dmabuf, dir);
	mutex_unlock(&dbx_own_lock);
}

/**
 * dbx_attachment_begin - wait for fences and one's turn, begin CPU access
 * @att: the attachment
 * @turn: filled in
 * @rw: READ to store into the buffer, else WRITE
 * @offset: where to start in it, bytes
 * @length: bytes, at least 1; a loan is of the pages of this range only
 * @refusal: set to DMABUF_DIO_REFUSED_UNSYNCED with -EBUSY
 *
 * CPU access does not begin at an exporter that does not synchronise devices:
 * udmabuf would synchronise only its own mapping, and so restore old data. See
 * dbx_map_own(). Transfers on such a buffer need no turns.
 *
 * Return: 0, -ERESTARTSYS if there is a signal, -EBUSY, or the exporter's error.
 */
int dbx_attachment_begin(struct dbx_attachment *att, struct dbx_turn *turn,
			 int rw, u64 offset, u64 length, u32 *refusal)
{
	int ret;

	if (rw == READ)
		WRITE_ONCE(att->stored, true);
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
	turn->dir = rw == WRITE ? DMA_FROM_DEVICE : DMA_BIDIRECTIONAL;
	turn->dmabuf = att->dmabuf;
	if (!att->exporter->unsynced)
		return dbx_access_begin(turn, att->exporter->locks);

	ret = dbx_access_wait(turn);
	if (ret)
		return ret;
	if (dbx_unsynced(att)) {
		*refusal = DMABUF_DIO_REFUSED_UNSYNCED;
		return -EBUSY;
	}
	if (rw == READ)
		dbx_map_own(att);
	return 0;
}

/**
 * dbx_attachment_end - end CPU access and one's turn
 * @att: the attachment, after a successful dbx_attachment_begin()
 * @turn: as there
 * @refusal: set to DMABUF_DIO_REFUSED_UNSYNCED with -EBUSY
 *
 * Return: 0, or -EBUSY if a device is attached now that may not see the stored
 * data, or whose data may not have been read. A device that attached and
 * detached meanwhile is missed.
 */
int dbx_attachment_end(struct dbx_attachment *att, struct dbx_turn *turn,
		       u32 *refusal)
{
	bool unsynced = dbx_unsynced(att);

#ifdef HAVE_DMA_BUF_LOAN
	if (att->loan) {
		dma_buf_file_end(att->dmabuf, att->loan, &turn->range);
		return 0;
	}
#endif
	if (!att->exporter->unsynced)
		dbx_access_end(turn, att->exporter->locks);
	else if (turn->dir != DMA_FROM_DEVICE)
		dbx_end_own(att, turn->dir);
	if (unsynced) {
		*refusal = DMABUF_DIO_REFUSED_UNSYNCED;
		return -EBUSY;
	}
	return 0;
}
