/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_PREMAP_H
#define DMABUF_DIO_PREMAP_H

#include "segments.h"

struct bio_premap;

#ifdef HAVE_BIO_PREMAP

void dbx_premap_begin(struct dbx_segments *segs, u64 length);
void dbx_premap(struct dbx_segments *segs, bool complete);
struct bio_premap *dbx_premap_copy(const struct dbx_segments *segs,
				   const struct bio_vec *vec, unsigned int nr,
				   unsigned int first);
void dbx_premap_drop_copy(struct bio_premap *copy);
void dbx_premap_drop(struct dbx_segments *segs);

#else

static inline void dbx_premap_begin(struct dbx_segments *segs, u64 length)
{
}

static inline void dbx_premap(struct dbx_segments *segs, bool complete)
{
}

static inline struct bio_premap *
dbx_premap_copy(const struct dbx_segments *segs, const struct bio_vec *vec,
		unsigned int nr, unsigned int first)
{
	return NULL;
}

static inline void dbx_premap_drop_copy(struct bio_premap *copy)
{
}

static inline void dbx_premap_drop(struct dbx_segments *segs)
{
}

#endif

#endif
