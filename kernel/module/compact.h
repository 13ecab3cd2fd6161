/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_COMPACT_H
#define DMABUF_DIO_COMPACT_H

#include <linux/mm.h>
#include <linux/sizes.h>

#include "segments.h"

/* bv_len is an unsigned int; stay well below its maximum. */
#define DBX_SEGMENT_MAX	SZ_1G

/* Can a vector be extended by pages that follow it in the buffer? */
static inline bool dbx_segments_adjoin(const struct bio_vec *bv,
				       const struct page *page,
				       unsigned int length)
{
	unsigned int pages = bv->bv_len >> PAGE_SHIFT;

	/* Adjacent in memory and, without vmemmap, in the array of struct page */
	return bv->bv_page + pages == page &&
	       page_to_pfn(bv->bv_page) + pages == page_to_pfn(page) &&
	       bv->bv_len + length <= DBX_SEGMENT_MAX;
}

/* Extends the last vector by a page, if that is contiguous. */
static inline bool dbx_segments_extend(struct dbx_segments *segs,
				       const struct page *page)
{
	struct bio_vec *last = segs->vec + segs->nr - 1;

	if (!segs->nr || !dbx_segments_adjoin(last, page, PAGE_SIZE))
		return false;
	last->bv_len += PAGE_SIZE;
	segs->length += PAGE_SIZE;
	return true;
}

void dbx_segments_compact(struct dbx_segments *segs);

#endif
