// SPDX-License-Identifier: GPL-2.0-only
/*
 * Borrowing the pages of a dma-buf
 *
 * Our own buffers lend their table, and so do other exporters where the kernel
 * has a callback for that. Elsewhere the kernel mapping (vmap) is the loan: while
 * it lasts, the exporter keeps the pages in place. The sg_table of a dma-buf
 * belongs to its devices and is not looked at.
 */
#include <linux/err.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "access.h"
#include "attach.h"
#include "buffer.h"
#include "compact.h"
#include "compat.h"
#include "lend.h"

/* Memory is hot-plugged, and device memory mapped, in pieces of 2 MiB. */
#define DIO_ALIKE_PAGES	(SZ_2M / PAGE_SIZE)

/* Can storage reach this page, is it ordinary memory? */
static bool dio_page_usable(const struct page *page)
{
	return pfn_valid(page_to_pfn(page)) && !is_zone_device_page(page);
}

static int dio_walk_mapping(struct dio_attachment *att)
{
	const void *vaddr = att->map.vaddr;
	u64 length = att->dmabuf->size;
	bool vmalloc = is_vmalloc_addr(vaddr);
	unsigned long pfn, next_pfn = 0;
	bool head = false;
	struct page *page;
	u64 offset;
	int ret;

	if (!length || !PAGE_ALIGNED(vaddr) || !PAGE_ALIGNED(length) ||
	    (!vmalloc && !virt_addr_valid(vaddr)))
		return -EOPNOTSUPP;

	ret = dio_segments_init(&att->table, length);
	if (ret)
		return ret;

	for (offset = 0; offset < length; offset += PAGE_SIZE) {
		page = vmalloc ? vmalloc_to_page(vaddr + offset) :
				 virt_to_page(vaddr + offset);
		if (!page)
			goto err_free;

		pfn = page_to_pfn(page);
		if (pfn == next_pfn && pfn % DIO_ALIKE_PAGES) {
			dio_segments_extend(&att->table, PAGE_SIZE);
		} else {
			/*
			 * Linux 6.12's udmabuf maps the first page of a large
			 * folio in place of each of its pages. Elsewhere what
			 * follows a first page is the second.
			 */
			if (pfn != next_pfn && head)
				goto err_free;
			if (!dio_page_usable(page))
				goto err_free;
			dio_segments_add(&att->table, page, PAGE_SIZE);
			cond_resched();
		}
		next_pfn = pfn + 1;
		head = PageHead(page);
	}
	if (head)
		goto err_free;
	dio_segments_compact(&att->table);
	return 0;

err_free:
	dio_segments_free(&att->table);
	return -EOPNOTSUPP;
}

/**
 * dio_attach - borrow the pages of a dma-buf
 * @fd: file descriptor of the dma-buf
 *
 * The attachment holds a reference to the dma-buf, and the mapping of a foreign
 * one; dio_detach() drops both.
 *
 * Return: the attachment or an ERR_PTR, see struct dmabuf_dio_attach.
 */
struct dio_attachment *dio_attach(int fd)
{
	struct dio_attachment *att;
	int ret;

	att = kzalloc_obj(*att);
	if (!att)
		return ERR_PTR(-ENOMEM);

	att->dmabuf = dma_buf_get(fd);
	if (IS_ERR(att->dmabuf)) {
		ret = PTR_ERR(att->dmabuf);
		goto err_free;
	}

	att->access = dio_access_get(att->dmabuf);
	if (IS_ERR(att->access)) {
		ret = PTR_ERR(att->access);
		goto err_put;
	}

	att->segs = dio_buffer_segments(att->dmabuf);
	if (att->segs)
		return att;

	ret = dio_borrow(att->dmabuf, &att->table);
	if (!ret) {
		att->segs = &att->table;
		return att;
	}
	if (ret != -EOPNOTSUPP)
		goto err_access;

	ret = dma_buf_vmap_unlocked(att->dmabuf, &att->map);
	if (ret) {
		/* An exporter without the operation answers EINVAL. */
		ret = ret == -EINVAL ? -EOPNOTSUPP : ret;
		goto err_access;
	}
	if (att->map.is_iomem) {
		ret = -EOPNOTSUPP;
		goto err_vunmap;
	}

	ret = dio_walk_mapping(att);
	if (ret)
		goto err_vunmap;

	att->segs = &att->table;
	return att;

err_vunmap:
	dma_buf_vunmap_unlocked(att->dmabuf, &att->map);
err_access:
	dio_access_put(att->access);
err_put:
	dma_buf_put(att->dmabuf);
err_free:
	kfree(att);
	return ERR_PTR(ret);
}

void dio_detach(struct dio_attachment *att)
{
	dio_segments_free(&att->table);
	if (att->map.vaddr)
		dma_buf_vunmap_unlocked(att->dmabuf, &att->map);
	dio_access_put(att->access);
	dma_buf_put(att->dmabuf);
	kfree(att);
}
