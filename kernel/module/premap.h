/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_PREMAP_H
#define DMABUF_DIO_PREMAP_H

#include "segments.h"

#ifdef HAVE_BIO_PREMAP

struct bio_premap;

void dio_premap(struct dio_segments *segs);
void dio_premap_grown(struct dio_segments *segs, bool complete);
struct bio_premap *dio_premap_copy(const struct dio_segments *segs,
				   const struct bio_vec *vec, unsigned int nr,
				   unsigned int first);
void dio_premap_drop(struct dio_segments *segs);

#else

static inline void dio_premap(struct dio_segments *segs)
{
}

static inline void dio_premap_grown(struct dio_segments *segs, bool complete)
{
}

#endif

#endif
