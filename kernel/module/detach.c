// SPDX-License-Identifier: GPL-2.0-only
/*
 * Giving back what was borrowed
 *
 * File I/O may leave references to pages behind: a network block device puts
 * them into packets, of which somebody else may have a copy. Most exporters free
 * their pages by putting theirs. cma_release() of Linux 7.3 does not care, and the
 * pages would be used for something else meanwhile.
 */
#include <linux/errno.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "attach.h"
#include "exporter.h"

static struct workqueue_struct *dio_detach_queue;

static bool dio_in_use(const struct dio_segments *segs)
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

static void dio_give_back(struct dio_attachment *att)
{
	dio_segments_free(&att->table);
	if (att->map.vaddr)
		dma_buf_vunmap_unlocked(att->dmabuf, &att->map);
	dma_buf_put(att->dmabuf);
	kfree(att);
}

static void dio_detach_later(struct dio_attachment *att)
{
	queue_delayed_work(dio_detach_queue, &att->detach, HZ / 10);
}

static void dio_detach_work(struct work_struct *work)
{
	struct dio_attachment *att = container_of(to_delayed_work(work),
						  struct dio_attachment,
						  detach);

	if (dio_in_use(&att->table)) {
		dio_detach_later(att);
		return;
	}
	dio_give_back(att);
	/* Whoever unloads the module now waits for this function to return. */
	module_put(THIS_MODULE);
}

/**
 * dio_detach - give the pages back
 * @att: the attachment; no I/O uses it
 *
 * Drops the mapping and the reference to the dma-buf, at once or when nobody else
 * refers to its pages any more. Until then the module cannot be unloaded.
 */
void dio_detach(struct dio_attachment *att)
{
	if (!att->exporter->frees || !dio_in_use(&att->table)) {
		dio_give_back(att);
		return;
	}
	/* The caller has a reference, dio_detach_work() drops this one. */
	__module_get(THIS_MODULE);
	INIT_DELAYED_WORK(&att->detach, dio_detach_work);
	dio_detach_later(att);
}

int dio_detach_init(void)
{
	dio_detach_queue = alloc_workqueue("dmabuf_dio", WQ_UNBOUND, 0);
	return dio_detach_queue ? 0 : -ENOMEM;
}

void dio_detach_exit(void)
{
	destroy_workqueue(dio_detach_queue);
}
