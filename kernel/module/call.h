/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_CALL_H
#define DMABUF_DIO_CALL_H

#include "context.h"
#include "transfer.h"

/* A transfer that user space has asked for. */
struct dio_call {
	struct dio_transfer transfer;
	struct dio_context *ctx;
	int cancels;			/* CANCEL calls before this one */
};

int dio_call_init(struct dio_call *call, struct dio_context *ctx, int fd,
		  int rw, u64 chunk, u32 depth);
void dio_call_exit(struct dio_call *call);

#endif
