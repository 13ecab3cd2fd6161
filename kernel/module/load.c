// SPDX-License-Identifier: GPL-2.0-only
/*
 * LOAD: allocate a buffer and read a file into it, both at once
 */
#include <linux/err.h>
#include <linux/fcntl.h>
#include <linux/overflow.h>
#include <linux/sched.h>

#include "buffer.h"
#include "call.h"

struct dio_load {
	struct dio_call call;
	struct dio_buffer *buf;
};

static int dio_load_grow(struct dio_transfer *t, u64 end)
{
	struct dio_load *load = container_of(t, struct dio_load, call.transfer);
	int ret = 0;

	end = min(end, load->buf->length);
	while (!ret && load->buf->segs.length < end) {
		cond_resched();
		ret = t->stopped(t);
		if (!ret)
			ret = dio_buffer_grow(load->buf);
		t->length = load->buf->segs.length;
	}
	return ret;
}

/**
 * dio_load - the LOAD call
 * @ctx: context of the call
 * @arg: in and out, but for the fd
 * @dmabuf: the result, owned by the caller
 */
int dio_load(struct dio_context *ctx, struct dmabuf_dio_load *arg,
	     struct dma_buf **dmabuf)
{
	struct dio_load load;
	struct dio_transfer *t = &load.call.transfer;
	u64 end;
	int ret;

	arg->done = 0;
	arg->direct = 0;
	arg->align = 0;
	arg->segments = 0;
	arg->buf_length = 0;

	/* O_RDONLY is 0. What is neither it nor O_RDWR makes no dma-buf. */
	if (arg->flags || arg->reserved || !arg->length ||
	    arg->fd_flags & ~(O_RDWR | O_CLOEXEC))
		return -EINVAL;
	if (check_add_overflow(arg->file_offset, arg->length, &end) ||
	    end > LLONG_MAX - PAGE_SIZE)
		return -EOVERFLOW;

	ret = dio_call_init(&load.call, ctx, arg->file_fd, READ, arg->chunk,
			    arg->depth);
	if (ret)
		return ret;

	load.buf = dio_buffer_create(PAGE_ALIGN(arg->length));
	if (IS_ERR(load.buf)) {
		ret = PTR_ERR(load.buf);
		goto out_exit;
	}

	t->segs = &load.buf->segs;
	t->grow = dio_load_grow;
	t->grow_until = load.buf->length;
	t->gather = min(arg->gather ?: READ_ONCE(dio_default_gather),
			load.buf->length);
	ret = dio_transfer_run(t, arg->file_offset, 0, arg->length);
	if (ret == -EINVAL && !t->done)
		arg->align = t->align;
	arg->done = t->done;
	arg->direct = dio_call_direct(&load.call, arg->file_offset,
				      arg->length);
	if (!ret && t->done < arg->length)
		ret = -ENODATA;
	if (ret)
		goto err_destroy;

	dio_segments_zero(&load.buf->segs, arg->length);

	*dmabuf = dio_buffer_export(load.buf, arg->fd_flags & O_ACCMODE);
	if (IS_ERR(*dmabuf)) {
		ret = PTR_ERR(*dmabuf);
		goto err_destroy;
	}
	arg->segments = load.buf->segs.nr;
	arg->buf_length = load.buf->length;
	goto out_exit;

err_destroy:
	dio_buffer_destroy(load.buf);
out_exit:
	dio_call_exit(&load.call);
	return ret;
}
