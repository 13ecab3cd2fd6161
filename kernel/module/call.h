/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_CALL_H
#define DMABUF_DIO_CALL_H

#include <linux/uio.h>

#include "context.h"
#include "transfer.h"

/* Before 7.3, a bio counts its vectors in 16 bits. */
#define DBX_MAX_CHUNK	SZ_128M
#define DBX_MAX_DEPTH	64

struct dbx_buffer;

/* A transfer requested by user space */
struct dbx_call {
	struct dbx_transfer transfer;
	struct dbx_context *ctx;
	struct kvec map;		/* the exporter's own mapping, if any */
	struct dbx_buffer *buf;		/* that LOAD is filling */
	u64 counted;			/* bytes already added to fdinfo */
};

int dbx_call_init(struct dbx_call *call, struct dbx_context *ctx, int fd,
		  int rw, u64 chunk, u32 depth);
void dbx_call_exit(struct dbx_call *call);

#endif
