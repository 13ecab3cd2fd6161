/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_COMPACT_H
#define DMABUF_DIO_COMPACT_H

#include "segments.h"

/* The last entry goes on for @length bytes; no request may be using it. */
static inline void dio_segments_extend(struct dio_segments *segs,
				       unsigned int length)
{
	segs->vec[segs->nr - 1].bv_len += length;
	segs->length += length;
}

void dio_segments_compact(struct dio_segments *segs);

#endif
