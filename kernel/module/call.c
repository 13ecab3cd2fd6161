// SPDX-License-Identifier: GPL-2.0-only
/*
 * What READ, WRITE and LOAD have in common
 */
#include <linux/file.h>
#include <linux/sched/signal.h>

#include "call.h"

static int dio_call_stopped(const struct dio_transfer *t)
{
	const struct dio_call *call =
		container_of_const(t, struct dio_call, transfer);

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

	file = fget(fd);
	if (!file)
		return -EBADF;

	ret = dio_transfer_init(&call->transfer, file, rw,
				chunk ?: READ_ONCE(dio_default_chunk),
				depth ?: READ_ONCE(dio_default_depth));
	if (ret) {
		fput(file);
		return ret;
	}
	call->transfer.lend = dio_lend_segments;
	call->transfer.stopped = dio_call_stopped;
	call->transfer.moved = &ctx->moved;
	return 0;
}

void dio_call_exit(struct dio_call *call)
{
	fput(call->transfer.file);
}
