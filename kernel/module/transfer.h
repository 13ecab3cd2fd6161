/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_TRANSFER_H
#define DMABUF_DIO_TRANSFER_H

#include <linux/fs.h>

#include "context.h"
#include "segments.h"

/* Before 7.3 the vectors of a bio are counted in 16 bits. */
#define DIO_MAX_CHUNK	SZ_128M
#define DIO_MAX_DEPTH	64

/* A range on its way between a file and the pages of a buffer. */
struct dio_transfer {
	struct dio_context *ctx;
	struct file *file;
	int rw;				/* READ: file to buffer, WRITE: back */
	const struct dio_segments *segs;
	u64 chunk;			/* bytes per request */
	unsigned int depth;		/* requests in flight */

	/*
	 * For a buffer that is still being allocated: makes the table reach
	 * @end, or one step further if it does already; 0 or -errno.
	 */
	int (*grow)(struct dio_transfer *t, u64 end);
	u64 grow_until;			/* length of the finished buffer */
	u64 gather;			/* let it reach this before the first request */

	/* Results */
	u64 done;			/* bytes from the start, without a gap */
	u64 direct;			/* of these, asked for with O_DIRECT */
	u32 align;			/* what EINVAL is about */

	/* Private */
	struct dio_cursor cursor;
	unsigned int block;		/* unit of O_DIRECT in the file, or 0 */
	int cancels;
};

int dio_transfer_init(struct dio_transfer *t, struct dio_context *ctx, int fd,
		      int rw, u64 chunk, u32 depth);
int dio_transfer_run(struct dio_transfer *t, u64 file_offset, u64 buf_offset,
		     u64 length);
void dio_transfer_exit(struct dio_transfer *t);

/* Has the caller been killed, or the call been cancelled? 0 or -errno. */
int dio_transfer_stopped(const struct dio_transfer *t);

#endif
