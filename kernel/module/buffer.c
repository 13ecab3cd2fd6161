// SPDX-License-Identifier: GPL-2.0-only
/*
 * Our own buffers: memory that is filled before user space can see it, then
 * exported as a dma-buf
 */
#include <linux/cleanup.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/err.h>
#include <linux/highmem.h>
#include <linux/iosys-map.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/vmalloc.h>
#include <linux/vmstat.h>

#include "buffer.h"
#include "compat.h"
#include "context.h"
#include "lend.h"
#include "premap.h"

/* Pages are not zeroed: the owner overwrites or zeroes every byte. */
#define DBX_GFP		(GFP_HIGHUSER | __GFP_ACCOUNT | __GFP_NOWARN | __GFP_COMP)
/* Large folios are preferred, but do not justify reclaim. */
#define DBX_GFP_LARGE	((DBX_GFP | __GFP_NORETRY) & ~__GFP_RECLAIM)
/* Single pages justify reclaim, but not the OOM killer. */
#define DBX_GFP_PAGE	(DBX_GFP | __GFP_RETRY_MAYFAIL)

/* Pages that all unfinished buffers are still to allocate */
static unsigned long dbx_promised;
static DEFINE_SPINLOCK(dbx_promised_lock);

/* Sizes that suit devices and IOMMUs, and a page; none exceeds MAX_PAGE_ORDER */
static const unsigned int dbx_sizes[] = {
	SZ_4M, SZ_2M, SZ_1M, SZ_64K, PAGE_SIZE
};

static const struct dma_buf_ops dbx_buffer_ops;

struct dbx_buffer_attachment {
	struct device *dev;
	struct sg_table table;
	struct list_head list;
	enum dma_data_direction dir;	/* DMA_NONE: not mapped */
};

/*
 * Is so much memory available without the reserve? Taking more would get other
 * processes killed. Free pages of CMA do not count, as they are only lent for
 * movable memory.
 */
static bool dbx_available(unsigned long pages, unsigned long reserve)
{
	long available = si_mem_available() -
			 global_zone_page_state(NR_FREE_CMA_PAGES);

	return available >= 0 && pages <= available &&
	       reserve >> PAGE_SHIFT <= available - pages;
}

/* A request that is refused must not be seen by others. */
static bool dbx_promise(struct dbx_buffer *buf, unsigned long pages)
{
	bool available;

	spin_lock(&dbx_promised_lock);
	available = pages <= ULONG_MAX - dbx_promised &&
		    dbx_available(dbx_promised + pages, READ_ONCE(dbx_reserve));
	if (available) {
		dbx_promised += pages;
		buf->promised = pages;
	}
	spin_unlock(&dbx_promised_lock);
	return available;
}

static void dbx_promise_end(struct dbx_buffer *buf, unsigned long pages)
{
	spin_lock(&dbx_promised_lock);
	dbx_promised -= pages;
	spin_unlock(&dbx_promised_lock);
	buf->promised -= pages;
}

/**
 * dbx_buffer_grow - add the largest folio that fits and is available
 * @buf: a buffer shorter than its final length
 */
int dbx_buffer_grow(struct dbx_buffer *buf)
{
	u64 missing = buf->length - buf->segs.length;
	unsigned int i;
	int ret;

	/* Others allocate, too: now and then look whether half of the reserve is left. */
	if (IS_ALIGNED(buf->segs.length, dbx_sizes[0]) &&
	    !dbx_available(0, READ_ONCE(dbx_reserve) / 2))
		return -ENOMEM;

	for (i = 0; i < ARRAY_SIZE(dbx_sizes); i++) {
		unsigned int order = get_order(dbx_sizes[i]);
		struct page *page;

		if (order > buf->max_order || missing < PAGE_SIZE << order)
			continue;

		page = alloc_pages(order ? DBX_GFP_LARGE : DBX_GFP_PAGE, order);
		if (page) {
			ret = dbx_segments_add(&buf->segs, page,
					       PAGE_SIZE << order);
			if (ret)
				__free_pages(page, order);
			else
				dbx_promise_end(buf, 1UL << order);
			return ret;
		}
		buf->max_order = order ? order - 1 : 0;
	}
	return -ENOMEM;
}

