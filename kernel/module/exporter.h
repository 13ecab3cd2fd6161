/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_EXPORTER_H
#define DMABUF_DIO_EXPORTER_H

#include <linux/dma-buf.h>
#include <linux/memremap.h>
#include <linux/mm.h>

/* An exporter whose buffers are borrowed through their kernel mapping */
struct dio_exporter {
	const char *vmap;	/* its operation, by the name in the source */
	const char *name;	/* what its buffers are called, or NULL: anything */
	/* Begin and end of CPU access do not reach the devices that attach. */
	bool unsynced;
	/* Begin and end of CPU access may take the reservation lock. */
	bool locks;
};

const struct dio_exporter *dio_exporter_find(const struct dma_buf *dmabuf);

/**
 * dio_pages_lendable - may the I/O path have this page?
 * @page: a page of a buffer
 *
 * What nobody has counted would be freed by whoever puts a reference that it
 * took: the tails of allocations without __GFP_COMP, all of dma_alloc_*(). What
 * is reserved may have no linear mapping, as "no-map" memory of a device tree.
 *
 * Return: how many pages from @page to the end of its folio may be had, as all
 * of a folio are alike; 0 if none.
 */
static inline unsigned long dio_pages_lendable(struct page *page)
{
	struct folio *folio = page_folio(page);

	if (is_zone_device_page(page) || PageReserved(page) ||
	    folio_test_slab(folio) || !folio_ref_count(folio))
		return 0;
	return folio_nr_pages(folio) - folio_page_idx(folio, page);
}

#endif
