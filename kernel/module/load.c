// SPDX-License-Identifier: GPL-2.0-only
/*
 * LOAD: allocate a buffer and read a file into it at the same time
 */
#include <linux/err.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/overflow.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "buffer.h"
#include "call.h"
#include "compat.h"
#include "premap.h"

/*
 * A buffer that is being loaded. If a signal interrupts the call, this stays
 * with the context, and repeating the call continues it, also after a stop or
 * a freeze.
 */
struct dbx_load {
	struct file *file;		/* referenced, for comparison */
	u64 file_offset;
	u64 length;
	unsigned int flags;		/* of the dma-buf */
	u64 done;
	u64 direct;
	struct dbx_buffer *buf;		/* not yet visible to user space, or NULL */
};

/* The load has ended, one way or another. */
static void dbx_load_settle(struct dbx_context *ctx, struct dbx_load *load)
{
	atomic64_sub(load->buf->length, &ctx->loading);
	atomic64_sub(load->buf->segs.length, &ctx->held);
	load->buf = NULL;
}

static void dbx_load_drop(struct dbx_context *ctx, struct dbx_load *load)
{
	struct dbx_buffer *buf;

	if (!load)
		return;
	buf = load->buf;
	if (buf) {
		dbx_load_settle(ctx, load);
		/* Free memory now: the dma-buf is released only on return to user space. */
		dbx_buffer_free(buf);
		dma_buf_put(buf->dmabuf);
	}
	fput(load->file);
	kfree(load);
}

/* Stores a load, or none, in the context; returns the previous one. */
static struct dbx_load *dbx_load_swap(struct dbx_context *ctx,
				      struct dbx_load *load)
{
	spin_lock(&ctx->load_lock);
	swap(ctx->load, load);
	spin_unlock(&ctx->load_lock);
	return load;
}

void dbx_load_drop_paused(struct dbx_context *ctx)
{
	dbx_load_drop(ctx, dbx_load_swap(ctx, NULL));
}

void dbx_load_show(struct dbx_context *ctx, struct seq_file *m)
{
	seq_printf(m, "loading:\t%lld\n", atomic64_read(&ctx->loading));
	seq_printf(m, "held:\t%lld\n", atomic64_read(&ctx->held));
	spin_lock(&ctx->load_lock);
	/* Its file keeps a file system mounted. */
	if (ctx->load) {
		seq_puts(m, "paused:\t");
		seq_file_path(m, ctx->load->file, " \t\n\\");
		seq_putc(m, '\n');
	}
	spin_unlock(&ctx->load_lock);
}

static struct dbx_load *dbx_load_create(struct dbx_context *ctx, struct file *file,
					const struct dmabuf_dio_load *arg)
{
	int flags = arg->fd_flags & O_ACCMODE;
	struct dbx_buffer *buf;
	struct dbx_load *load;

	buf = dbx_buffer_create(PAGE_ALIGN(arg->length), flags);
	if (IS_ERR(buf))
		return ERR_CAST(buf);
	load = kzalloc_obj(*load, GFP_KERNEL_ACCOUNT);
	if (!load) {
		dma_buf_put(buf->dmabuf);
		return ERR_PTR(-ENOMEM);
	}
	load->file = get_file(file);	/* dropped by dbx_load_drop() */
	load->file_offset = arg->file_offset;
	load->length = arg->length;
	load->flags = flags;
	load->buf = buf;
	atomic64_add(buf->length, &ctx->loading);
	return load;
}

/* The interrupted load that this call continues, or a new one */
static struct dbx_load *dbx_load_get(struct dbx_context *ctx, struct file *file,
				     const struct dmabuf_dio_load *arg)
{
	struct dbx_load *load = dbx_load_swap(ctx, NULL);

	if (load && load->file == file && load->length == arg->length &&
	    load->file_offset == arg->file_offset &&
	    load->flags == (arg->fd_flags & O_ACCMODE))
		return load;

	dbx_load_drop(ctx, load);
	return dbx_load_create(ctx, file, arg);
}

