// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tables whose pages stay mapped for DMA, on kernels that support this: a
 * buffer behind an IOMMU is then mapped once instead of with each request
 */
#include <linux/bio-premap.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "premap.h"

/* A growing table is mapped in parts, each as long as a request. */
#define DBX_PREMAP_PART	SZ_8M

/* Vectors of a load of that size, if memory is not fragmented */
#define DBX_PREMAP_VECTORS(length)	(64 + (length) / SZ_4M)

/* A mapped part of a table, from one vector to another */
struct dbx_premap {
	struct dbx_premap *next;
	struct bio_premap *map;
};

static void dbx_premap_part(struct dbx_segments *segs, unsigned int first)
{
	struct dbx_premap *part;

	part = kmalloc_obj(*part, GFP_KERNEL_ACCOUNT);
	if (!part)
		return;
	part->map = bio_premap_create(segs->vec + first, segs->nr - first);
	part->next = segs->premap;
	/* Pairs with dbx_premap_copy(): others may use the table already. */
	smp_store_release(&segs->premap, part);
}

/**
 * dbx_premap_begin - make room for a table that grows
 * @segs: the table
 * @length: bytes that the buffer will have
 *
 * Mapped parts are not found any more once the table moves.
 */
void dbx_premap_begin(struct dbx_segments *segs, u64 length)
{
	if (!segs->max && bio_premap_wanted())
		dbx_segments_reserve(segs, DBX_PREMAP_VECTORS(length));
}

/**
 * dbx_premap - keep new pages of a table mapped, if that is of use
 * @segs: the table, whose vectors stay as they are until it is freed
 * @complete: is this all?
 */
void dbx_premap(struct dbx_segments *segs, bool complete)
{
	u64 length = segs->length - segs->premapped;

	if (!bio_premap_wanted() ||
	    length < (complete ? 1 : DBX_PREMAP_PART))
		return;
	dbx_premap_part(segs, segs->premapped_nr);
	segs->premapped = segs->length;
	segs->premapped_nr = segs->nr;
}

/**
 * dbx_premap_copy - let a copy of vectors be used as they are
 * @segs: a complete table
 * @vec: the copy, whose ends may have been cut
 * @nr: how many vectors it has
 * @first: which of the table's is the first
 *
 * Return: what dbx_premap_drop_copy() takes, or NULL.
 */
struct bio_premap *dbx_premap_copy(const struct dbx_segments *segs,
				   const struct bio_vec *vec, unsigned int nr,
				   unsigned int first)
{
	/* Pairs with dbx_premap_part(): the part is complete. */
	const struct dbx_premap *part = READ_ONCE(segs->premap);

	return part ? bio_premap_alias(part->map, vec, nr, first) : NULL;
}

void dbx_premap_drop_copy(struct bio_premap *copy)
{
	bio_premap_destroy(copy);
}

/* No request that uses the table is in flight, and its pages are not freed yet. */
void dbx_premap_drop(struct dbx_segments *segs)
{
	struct dbx_premap *part;

	while ((part = segs->premap)) {
		segs->premap = part->next;
		bio_premap_destroy(part->map);
		kfree(part);
	}
	segs->premapped = 0;
	segs->premapped_nr = 0;
}
