/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_CALL_H
#define DMABUF_DIO_CALL_H

#include "context.h"
#include "transfer.h"

/* Before 7.3 the vectors of a bio are counted in 16 bits. */
#define DIO_MAX_CHUNK	SZ_128M
#define DIO_MAX_DEPTH	64

/* A transfer that user space has asked for. */
struct dio_call {
	struct dio_transfer transfer;
	struct dio_context *ctx;
	int cancels;			/* CANCEL calls before this one */
	u64 counted;			/* bytes that fdinfo knows of */
};

int dio_call_init(struct dio_call *call, struct dio_context *ctx, int fd,
		  int rw, u64 chunk, u32 depth);
u64 dio_call_direct(const struct dio_call *call, u64 file_offset, u64 length);
void dio_call_exit(struct dio_call *call);

#endif
