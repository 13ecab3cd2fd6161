// SPDX-License-Identifier: GPL-2.0-only
/*
 * Making a finished table small
 */
#include <linux/io.h>
#include <linux/limits.h>
#include <linux/slab.h>

#include "compact.h"

/* bv_len is an unsigned int; stay well below its end. */
#define DIO_SEGMENT_MAX	SZ_1G

/**
 * dio_segments_compact - merge what is contiguous and shrink the table
 * @segs: the table; no request may be using it
 */
void dio_segments_compact(struct dio_segments *segs)
{
	struct bio_vec *last = segs->vec, *shrunk;
	unsigned int i;

	for (i = 1; i < segs->nr; i++) {
		const struct bio_vec *bv = &segs->vec[i];

		if (page_to_phys(last->bv_page) + last->bv_len ==
		    page_to_phys(bv->bv_page) &&
		    last->bv_len + bv->bv_len <= DIO_SEGMENT_MAX)
			last->bv_len += bv->bv_len;
		else
			*++last = *bv;
	}
	segs->nr = last - segs->vec + 1;

	/* Not being able to shrink costs memory, nothing else. */
	shrunk = kvmalloc_array(segs->nr, sizeof(*shrunk),
				GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!shrunk)
		return;
	memcpy(shrunk, segs->vec, segs->nr * sizeof(*shrunk));
	kvfree(segs->vec);
	segs->vec = shrunk;
	segs->max = segs->nr;
}
