/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_COMPACT_H
#define DMABUF_DIO_COMPACT_H

#include <linux/mm.h>
#include <linux/sizes.h>

#include "segments.h"

/* bv_len is an unsigned int; stay well below its end. */
#define DIO_SEGMENT_MAX	SZ_1G

/* The last entry goes on for a page, unless it is as long as one may be. */
static inline bool dio_segments_extend(struct dio_segments *segs)
{
	if (segs->vec[segs->nr - 1].bv_len > DIO_SEGMENT_MAX - PAGE_SIZE)
		return false;
	segs->vec[segs->nr - 1].bv_len += PAGE_SIZE;
	segs->length += PAGE_SIZE;
	return true;
}

void dio_segments_compact(struct dio_segments *segs);

#endif
