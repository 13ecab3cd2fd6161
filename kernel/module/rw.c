// SPDX-License-Identifier: GPL-2.0-only
/*
 * READ and WRITE: transfers between a file and the attached buffer
 */
#include <linux/dma-buf.h>
#include <linux/overflow.h>

#include "call.h"

int dbx_rw(struct dbx_context *ctx, int rw, struct dmabuf_dio_rw *arg)
{
	struct dbx_attachment *att = dbx_attached(ctx);
	struct dbx_transfer *t;
	struct dbx_turn turn;
	struct dbx_call call;
	u64 end;
	int ret, err;

	arg->done = 0;
	arg->direct = 0;
	arg->align = 0;
	arg->refusal = 0;

	if (arg->flags || arg->reserved)
		return -EINVAL;
	if (!att)
		return -ENOTCONN;
	if (!dbx_allowed(att, rw))
		return -EACCES;
	if (check_add_overflow(arg->buf_offset, arg->length, &end))
		return -EOVERFLOW;
	if (end > att->segs->length)
		return -ERANGE;

	ret = dbx_call_init(&call, ctx, arg->file_fd, rw, arg->chunk,
			    arg->depth);
	if (ret)
		return ret;
	t = &call.transfer;
	t->segs = att->segs;
	if (att->map.vaddr) {
		call.map.iov_base = att->map.vaddr;
		call.map.iov_len = att->segs->length;
	}
	if (!arg->length)
		goto out_exit;

	ret = dbx_attachment_begin(att, &turn, rw, arg->buf_offset, arg->length,
				   &arg->refusal);
	if (ret)
		goto out_exit;

	ret = dbx_transfer_run(t, arg->file_offset, arg->buf_offset,
			       arg->length);
	if (t->misaligned)
		arg->align = t->align;
	arg->done = t->done;
	arg->direct = t->direct;

	err = dbx_attachment_end(att, &turn, &arg->refusal);
	/* This error is the more serious: a device may not see the data. */
	ret = err ?: ret;
out_exit:
	dbx_call_exit(&call);
	return ret;
}
