// SPDX-License-Identifier: GPL-2.0-only
/*
 * What READ, WRITE and LOAD have in common
 */
#include <linux/align.h>
#include <linux/file.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>

#include "call.h"

static void dio_call_count(struct dio_call *call)
{
	atomic64_add(call->transfer.done - call->counted, &call->ctx->moved);
	call->counted = call->transfer.done;
}

static int dio_call_stopped(struct dio_transfer *t)
{
	struct dio_call *call = container_of(t, struct dio_call, transfer);

	dio_call_count(call);
	if (fatal_signal_pending(current))
		return -EINTR;
	if (atomic_read(&call->ctx->cancels) != call->cancels)
		return -ECANCELED;
	return 0;
}

/**
 * dio_call_init - prepare a transfer
 * @call: to be filled in; the caller then sets segs, and grow if needed
 * @ctx: context of the call
 * @fd: the file
 * @rw: READ or WRITE
 * @chunk: bytes per request, 0 for the default
 * @depth: requests in flight, 0 for the default
 *
 * Takes a reference to the file, which dio_call_exit() drops.
 */
int dio_call_init(struct dio_call *call, struct dio_context *ctx, int fd,
		  int rw, u64 chunk, u32 depth)
{
	struct file *file;
	int ret;

	call->ctx = ctx;
	call->cancels = atomic_read(&ctx->cancels);
	call->counted = 0;

	/* The defaults are module parameters, so they can be wrong as well. */
	chunk = chunk ?: READ_ONCE(dio_default_chunk);
	depth = depth ?: READ_ONCE(dio_default_depth);
	if (!chunk || !PAGE_ALIGNED(chunk) || chunk > DIO_MAX_CHUNK ||
	    !depth || depth > DIO_MAX_DEPTH)
		return -EINVAL;

	file = fget(fd);
	if (!file)
		return -EBADF;

	ret = dio_transfer_init(&call->transfer, file, rw, chunk, depth);
	if (ret) {
		fput(file);
		return ret;
	}
	call->transfer.lend = dio_lend_segments;
	call->transfer.stopped = dio_call_stopped;
	return 0;
}

/**
 * dio_call_direct - how much of what was moved was asked for with O_DIRECT
 * @call: the transfer is over
 * @file_offset: where it started in the file
 * @length: what was to be moved, bytes
 */
u64 dio_call_direct(const struct dio_call *call, u64 file_offset, u64 length)
{
	const struct dio_transfer *t = &call->transfer;
	u64 head, body;

	if (!t->block)
		return 0;
	/* The rest of a block is fetched directly, too. */
	if (t->rw == READ)
		return t->done;

	head = min(length, ALIGN(file_offset, t->block) - file_offset);
	body = ALIGN_DOWN(length - head, t->block);
	return t->done > head ? min(t->done - head, body) : 0;
}

void dio_call_exit(struct dio_call *call)
{
	dio_call_count(call);
	fput(call->transfer.file);
}
