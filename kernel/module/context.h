/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_CONTEXT_H
#define DMABUF_DIO_CONTEXT_H

#include <linux/atomic.h>
#include <linux/io_uring/cmd.h>
#include <linux/miscdevice.h>
#include <linux/mutex.h>

#include <linux/dmabuf_dio.h>

#include "attach.h"
#include "segments.h"

struct dio_load;

/* An open file of the device */
struct dio_context {
	struct mutex lock;		/* serialises ATTACH, protects cursor */
	struct dio_attachment *att;	/* set once, released with the file */
	struct dio_cursor cursor;	/* where the last slot began */
	struct dio_load *load;		/* interrupted by a signal; access by xchg() */
	bool cancelled;			/* permanently */
	atomic64_t moved;		/* bytes, for fdinfo */
};

/* The attachment, or NULL. Once set, it exists until the context is freed. */
static inline struct dio_attachment *dio_attached(struct dio_context *ctx)
{
	/* Pairs with the release in ATTACH. */
	return smp_load_acquire(&ctx->att);
}

extern struct miscdevice dio_device;
extern unsigned long dio_default_chunk;
extern unsigned long dio_default_gather;
extern unsigned int dio_default_depth;

int dio_rw(struct dio_context *ctx, int rw, struct dmabuf_dio_rw *arg);
int dio_load(struct dio_context *ctx, struct dmabuf_dio_load *arg,
	     struct dma_buf **dmabuf);
void dio_load_drop(struct dio_load *load);

#ifdef HAVE_IO_BUFFER_REGISTER_BVEC
#define DIO_FEATURE_SLOTS	(DMABUF_DIO_FEATURE_SLOTS | DMABUF_DIO_FEATURE_JOIN)
#else
#define DIO_FEATURE_SLOTS	0
#endif
#ifdef HAVE_BIO_PREMAP
#define DIO_FEATURE_PREMAP	DMABUF_DIO_FEATURE_PREMAP
#else
#define DIO_FEATURE_PREMAP	0
#endif
int dio_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags);

#endif
