// SPDX-License-Identifier: GPL-2.0-only
/*
 * LOAD: allocate a buffer and read a file into it, both at once
 */
#include <linux/err.h>
#include <linux/fcntl.h>
#include <linux/overflow.h>
#include <linux/sched.h>

#include "buffer.h"
#include "context.h"
#include "transfer.h"

struct dio_load {
	struct dio_transfer transfer;
	struct dio_buffer *buf;
};

static int dio_load_grow(struct dio_transfer *t, u64 end)
{
	struct dio_load *load = container_of(t, struct dio_load, transfer);
	int ret = 0;

	end = min(end, load->buf->length);
	while (!ret && load->buf->segs.length < end) {
		cond_resched();
		ret = dio_transfer_stopped(t);
		if (!ret)
			ret = dio_buffer_grow(load->buf);
	}
	return ret;
}

static void dio_zero_tail(const struct dio_segments *segs, u64 offset)
{
	struct dio_cursor cur = {};
	struct iov_iter iter;

	dio_segments_iter(segs, &cur, &iter, ITER_DEST, offset,
			  segs->length - offset);
	iov_iter_zero(segs->length - offset, &iter);
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
	struct dio_transfer *t = &load.transfer;
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

	ret = dio_transfer_init(t, ctx, arg->file_fd, READ, arg->chunk,
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
	arg->direct = t->direct;
	if (!ret && t->done < arg->length)
		ret = -ENODATA;
	if (ret)
		goto err_destroy;

	if (arg->length < load.buf->length)
		dio_zero_tail(&load.buf->segs, arg->length);

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
	dio_transfer_exit(t);
	return ret;
}