/**
 * dbx_buffer_free - free a buffer's memory
 * @buf: not yet visible to user space, or being released
 */
void dbx_buffer_free(struct dbx_buffer *buf)
{
	unsigned int i;

	dbx_promise_end(buf, buf->promised);
	/* Before the pages belong to somebody else. */
	dbx_premap_drop(&buf->segs);
	for (i = 0; i < buf->segs.nr; i++) {
		struct page *page = buf->segs.vec[i].bv_page;
		struct page *end = page + (buf->segs.vec[i].bv_len >> PAGE_SHIFT);

		/* A vector may span several folios. */
		while (page < end) {
			unsigned int order = compound_order(page);

			__free_pages(page, order);
			page += 1UL << order;
		}
		cond_resched();
	}
	dbx_segments_free(&buf->segs);
}

/* Builds an sg_table with segments that the device supports. */
static int dbx_buffer_table(const struct dbx_buffer *buf, struct device *dev,
			    struct sg_table *table)
{
	size_t max = min3((size_t)dma_get_max_seg_size(dev),
			  dma_max_mapping_size(dev), (size_t)SZ_1G);
	unsigned int i, nents = 0;
	struct scatterlist *sg;
	int ret;

	max = max_t(size_t, ALIGN_DOWN(max, PAGE_SIZE), PAGE_SIZE);
	for (i = 0; i < buf->segs.nr; i++)
		nents += DIV_ROUND_UP(buf->segs.vec[i].bv_len, max);

	ret = sg_alloc_table(table, nents, GFP_KERNEL);
	if (ret)
		return ret;

	sg = table->sgl;
	for (i = 0; i < buf->segs.nr; i++) {
		const struct bio_vec *bv = &buf->segs.vec[i];
		size_t offset;

		for (offset = 0; offset < bv->bv_len; offset += max) {
			sg_set_page(sg, bv->bv_page + (offset >> PAGE_SHIFT),
				    min(max, bv->bv_len - offset), 0);
			sg = sg_next(sg);
		}
	}
	return 0;
}

static int dbx_buffer_attach(struct dma_buf *dmabuf,
			     struct dma_buf_attachment *attachment)
{
	struct dbx_buffer *buf = dmabuf->priv;
	struct dbx_buffer_attachment *a;
	int ret;

	a = kzalloc_obj(*a, GFP_KERNEL);
	if (!a)
		return -ENOMEM;

	ret = dbx_buffer_table(buf, attachment->dev, &a->table);
	if (ret) {
		kfree(a);
		return ret;
	}

	a->dev = attachment->dev;
	a->dir = DMA_NONE;
	attachment->priv = a;

	guard(mutex)(&buf->lock);
	list_add(&a->list, &buf->attachments);
	return 0;
}

static void dbx_buffer_detach(struct dma_buf *dmabuf,
			      struct dma_buf_attachment *attachment)
{
	struct dbx_buffer_attachment *a = attachment->priv;
	struct dbx_buffer *buf = dmabuf->priv;

	mutex_lock(&buf->lock);
	list_del(&a->list);
	mutex_unlock(&buf->lock);

	sg_free_table(&a->table);
	kfree(a);
}

static struct sg_table *dbx_buffer_map(struct dma_buf_attachment *attachment,
				       enum dma_data_direction dir)
{
	struct dbx_buffer_attachment *a = attachment->priv;
	struct dbx_buffer *buf = attachment->dmabuf->priv;
	int ret;

	/*
	 * A device that only writes may write a part of the buffer. All of its
	 * bounce buffer is copied back, so it must hold the present content.
	 */
	if (dir != DMA_TO_DEVICE)
		dir = DMA_BIDIRECTIONAL;
	/*
	 * Map and record it under one lock: otherwise, an end of CPU access in
	 * between would skip this mapping.
	 */
	guard(mutex)(&buf->lock);
	ret = dma_map_sgtable(a->dev, &a->table, dir, 0);
	if (ret)
		return ERR_PTR(ret);
	a->dir = dir;
	return &a->table;
}

static void dbx_buffer_unmap(struct dma_buf_attachment *attachment,
			     struct sg_table *table,
			     enum dma_data_direction dir)
{
	struct dbx_buffer_attachment *a = attachment->priv;
	struct dma_buf *dmabuf = attachment->dmabuf;
	struct dbx_buffer *buf = dmabuf->priv;

