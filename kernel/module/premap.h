/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_PREMAP_H
#define DMABUF_DIO_PREMAP_H

#include "segments.h"

struct bio_premap;

#ifdef HAVE_BIO_PREMAP

void dio_premap_begin(struct dio_segments *segs, u64 length);
void dio_premap(struct dio_segments *segs);
void dio_premap_grown(struct dio_segments *segs, bool complete);
struct bio_premap *dio_premap_copy(const struct dio_segments *segs,
				   const struct bio_vec *vec, unsigned int nr,
				   unsigned int first);
void dio_premap_drop_copy(struct bio_premap *copy);
void dio_premap_drop(struct dio_segments *segs);

#else

static inline void dio_premap_begin(struct dio_segments *segs, u64 length)
{
}

static inline void dio_premap(struct dio_segments *segs)
{
}

static inline void dio_premap_grown(struct dio_segments *segs, bool complete)
{
}

static inline struct bio_premap *
dio_premap_copy(const struct dio_segments *segs, const struct bio_vec *vec,
		unsigned int nr, unsigned int first)
{
	return NULL;
}

static inline void dio_premap_drop_copy(struct bio_premap *copy)
{
}

static inline void dio_premap_drop(struct dio_segments *segs)
{
}

#endif

#endif
