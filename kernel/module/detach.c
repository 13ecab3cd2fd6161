// SPDX-License-Identifier: GPL-2.0-only
/*
 * Gives borrowed pages back
 *
 * File I/O may leave references to pages behind: a network block device puts
 * pages into packets, and another layer may have a copy of a packet. Most
 * exporters free their pages by putting their own reference. cma_release() of
 * Linux 7.3 ignores other references, and the pages would be used for something
 * else.
 */
#include <linux/errno.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "attach.h"
#include "compat.h"
#include "exporter.h"

static struct workqueue_struct *dbx_detach_queue;

static bool dbx_in_use(const struct dbx_segments *segs)
{
	unsigned int i, n;

	for (i = 0; i < segs->nr; i++) {
		const struct bio_vec *bv = &segs->vec[i];

		for (n = 0; n < bv->bv_len >> PAGE_SHIFT; n++) {
			if (page_ref_count(bv->bv_page + n) > 1)
				return true;
		}
		cond_resched();
	}
	return false;
}

/* DMA does not mark folios of a file as dirty: reclaim would drop stored data. */
static void dbx_mark_dirty(const struct dbx_segments *segs)
{
	unsigned int i;

	for (i = 0; i < segs->nr; i++) {
		struct page *page = segs->vec[i].bv_page;
		struct page *end = page + (segs->vec[i].bv_len >> PAGE_SHIFT);

		while (page < end) {
			struct folio *folio = page_folio(page);

			if (folio_mapping(folio))
				set_page_dirty_lock(page);
			page += folio_nr_pages(folio) -
				folio_page_idx(folio, page);
		}
		cond_resched();
	}
}

static void dbx_give_back(struct dbx_attachment *att)
{
	if (att->stored && !att->loan)
		dbx_mark_dirty(&att->table);
	dbx_segments_free(&att->table);
	if (att->map.vaddr)
		dma_buf_vunmap_unlocked(att->dmabuf, &att->map);
	if (att->pin)
		dma_buf_detach(att->dmabuf, att->pin);
	dma_buf_put(att->dmabuf);
	kfree(att);
}

static void dbx_detach_later(struct dbx_attachment *att)
{
	queue_delayed_work(dbx_detach_queue, &att->detach, HZ / 10);
}

static void dbx_detach_work(struct work_struct *work)
{
	struct dbx_attachment *att = container_of(to_delayed_work(work),
						  struct dbx_attachment,
						  detach);

	if (dbx_in_use(&att->table)) {
		dbx_detach_later(att);
		return;
	}
	dbx_give_back(att);
	/* Unloading the module waits for this function to return from now on. */
	module_put(THIS_MODULE);
}

/**
 * dbx_detach - give the pages back
 * @att: the attachment; no I/O uses it
 *
 * Drops the mapping and the reference to the dma-buf, at once or when no other
 * reference to its pages is left. Until then the module cannot be unloaded.
 */
void dbx_detach(struct dbx_attachment *att)
{
	if (!att->exporter->frees || !dbx_in_use(&att->table)) {
		dbx_give_back(att);
		return;
	}
	/* The caller has a reference, dbx_detach_work() drops this one. */
	__module_get(THIS_MODULE);
	INIT_DELAYED_WORK(&att->detach, dbx_detach_work);
	dbx_detach_later(att);
}

int dbx_detach_init(void)
{
	dbx_detach_queue = alloc_workqueue("dmabuf_dio", WQ_UNBOUND, 0);
	return dbx_detach_queue ? 0 : -ENOMEM;
}

void dbx_detach_exit(void)
{
	destroy_workqueue(dbx_detach_queue);
}
