/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_EXPORTER_H
#define DMABUF_DIO_EXPORTER_H

#include <linux/dma-buf.h>
#include <linux/memremap.h>
#include <linux/mm.h>

/* An exporter whose buffers are borrowed through their kernel mapping */
struct dbx_exporter {
	const char *vmap;	/* name of its vmap function */
	const char *name;	/* name of its buffers, or NULL for any */
	/* Begin and end of CPU access do not reach attached devices. */
	bool unsynced;
	/* Begin and end of CPU access may take the reservation lock. */
	bool locks;
	/* Its pages are freed with the dma-buf, whoever refers to them. */
	bool frees;
};

const struct dbx_exporter *dbx_exporter_find(const struct dma_buf *dmabuf);

/**
 * dbx_pages_lendable - may this page be lent to the I/O path?
 * @page: a page of a buffer
 *
 * Pages without a reference count would be freed by the first put: tails of
 * allocations without __GFP_COMP, everything from dma_alloc_*(). Reserved pages
 * may lack a linear mapping, like "no-map" memory of a device tree.
 *
 * Return: the number of lendable pages from @page to the end of its folio, in
 * which all pages are alike; 0 if @page is not lendable.
 */
static inline unsigned long dbx_pages_lendable(struct page *page)
{
	struct folio *folio = page_folio(page);

	if (is_zone_device_page(page) || PageReserved(page) ||
	    folio_test_slab(folio) || !folio_ref_count(folio))
		return 0;
	return folio_nr_pages(folio) - folio_page_idx(folio, page);
}

#endif