	guard(mutex)(&buf->lock);
	dbx_unmap(dmabuf, buf->storing, a->dev, table, a->dir);
	a->dir = DMA_NONE;
}

void dbx_buffer_storing(struct dma_buf *dmabuf, int change)
{
	struct dbx_buffer *buf = dmabuf->priv;

	if (dmabuf->ops != &dbx_buffer_ops)
		return;
	guard(mutex)(&buf->lock);
	buf->storing += change;
}

/*
 * Each mapping is synchronised in its own direction, even if the CPU only
 * writes: it may write a part, and the end of the access hands over everything.
 * While file I/O stores, nothing is copied back.
 */
static int dbx_buffer_begin_cpu_access(struct dma_buf *dmabuf,
				       enum dma_data_direction dir)
{
	struct dbx_buffer *buf = dmabuf->priv;
	struct dbx_buffer_attachment *a;

	/* It guards the ranges that file I/O is storing into. */
	if (__is_defined(HAVE_DMA_BUF_LOAN))
		dma_resv_lock(dmabuf->resv, NULL);
	mutex_lock(&buf->lock);
	list_for_each_entry(a, &buf->attachments, list)
		if (a->dir != DMA_NONE)
			dbx_sync_rest(dmabuf, buf->storing, a->dev, &a->table,
				      a->dir);
	mutex_unlock(&buf->lock);
	if (__is_defined(HAVE_DMA_BUF_LOAN))
		dma_resv_unlock(dmabuf->resv);
	return 0;
}

/*
 * After an access that only read, nothing is handed to devices, which may have
 * stored newer data meanwhile. A bidirectional mapping may be synchronised in
 * one direction.
 */
static enum dma_data_direction dbx_end_dir(enum dma_data_direction mapped,
					   enum dma_data_direction access)
{
	return mapped == DMA_BIDIRECTIONAL && access == DMA_FROM_DEVICE ?
		DMA_FROM_DEVICE : mapped;
}

static int dbx_buffer_end_cpu_access(struct dma_buf *dmabuf,
				     enum dma_data_direction dir)
{
	struct dbx_buffer *buf = dmabuf->priv;
	struct dbx_buffer_attachment *a;

	guard(mutex)(&buf->lock);
	list_for_each_entry(a, &buf->attachments, list)
		if (a->dir != DMA_NONE)
			dma_sync_sgtable_for_device(a->dev, &a->table,
						    dbx_end_dir(a->dir, dir));
	return 0;
}

#ifdef HAVE_DMA_BUF_LOAN
/* A part of what dbx_buffer_begin_cpu_access() and the end synchronise */
void dbx_buffer_sync(struct dma_buf *dmabuf, u64 offset, u64 length,
		     enum dma_data_direction dir, bool to_device)
{
	struct dbx_buffer *buf = dmabuf->priv;
	struct dbx_buffer_attachment *a;

	guard(mutex)(&buf->lock);
	list_for_each_entry(a, &buf->attachments, list)
		if (a->dir != DMA_NONE)
			dma_buf_file_sync(a->dev, &a->table, offset, length,
					  to_device ? dbx_end_dir(a->dir, dir) :
						      a->dir,
					  to_device);
}
#endif

static int dbx_buffer_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	struct dbx_buffer *buf = dmabuf->priv;
	u64 offset = (u64)vma->vm_pgoff << PAGE_SHIFT;
	unsigned long addr = vma->vm_start;
	struct dbx_cursor cur = {};

	/* remap_pfn_range() maps contiguous memory only as private memory. */
	if (!(vma->vm_flags & (VM_SHARED | VM_MAYSHARE)))
		return -EINVAL;

	/* The dma-buf core has checked that the range is within the buffer. */
	while (addr < vma->vm_end) {
		const struct bio_vec *bv;
		unsigned long skip, size;
		int ret;

		dbx_segments_seek(&buf->segs, &cur, offset);
		bv = &buf->segs.vec[cur.index];
		skip = offset - cur.start;
		size = min(bv->bv_len - skip, vma->vm_end - addr);

		ret = remap_pfn_range(vma, addr, page_to_pfn(bv->bv_page) +
				      (skip >> PAGE_SHIFT), size,
				      vma->vm_page_prot);
		if (ret)
			return ret;
		addr += size;
		offset += size;
	}
	return 0;
}

