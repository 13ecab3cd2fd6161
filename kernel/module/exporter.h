/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_EXPORTER_H
#define DMABUF_DIO_EXPORTER_H

#include <linux/dma-buf.h>
#include <linux/mm.h>

/* An exporter whose buffers are borrowed through their kernel mapping */
struct dio_exporter {
	const char *vmap;	/* its operation, by the name in the source */
	const char *name;	/* what its buffers are called, or NULL: anything */
	/* Begin and end of CPU access do not reach the devices that attach. */
	bool unsynced;
};

const struct dio_exporter *dio_exporter_find(const struct dma_buf *dmabuf);
bool dio_page_lendable(const struct page *page);

/* Pages from @page to the end of the folio that it is in */
static inline unsigned long dio_folio_rest(struct page *page)
{
	struct folio *folio = page_folio(page);

	return folio_nr_pages(folio) - folio_page_idx(folio, page);
}

#endif
