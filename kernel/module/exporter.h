/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_EXPORTER_H
#define DMABUF_DIO_EXPORTER_H

#include <linux/dma-buf.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/pagemap.h>

#include <linux/dmabuf_dio.h>

#include "compat.h"

/* An exporter whose buffers are borrowed through their kernel mapping */
struct dbx_exporter {
	const char *vmap;	/* name of its vmap function */
	const char *name;	/* name of its buffers, or NULL for any */
	/*
	 * The device for which it maps a buffer itself, if there is one: it is
	 * not attached, and begin and end of CPU access do not reach it.
	 */
	struct device *(*own_device)(const struct dma_buf *dmabuf);
	/* Its pages stay in place as long as the dma-buf is there, mapped or not. */
	bool stays;
	/* Its pages are allocated and stay in place while a device is attached. */
	bool pins;
	/* Begin and end of CPU access do not reach attached devices. */
	bool unsynced;
	/* Begin and end of CPU access may take the reservation lock. */
	bool locks;
	/* Its pages are freed with the dma-buf, even if others refer to them. */
	bool frees;
};

const struct dbx_exporter *dbx_exporter_find(const struct dma_buf *dmabuf,
					     u32 *refusal);
bool dbx_is_symbol(const char *symbol, const char *name);

#ifdef HAVE_DRM_GEM_SHMEM
const struct dbx_exporter *dbx_gem_find(const struct dma_buf *dmabuf,
					u32 *refusal);
#endif

/**
 * dbx_pages_lendable - may this page be lent to the I/O path?
 * @page: a page of a buffer
 * @refusal: set to the reason if it may not
 *
 * A folio of a file that is not uptodate shows old memory; fallocate() leaves
 * such folios in a memfd. The first write to the file there, or an access by a
 * mapping, zeroes it even while it is pinned. It may also have been punched out
 * since. Pages without a reference count would be freed by the first put: tails
 * of allocations without __GFP_COMP, everything from dma_alloc_*(). Reserved
 * pages may lack a linear mapping, like "no-map" memory of a device tree.
 *
 * Return: the number of lendable pages from @page to the end of its folio, in
 * which all pages are alike; 0 if @page is not lendable. In memory that is not
 * on an LRU list, such as memory of heaps, a memory error is noted in its page
 * only.
 */
static inline unsigned long dbx_pages_lendable(struct page *page, u32 *refusal)
{
	struct folio *folio = page_folio(page);

	if (is_zone_device_page(page) || PageReserved(page) ||
	    folio_test_slab(folio) || !folio_ref_count(folio))
		*refusal = DMABUF_DIO_REFUSED_PAGES;
	else if (!folio_test_uptodate(folio) &&
		 (folio_test_swapbacked(folio) || folio_mapping(folio)))
		*refusal = DMABUF_DIO_REFUSED_UNFILLED;
	else if (folio_contain_hwpoisoned_page(folio))
		*refusal = DMABUF_DIO_REFUSED_POISONED;
	else if (!folio_test_large(folio))
		return 1;
	else if (PageHWPoison(page))
		*refusal = DMABUF_DIO_REFUSED_POISONED;
	else
		return folio_nr_pages(folio) - folio_page_idx(folio, page);
	return 0;
}

#endif
