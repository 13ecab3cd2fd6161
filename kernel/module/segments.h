/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_SEGMENTS_H
#define DMABUF_DIO_SEGMENTS_H

#include <linux/bvec.h>
#include <linux/types.h>
#include <linux/uio.h>

/*
 * The pages of a buffer in buffer order, which the exporter lends and every
 * transfer borrows. Each vector starts on a page boundary and is physically
 * contiguous; only the last one may end inside a page.
 */
struct dbx_segments {
	struct bio_vec *vec;
	unsigned int nr;
	unsigned int max;
	u64 length;
	struct dbx_array *array;	/* contains vec; links to older ones */
#ifdef HAVE_BIO_PREMAP
	struct dbx_premap *premap;	/* parts that are mapped for DMA */
	u64 premapped;
	unsigned int premapped_nr;
#endif
};

/* The place in the table where the last look-up ended */
struct dbx_cursor {
	unsigned int index;
	u64 start;
};

int dbx_segments_reserve(struct dbx_segments *segs, unsigned int max);
int dbx_segments_add(struct dbx_segments *segs, struct page *page,
		     unsigned int length);
void dbx_segments_free(struct dbx_segments *segs);

void dbx_segments_seek(const struct dbx_segments *segs, struct dbx_cursor *cur,
		       u64 offset);
void dbx_segments_iter(const struct dbx_segments *segs, struct dbx_cursor *cur,
		       struct iov_iter *iter, unsigned int direction,
		       u64 offset, size_t count);
void dbx_segments_zero(const struct dbx_segments *segs, u64 offset, u64 length);

#endif
