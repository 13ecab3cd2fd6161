// SPDX-License-Identifier: GPL-2.0-only
/*
 * Transfers take turns on a dma-buf whose exporter has no file I/O of its own
 *
 * If a device needs synchronisation, the begin of CPU access restores the state
 * of memory that the device saw. It so undoes stores of another transfer that
 * have not been handed over yet. Transfers wait for each other only in this
 * case: the wait depends on the others' files, which may never answer (FUSE).
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

#include "attach.h"
#include "buffer.h"
#include "compat.h"
#include "context.h"

/* Transfers on all buffers, in the order in which they came */
static LIST_HEAD(dbx_turns);
static DEFINE_SPINLOCK(dbx_turns_lock);
static DECLARE_WAIT_QUEUE_HEAD(dbx_turn_over);

static void dbx_turn_wish(struct dbx_turn *turn)
{
	turn->runs = false;
	spin_lock(&dbx_turns_lock);
	list_add_tail(&turn->list, &dbx_turns);
	spin_unlock(&dbx_turns_lock);
}

/* @alone: not beside others on the buffer, nor before those that wait already */
static bool dbx_turn_take(struct dbx_turn *turn, bool alone)
{
	const struct dbx_turn *other;
	bool runs = true, earlier = true;

	spin_lock(&dbx_turns_lock);
	list_for_each_entry(other, &dbx_turns, list) {
		if (!alone)
			break;
		if (other == turn)
			earlier = false;
		else if (other->dmabuf == turn->dmabuf && (other->runs || earlier))
			runs = false;
	}
	turn->runs = runs;
	spin_unlock(&dbx_turns_lock);
	return runs;
}

static void dbx_turn_leave(struct dbx_turn *turn)
{
	spin_lock(&dbx_turns_lock);
	list_del(&turn->list);
	spin_unlock(&dbx_turns_lock);
	wake_up_all(&dbx_turn_over);
}

/**
 * dbx_access_needs_sync - is a device attached that needs synchronisation?
 * @dmabuf: the dma-buf, with the reservation locked
 *
 * A device may attach at any time, so this says nothing about the future.
 */
bool dbx_access_needs_sync(struct dma_buf *dmabuf)
{
	struct dma_buf_attachment *device;

	dma_resv_assert_held(dmabuf->resv);
	/* This module attaches to have pages pinned, and maps nothing. */
	list_for_each_entry(device, &dmabuf->attachments, node)
		if (device->dev != dbx_device.this_device &&
		    dma_dev_need_sync(device->dev))
			return true;
	return false;
}

/**
 * dbx_access_wait - wait for the fences that are on the reservation
 * @turn: dmabuf and dir are set: DMA_FROM_DEVICE to read the memory, else
 *	fences of readers count too
 *
 * Once, as dma_buf_begin_cpu_access() does: devices may always add another.
 *
 * Return: 0, or -ERESTARTSYS if there is a signal, of whatever kind.
 */
int dbx_access_wait(const struct dbx_turn *turn)
{
	long ret = dma_resv_wait_timeout(turn->dmabuf->resv,
					 dma_resv_usage_rw(turn->dir != DMA_FROM_DEVICE),
					 true, MAX_SCHEDULE_TIMEOUT);

	return min(ret, 0);
}

/**
 * dbx_access_begin - dbx_access_wait(), wait for one's turn, begin CPU access
 * @turn: as for dbx_access_wait(); stays in use until dbx_access_end()
 * @locks: the exporter may lock the reservation to begin and end CPU access, and
 *	devices that are not attached may need synchronisation
 *
 * Mappings come and go with the reservation locked: each is synchronised here
 * or made afterwards, and then told from the start that I/O is storing. Before
 * 6.2 not all do: our own buffers have a lock for it, the heaps have none.
 *
 * Return: 0, -ERESTARTSYS if there is a signal, or the exporter's error.
 */
int dbx_access_begin(struct dbx_turn *turn, bool locks)
{
	struct dma_buf *dmabuf = turn->dmabuf;
	int ret;

	ret = dbx_access_wait(turn);
	if (ret)
		return ret;
	dbx_turn_wish(turn);
	for (;;) {
		ret = -ERESTARTSYS;
		if (dma_resv_lock_interruptible(dmabuf->resv, NULL))
			goto out_leave;
		if (dbx_turn_take(turn, locks || dbx_access_needs_sync(dmabuf)))
			break;
		dma_resv_unlock(dmabuf->resv);
		/* The device may go without a notice. */
		if (wait_event_interruptible_timeout(dbx_turn_over,
						     dbx_turn_take(turn, true),
						     HZ) < 0)
			goto out_leave;
	}
	ret = 0;
	if (locks)
		dma_resv_unlock(dmabuf->resv);
	if (dmabuf->ops->begin_cpu_access)
		ret = dmabuf->ops->begin_cpu_access(dmabuf, turn->dir);
	if (!ret && turn->dir != DMA_FROM_DEVICE)
		dbx_buffer_storing(dmabuf, 1);
	if (!locks)
		dma_resv_unlock(dmabuf->resv);
	if (!ret)
		return 0;
out_leave:
	dbx_turn_leave(turn);
	return ret;
}

/**
 * dbx_access_end - end CPU access and one's turn
 * @turn: after a successful dbx_access_begin()
 * @locks: as there
 */
void dbx_access_end(struct dbx_turn *turn, bool locks)
{
	struct dma_buf *dmabuf = turn->dmabuf;

	if (!locks)
		dma_resv_lock(dmabuf->resv, NULL);
	if (dmabuf->ops->end_cpu_access)
		dmabuf->ops->end_cpu_access(dmabuf, turn->dir);
	if (turn->dir != DMA_FROM_DEVICE)
		dbx_buffer_storing(dmabuf, -1);
	if (!locks)
		dma_resv_unlock(dmabuf->resv);
	dbx_turn_leave(turn);
}
