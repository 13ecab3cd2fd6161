// SPDX-License-Identifier: GPL-2.0-only
/*
 * Common parts of READ, WRITE and LOAD
 */
#include <linux/file.h>
#include <linux/mm.h>
#include <linux/uio.h>

#include "call.h"

static void dbx_call_count(struct dbx_call *call)
{
	atomic64_add(call->transfer.done - call->counted, &call->ctx->moved);
	call->counted = call->transfer.done;
}

static int dbx_call_stopped(struct dbx_transfer *t)
{
	struct dbx_call *call = container_of(t, struct dbx_call, transfer);

	dbx_call_count(call);
	if (READ_ONCE(call->ctx->cancelled))
		return -ECANCELED;
	return dbx_transfer_signalled(t);
}

/*
 * The CPU copies through the exporter's mapping, if there is one: it has the
 * caching that the exporter needs.
 */
static int dbx_call_lend(struct dbx_transfer *t, unsigned int slot, u64 offset,
			 size_t count, bool direct, struct iov_iter *iter)
{
	struct dbx_call *call = container_of(t, struct dbx_call, transfer);

	if (direct || !call->map.iov_base)
		return dbx_lend_segments(t, slot, offset, count, direct, iter);

	iov_iter_kvec(iter, t->rw == WRITE ? ITER_SOURCE : ITER_DEST,
		      &call->map, 1, count);
	iter->iov_offset = offset;
	return 0;
}

/**
 * dbx_call_init - prepare a transfer
 * @call: to be filled in; the caller then sets segs, and map or grow if needed
 * @ctx: context of the call
 * @fd: the file
 * @rw: READ or WRITE
 * @chunk: bytes per request, 0 for the default
 * @depth: requests in flight, 0 for the default
 *
 * Takes a reference to the file, which dbx_call_exit() drops.
 */
int dbx_call_init(struct dbx_call *call, struct dbx_context *ctx, int fd,
		  int rw, u64 chunk, u32 depth)
{
	struct file *file;
	int ret;

	call->ctx = ctx;
	call->map = (struct kvec){};
	call->counted = 0;
	if (READ_ONCE(ctx->cancelled))
		return -ECANCELED;

	/* Defaults are module parameters and may be invalid, too. */
	chunk = chunk ?: READ_ONCE(dbx_default_chunk);
	depth = depth ?: READ_ONCE(dbx_default_depth);
	if (!chunk || !PAGE_ALIGNED(chunk) || chunk > DBX_MAX_CHUNK ||
	    !depth || depth > DBX_MAX_DEPTH)
		return -EINVAL;

	file = fget(fd);
	if (!file)
		return -EBADF;

	ret = dbx_transfer_init(&call->transfer, file, rw, chunk, depth);
	if (ret) {
		fput(file);
		return ret;
	}
	call->transfer.lend = dbx_call_lend;
	call->transfer.stopped = dbx_call_stopped;
	return 0;
}

void dbx_call_exit(struct dbx_call *call)
{
	dbx_call_count(call);
	fput(call->transfer.file);
}
