/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_CONTEXT_H
#define DMABUF_DIO_CONTEXT_H

#include <linux/atomic.h>
#include <linux/miscdevice.h>
#include <linux/mutex.h>

#include <linux/dmabuf_dio.h>

#include "attach.h"
#include "segments.h"

struct dbx_load;
struct io_uring_cmd;
struct seq_file;

/* An open file of the device */
struct dbx_context {
	struct mutex lock;		/* serialises ATTACH, protects cursor */
	spinlock_t load_lock;		/* protects load */
	struct dbx_attachment *att;	/* set once, released with the file */
	struct dbx_cursor cursor;	/* where the last slot began */
	struct dbx_load *load;		/* interrupted by a signal */
	bool cancelled;			/* permanently */
	/* Bytes, for fdinfo; the last two of unfinished loads */
	atomic64_t moved;
	atomic64_t loading;
	atomic64_t held;
};

/* The attachment, or NULL. Once set, it exists until the context is freed. */
static inline struct dbx_attachment *dbx_attached(struct dbx_context *ctx)
{
	/* Pairs with the release in ATTACH. */
	return smp_load_acquire(&ctx->att);
}

extern struct miscdevice dbx_device;
extern unsigned long dbx_default_chunk;
extern unsigned long dbx_default_gather;
extern unsigned int dbx_default_depth;
extern unsigned long dbx_reserve;

int dbx_rw(struct dbx_context *ctx, int rw, struct dmabuf_dio_rw *arg);
int dbx_load(struct dbx_context *ctx, struct dmabuf_dio_load *arg,
	     struct dma_buf **dmabuf);
void dbx_load_drop_paused(struct dbx_context *ctx);
void dbx_load_show(struct dbx_context *ctx, struct seq_file *m);
int dbx_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags);

#endif
