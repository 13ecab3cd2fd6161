// SPDX-License-Identifier: GPL-2.0-only
/*
 * Compacting a finished table
 */
#include <linux/string.h>

#include "compact.h"
#include "premap.h"

/**
 * dbx_segments_compact - merge contiguous vectors and shrink the table
 * @segs: the table; no request may be using it
 */
void dbx_segments_compact(struct dbx_segments *segs)
{
	struct bio_vec *last = segs->vec;
	struct dbx_segments small = {};
	unsigned int i;

	if (!segs->nr)
		return;
	/* First: they must not change while they are being mapped. */
	dbx_premap_drop(segs);
	for (i = 1; i < segs->nr; i++) {
		const struct bio_vec *bv = &segs->vec[i];

		if (dbx_segments_adjoin(last, bv->bv_page, bv->bv_len))
			last->bv_len += bv->bv_len;
		else
			*++last = *bv;
	}
	segs->nr = last - segs->vec + 1;

	/* If this fails, the table stays larger than needed. */
	if (!dbx_segments_reserve(&small, segs->nr)) {
		memcpy(small.vec, segs->vec, segs->nr * sizeof(*small.vec));
		small.nr = segs->nr;
		small.length = segs->length;
		dbx_segments_free(segs);
		*segs = small;
	}
}