static int dbx_buffer_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct dbx_buffer *buf = dmabuf->priv;
	unsigned long nr = 0;
	struct page **pages;
	unsigned int i, n;
	void *vaddr;

	pages = kvmalloc_array(buf->length >> PAGE_SHIFT, sizeof(*pages),
			       GFP_KERNEL);
	if (!pages)
		return -ENOMEM;
	for (i = 0; i < buf->segs.nr; i++)
		for (n = 0; n < buf->segs.vec[i].bv_len >> PAGE_SHIFT; n++)
			pages[nr++] = buf->segs.vec[i].bv_page + n;

	vaddr = vmap(pages, nr, VM_MAP, PAGE_KERNEL);
	kvfree(pages);
	if (!vaddr)
		return -ENOMEM;
	iosys_map_set_vaddr(map, vaddr);
	return 0;
}

static void dbx_buffer_vunmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	vunmap(map->vaddr);
}

static void dbx_buffer_destroy(struct dbx_buffer *buf)
{
	dbx_buffer_free(buf);
	mutex_destroy(&buf->lock);
	kfree(buf);
}

static void dbx_buffer_release(struct dma_buf *dmabuf)
{
	dbx_buffer_destroy(dmabuf->priv);
}

static const struct dma_buf_ops dbx_buffer_ops = {
	.attach = dbx_buffer_attach,
	.detach = dbx_buffer_detach,
	.map_dma_buf = dbx_buffer_map,
	.unmap_dma_buf = dbx_buffer_unmap,
	.begin_cpu_access = dbx_buffer_begin_cpu_access,
	.end_cpu_access = dbx_buffer_end_cpu_access,
	.mmap = dbx_buffer_mmap,
	.vmap = dbx_buffer_vmap,
	.vunmap = dbx_buffer_vunmap,
	.release = dbx_buffer_release,
#ifdef HAVE_DMA_BUF_LOAN
	.rw_file = dbx_buffer_rw_file,
#endif
};

/**
 * dbx_buffer_create - create a buffer without memory, and its dma-buf
 * @length: length in bytes, a multiple of the page size, not 0
 * @flags: O_RDONLY or O_RDWR
 *
 * Until every byte has been written and dbx_segments_compact() was called, user
 * space must not see the dma-buf, which owns the buffer.
 *
 * Return: the buffer or an ERR_PTR; ENOMEM if it exceeds the memory that is
 * available without the reserve and without what other buffers still have to
 * allocate.
 */
struct dbx_buffer *dbx_buffer_create(u64 length, int flags)
{
	DEFINE_DMA_BUF_EXPORT_INFO(exp_info);
	struct dbx_buffer *buf;
	int ret = -ENOMEM;

	buf = kzalloc_obj(*buf, GFP_KERNEL_ACCOUNT);
	if (!buf)
		return ERR_PTR(ret);
	buf->length = length;
	buf->max_order = MAX_PAGE_ORDER;
	mutex_init(&buf->lock);
	INIT_LIST_HEAD(&buf->attachments);

	/* Refuse now, instead of after reclaiming everything else. */
	if (!dbx_promise(buf, length >> PAGE_SHIFT))
		goto err_destroy;
	exp_info.ops = &dbx_buffer_ops;
	exp_info.size = length;
	exp_info.flags = flags;
	exp_info.priv = buf;
	/* Export now: later, the memory cgroup may be at its limit. */
	buf->dmabuf = dma_buf_export(&exp_info);
	if (!IS_ERR(buf->dmabuf))
		return buf;
	ret = PTR_ERR(buf->dmabuf);
err_destroy:
	dbx_buffer_destroy(buf);
	return ERR_PTR(ret);
}

void dbx_buffer_premap(struct dma_buf *dmabuf)
{
	struct dbx_buffer *buf = dmabuf->priv;

	guard(mutex)(&buf->lock);
	dbx_premap(&buf->segs, true);
}

const struct dbx_segments *dbx_buffer_segments(const struct dma_buf *dmabuf)
{
	const struct dbx_buffer *buf = dmabuf->priv;

	return dmabuf->ops == &dbx_buffer_ops ? &buf->segs : NULL;
}
