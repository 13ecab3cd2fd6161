// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tables with as few vectors as the memory allows
 */
#include <linux/mm.h>
#include <linux/sizes.h>
#include <linux/string.h>

#include "lend.h"
#include "premap.h"

/* bv_len is an unsigned int; stay well below its maximum. */
#define DBX_SEGMENT_MAX	SZ_1G

/**
 * dbx_segments_extend - extend the last vector by pages that follow it in memory
 * @segs: the table
 * @page: first page
 * @length: bytes, whole pages
 *
 * Return: false if they do not follow it, or it would be too long.
 */
bool dbx_segments_extend(struct dbx_segments *segs, const struct page *page,
			 unsigned int length)
{
	struct bio_vec *last = segs->vec + segs->nr - 1;
	unsigned int pages;

	if (!segs->nr || last->bv_len + length > DBX_SEGMENT_MAX)
		return false;
	/* Adjacent in memory and, without vmemmap, in the array of struct page */
	pages = last->bv_len >> PAGE_SHIFT;
	if (last->bv_page + pages != page ||
	    page_to_pfn(last->bv_page) + pages != page_to_pfn(page))
		return false;
	last->bv_len += length;
	segs->length += length;
	return true;
}

/**
 * dbx_segments_compact - merge contiguous vectors and shrink the table
 * @segs: the table; no request may be using it
 */
void dbx_segments_compact(struct dbx_segments *segs)
{
	struct dbx_segments small = {};
	unsigned int i, nr = segs->nr;
	u64 length = segs->length;

	if (!nr)
		return;
	/* First: they must not change while they are being mapped. */
	dbx_premap_drop(segs);
	segs->nr = 1;
	for (i = 1; i < nr; i++) {
		const struct bio_vec bv = segs->vec[i];

		if (!dbx_segments_extend(segs, bv.bv_page, bv.bv_len))
			segs->vec[segs->nr++] = bv;
	}
	segs->length = length;

	/* If this fails, the table stays larger than needed. */
	if (!dbx_segments_reserve(&small, segs->nr)) {
		memcpy(small.vec, segs->vec, segs->nr * sizeof(*small.vec));
		small.nr = segs->nr;
		small.length = segs->length;
		dbx_segments_free(segs);
		*segs = small;
	}
}
