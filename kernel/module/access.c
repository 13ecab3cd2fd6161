// SPDX-License-Identifier: GPL-2.0-only
/*
 * Taking turns on a dma-buf
 *
 * One transfer at a time: beginning CPU access may bring memory to the state
 * that a device saw, and so undo what another transfer has just stored and not
 * yet handed over. So may the end of a device's mapping, which the exporter is
 * kept from by dbx_access_set_storing().
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/mutex.h>
#include <linux/sched.h>

#include "access.h"

/**
 * dbx_access_take - wait for the fences on the reservation and for one's turn
 * @dmabuf: the dma-buf, referenced by the caller
 * @dir: DMA_FROM_DEVICE to read the memory, else fences of readers count too
 *
 * Nobody waits for a fence while it is their turn: what signals the fence may
 * be a transfer that has to have its turn first.
 *
 * Return: 0, or -ERESTARTSYS if there is a signal, of whatever kind.
 */
int dbx_access_take(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	enum dma_resv_usage usage =
		dma_resv_usage_rw(dir != DMA_FROM_DEVICE);
	struct mutex *lock = dbx_access_lock(dmabuf);
	long ret;

	for (;;) {
		ret = dma_resv_wait_timeout(dmabuf->resv, usage, true,
					    MAX_SCHEDULE_TIMEOUT);
		if (ret < 0)
			return ret;
		if (mutex_lock_interruptible(lock))
			return -ERESTARTSYS;
		if (dma_resv_test_signaled(dmabuf->resv, usage))
			return 0;
		mutex_unlock(lock);
	}
}

void dbx_access_drop(struct dma_buf *dmabuf)
{
	mutex_unlock(dbx_access_lock(dmabuf));
}

/**
 * dbx_access_begin - dbx_access_take(), then begin CPU access
 * @dmabuf: the dma-buf, referenced by the caller; its exporter does not take
 *	the reservation lock to begin and end CPU access
 * @dir: as for dma_buf_begin_cpu_access(), which would wait for fences again
 *
 * Mappings come and go with the reservation locked: each is synchronised here
 * or made afterwards, and then told from the start that I/O is storing.
 *
 * Return: as dbx_access_take(), or the exporter's error.
 */
int dbx_access_begin(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	int ret;

	ret = dbx_access_take(dmabuf, dir);
	if (ret)
		return ret;

	dma_resv_lock(dmabuf->resv, NULL);
	if (dmabuf->ops->begin_cpu_access)
		ret = dmabuf->ops->begin_cpu_access(dmabuf, dir);
	if (!ret)
		dbx_access_set_storing(dmabuf, dir != DMA_FROM_DEVICE);
	dma_resv_unlock(dmabuf->resv);
	if (ret)
		dbx_access_drop(dmabuf);
	return ret;
}

/**
 * dbx_access_end - end CPU access and one's turn
 * @dmabuf: the dma-buf, after a successful dbx_access_begin()
 * @dir: as there
 */
void dbx_access_end(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	dma_resv_lock(dmabuf->resv, NULL);
	if (dmabuf->ops->end_cpu_access)
		dmabuf->ops->end_cpu_access(dmabuf, dir);
	dbx_access_set_storing(dmabuf, false);
	dma_resv_unlock(dmabuf->resv);
	dbx_access_drop(dmabuf);
}