static int dbx_load_grow(struct dbx_transfer *t, u64 end)
{
	struct dbx_call *call = container_of(t, struct dbx_call, transfer);
	struct dbx_buffer *buf = call->buf;
	int ret = 0;

	end = min(end, buf->length);
	while (!ret && buf->segs.length < end) {
		cond_resched();
		ret = t->stopped(t);
		if (!ret)
			ret = dbx_buffer_grow(buf);
		atomic64_add(buf->segs.length - t->length, &call->ctx->held);
		t->length = buf->segs.length;
		dbx_premap(&buf->segs, t->length == buf->length);
		/* The memory is kept for the call that continues. */
		if (!ret && task_sigpending(current))
			ret = -EINTR;
	}
	return ret;
}

static int dbx_load_run(struct dbx_call *call, struct dbx_load *load,
			struct dmabuf_dio_load *arg)
{
	struct dbx_transfer *t = &call->transfer;
	int ret;

	call->buf = load->buf;
	dbx_premap_begin(&load->buf->segs, load->buf->length);
	t->segs = &load->buf->segs;
	t->grow = dbx_load_grow;
	t->length = load->buf->segs.length;
	t->grow_until = load->buf->length;
	t->gather = min(arg->gather ?: READ_ONCE(dbx_default_gather),
			load->buf->length);
	ret = dbx_transfer_run(t, load->file_offset + load->done, load->done,
			       load->length - load->done);
	load->done += t->done;
	load->direct += t->direct;
	if (t->misaligned)
		arg->align = t->align;
	arg->done = load->done;
	arg->direct = load->direct;
	if (!ret && load->done < load->length)
		ret = -ENODATA;
	return ret;
}

static struct dma_buf *dbx_load_finish(struct dbx_context *ctx, struct dbx_load *load,
				       struct dmabuf_dio_load *arg)
{
	struct dbx_buffer *buf = load->buf;

	dbx_segments_zero(&buf->segs, load->length,
			  buf->segs.length - load->length);
	dbx_segments_compact(&buf->segs);
	arg->segments = buf->segs.nr;
	arg->buf_length = buf->length;
	dbx_load_settle(ctx, load);	/* the caller owns the dma-buf */
	return buf->dmabuf;
}

/**
 * dbx_load - the LOAD call
 * @ctx: context of the call
 * @arg: in and out, except the fd
 * @dmabuf: the result, owned by the caller
 */
int dbx_load(struct dbx_context *ctx, struct dmabuf_dio_load *arg,
	     struct dma_buf **dmabuf)
{
	struct dbx_call call;
	struct dbx_load *load;
	u64 end;
	int ret;

	arg->done = 0;
	arg->direct = 0;
	arg->align = 0;
	arg->segments = 0;
	arg->buf_length = 0;

	/* O_RDONLY is 0. Other access modes than it and O_RDWR are invalid. */
	if (arg->flags || arg->reserved || !arg->length ||
	    arg->fd_flags & ~(O_RDWR | O_CLOEXEC))
		return -EINVAL;
	if (check_add_overflow(arg->file_offset, arg->length, &end) ||
	    end > LLONG_MAX - PAGE_SIZE || arg->length > SIZE_MAX - PAGE_SIZE)
		return -EOVERFLOW;

	ret = dbx_call_init(&call, ctx, arg->file_fd, READ, arg->chunk,
			    arg->depth);
	if (ret)
		return ret;

	load = dbx_load_get(ctx, call.transfer.file, arg);
	if (IS_ERR(load)) {
		ret = PTR_ERR(load);
		goto out_exit;
	}

	ret = dbx_load_run(&call, load, arg);
	if (ret == -EINTR && !fatal_signal_pending(current)) {
		/* If two calls were interrupted, only one of them is kept. */
		load = dbx_load_swap(ctx, load);
		/* A CANCEL that took the lock before has not freed this one. */
		if (READ_ONCE(ctx->cancelled)) {
			dbx_load_drop_paused(ctx);
			ret = -ECANCELED;
		}
	} else if (!ret) {
		*dmabuf = dbx_load_finish(ctx, load, arg);
	}
	dbx_load_drop(ctx, load);
out_exit:
	dbx_call_exit(&call);
	return ret;
}
