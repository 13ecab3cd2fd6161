// SPDX-License-Identifier: GPL-2.0-only
/*
 * Taking turns on a dma-buf
 */
#include <linux/err.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include "access.h"
#include "compat.h"

struct dio_access {
	struct list_head list;
	struct dma_buf *dmabuf;		/* held by the attachments */
	unsigned int attachments;
	struct mutex turn;		/* held during a transfer */
};

static DEFINE_MUTEX(dio_access_lock);	/* protects the list and the counts */
static LIST_HEAD(dio_access_list);

/**
 * dio_access_get - the access of a dma-buf, made if it is the first
 * @dmabuf: the caller holds a reference until after dio_access_put()
 */
struct dio_access *dio_access_get(struct dma_buf *dmabuf)
{
	struct dio_access *access;

	mutex_lock(&dio_access_lock);
	list_for_each_entry(access, &dio_access_list, list)
		if (access->dmabuf == dmabuf)
			goto out_count;

	access = kzalloc_obj(*access);
	if (!access) {
		access = ERR_PTR(-ENOMEM);
		goto out_unlock;
	}
	access->dmabuf = dmabuf;
	mutex_init(&access->turn);
	list_add(&access->list, &dio_access_list);
out_count:
	access->attachments++;
out_unlock:
	mutex_unlock(&dio_access_lock);
	return access;
}

void dio_access_put(struct dio_access *access)
{
	mutex_lock(&dio_access_lock);
	if (!--access->attachments) {
		list_del(&access->list);
		mutex_destroy(&access->turn);
		kfree(access);
	}
	mutex_unlock(&dio_access_lock);
}

/**
 * dio_access_begin - wait for one's turn, for the fences, and for the memory
 * @access: the access
 * @dir: as for dma_buf_begin_cpu_access()
 *
 * Return: 0, or -EINTR or -ERESTARTSYS by a signal, or the exporter's error.
 */
int dio_access_begin(struct dio_access *access, enum dma_data_direction dir)
{
	int ret;

	ret = mutex_lock_killable(&access->turn);
	if (ret)
		return ret;

	ret = dma_buf_begin_cpu_access(access->dmabuf, dir);
	if (ret)
		mutex_unlock(&access->turn);
	return ret;
}

void dio_access_end(struct dio_access *access, enum dma_data_direction dir)
{
	dma_buf_end_cpu_access(access->dmabuf, dir);
	mutex_unlock(&access->turn);
}
