/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_CALL_H
#define DMABUF_DIO_CALL_H

#include <linux/uio.h>

#include "context.h"
#include "transfer.h"

/* Before 7.3, a bio counts its vectors in 16 bits. */
#define DIO_MAX_CHUNK	SZ_128M
#define DIO_MAX_DEPTH	64

/* A transfer requested by user space */
struct dio_call {
	struct dio_transfer transfer;
	struct dio_context *ctx;
	struct kvec map;		/* the exporter's own mapping, if any */
	u64 counted;			/* bytes already added to fdinfo */
};

int dio_call_init(struct dio_call *call, struct dio_context *ctx, int fd,
		  int rw, u64 chunk, u32 depth);
void dio_call_exit(struct dio_call *call);

#endif
