/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_TRANSFER_H
#define DMABUF_DIO_TRANSFER_H

#include <linux/fs.h>

#include "segments.h"

/* A transfer of a range between a file and the pages of a buffer */
struct dbx_transfer {
	struct file *file;		/* held by the caller */
	int rw;				/* READ: file to buffer, WRITE: back */
	u64 chunk;			/* bytes per request, a multiple of pages */
	unsigned int depth;		/* requests in flight */
	bool by_vfs;			/* which checks the range and notifies */

	/*
	 * Describes @count bytes of the buffer from @offset as @iter; 0 or
	 * -errno. The CPU copies them unless @direct. What the iterator points
	 * to must stay valid until the next call for the same @slot, which is
	 * less than depth.
	 */
	int (*lend)(struct dbx_transfer *t, unsigned int slot, u64 offset,
		    size_t count, bool direct, struct iov_iter *iter);
	const struct dbx_segments *segs;	/* for dbx_lend_segments() */
	struct dbx_cursor cursor;

	/*
	 * Is asked before each request. -errno, for example because of a signal,
	 * ends the transfer as soon as the requests in flight are done.
	 */
	int (*stopped)(struct dbx_transfer *t);

	/*
	 * For a buffer that is still being allocated: extends it to @end, or by
	 * one step if it is that long already, and sets length; 0 or -errno.
	 */
	int (*grow)(struct dbx_transfer *t, u64 end);
	u64 length;			/* of the buffer so far */
	u64 grow_until;			/* of the finished buffer */
	u64 gather;			/* its length before the first request */

	u64 done;			/* bytes from the start, without a gap */
	u64 direct;			/* of these, how many by O_DIRECT */
	unsigned int block;		/* unit of O_DIRECT in the file, or 0 */
	unsigned int align;		/* of memory, for O_DIRECT */
	bool misaligned;		/* the reason for EINVAL */
};

int dbx_transfer_init(struct dbx_transfer *t, struct file *file, int rw,
		      u64 chunk, unsigned int depth);
int dbx_transfer_run(struct dbx_transfer *t, u64 file_offset, u64 buf_offset,
		     u64 length);

/* For @lend: the buffer has a table of its pages. */
int dbx_lend_segments(struct dbx_transfer *t, unsigned int slot, u64 offset,
		      size_t count, bool direct, struct iov_iter *iter);

/* For @stopped: any signal ends a transfer, but not before some data has moved. */
int dbx_transfer_signalled(const struct dbx_transfer *t);

#endif
