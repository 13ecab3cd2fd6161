// SPDX-License-Identifier: GPL-2.0-only
/*
 * A dma-buf exporter for tests, with properties that are allowed and that real
 * exporters have: pages that must not be reference-counted, pages that are moved
 * or freed while they are mapped, mappings with other caching than the linear
 * mapping, no kernel mapping at all
 */
#include <linux/cma.h>
#include <linux/delay.h>
#include <linux/dma-buf.h>
#include <linux/dma-map-ops.h>
#include <linux/dma-resv.h>
#include <linux/err.h>
#include <linux/highmem.h>
#include <linux/iosys-map.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pgtable.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#ifdef HAVE_IO_BUFFER_REGISTER_BVEC
#include <linux/io_uring/cmd.h>
#endif

#include "../../module/compat.h"
#include "odd_exporter.h"

#define ODD_ALL		(ODD_UNCOUNTED | ODD_RESERVED | ODD_NO_VMAP | \
			 ODD_WRITE_COMBINED | ODD_UNMAPPED | ODD_CMA | ODD_POISONED)
#define ODD_MAX_PAGES	(SZ_256M >> PAGE_SHIFT)

static ulong odd_unmapped;
module_param_named(unmapped, odd_unmapped, ulong, 0600);
MODULE_PARM_DESC(unmapped, "Physical address of memory without a linear mapping, with room for one buffer");

struct odd_buffer {
	struct mutex lock;		/* protects the fields below */
	struct page **pages;		/* NULL once they have been freed */
	unsigned int nr;
	unsigned int oddities;
	unsigned int vmaps;
	void *vaddr;			/* the latest mapping, until vunmap */
};

static unsigned int odd_order(const struct odd_buffer *buf)
{
	return buf->oddities & (ODD_UNCOUNTED | ODD_POISONED) ? ilog2(ODD_UNIT) : 0;
}

#ifdef HAVE_CMA_ALLOC
static struct page *odd_cma_alloc(unsigned int nr)
{
	struct cma *cma = dev_get_cma_area(NULL);

	return cma ? cma_alloc(cma, nr, 0, false) : NULL;
}

static void odd_cma_free(struct page *page, unsigned int nr)
{
	cma_release(dev_get_cma_area(NULL), page, nr);
}
#else
static struct page *odd_cma_alloc(unsigned int nr)
{
	return NULL;
}

static void odd_cma_free(struct page *page, unsigned int nr)
{
}
#endif

static void odd_free_pages(const struct odd_buffer *buf, struct page **pages)
{
	unsigned int i;

	if (!pages)
		return;
	if (buf->oddities & ODD_RESERVED)
		for (i = 0; i < buf->nr && pages[i]; i++)
			ClearPageReserved(pages[i]);
	if (buf->oddities & ODD_POISONED && pages[buf->nr - 1])
		ClearPageHWPoison(pages[buf->nr - 1]);
	if (buf->oddities & ODD_CMA) {
		odd_cma_free(pages[0], buf->nr);
	} else if (!(buf->oddities & ODD_UNMAPPED)) {
		for (i = 0; i < buf->nr && pages[i]; i += 1 << odd_order(buf))
			__free_pages(pages[i], odd_order(buf));
	}
	kvfree(pages);
}

static struct page **odd_alloc_pages(const struct odd_buffer *buf)
{
	gfp_t flags = GFP_KERNEL | __GFP_ZERO |
		      (buf->oddities & ODD_POISONED ? __GFP_COMP : 0);
	unsigned int i, order = odd_order(buf);
	struct page **pages;
	struct page *page;

	pages = kvcalloc(buf->nr, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return NULL;

	for (i = 0; buf->oddities & ODD_UNMAPPED && i < buf->nr; i++) {
		unsigned long pfn = PHYS_PFN(odd_unmapped) + i;

		if (!odd_unmapped || !pfn_valid(pfn)) {
			kvfree(pages);
			return NULL;
		}
		pages[i] = pfn_to_page(pfn);
	}
	if (buf->oddities & ODD_CMA) {
		page = odd_cma_alloc(buf->nr);
		if (!page) {
			kvfree(pages);
			return NULL;
		}
		for (i = 0; i < buf->nr; i++)
			pages[i] = page + i;
	}
	for (i = 0; !(buf->oddities & (ODD_UNMAPPED | ODD_CMA)) && i < buf->nr; i++) {
		/* Unless compound, only the first page has a reference count. */
		page = i & ((1 << order) - 1) ? pages[i - 1] + 1 :
			alloc_pages(flags, order);
		if (!page) {
			odd_free_pages(buf, pages);
			return NULL;
		}
		if (buf->oddities & ODD_RESERVED)
			SetPageReserved(page);
		pages[i] = page;
	}
	if (buf->oddities & ODD_POISONED)
		SetPageHWPoison(pages[buf->nr - 1]);
	return pages;
}

static vm_fault_t odd_fault(struct vm_fault *vmf)
{
	struct odd_buffer *buf = vmf->vma->vm_private_data;
	vm_fault_t ret = VM_FAULT_SIGBUS;

	mutex_lock(&buf->lock);
	if (buf->pages && vmf->pgoff < buf->nr)
		ret = vmf_insert_pfn(vmf->vma, vmf->address,
				     page_to_pfn(buf->pages[vmf->pgoff]));
	mutex_unlock(&buf->lock);
	return ret;
}

static const struct vm_operations_struct odd_vm_ops = {
	.fault = odd_fault,
};

static int odd_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
#ifdef HAVE_VM_FLAGS_SET
	vm_flags_set(vma, VM_PFNMAP | VM_IO | VM_DONTEXPAND | VM_DONTDUMP);
#else
	vma->vm_flags |= VM_PFNMAP | VM_IO | VM_DONTEXPAND | VM_DONTDUMP;
#endif
	vma->vm_private_data = dmabuf->priv;
	vma->vm_ops = &odd_vm_ops;
	return 0;
}

static int odd_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct odd_buffer *buf = dmabuf->priv;
	pgprot_t prot = PAGE_KERNEL;
	void *vaddr = NULL;

	if (buf->oddities & ODD_WRITE_COMBINED)
		prot = pgprot_writecombine(prot);
#ifdef CONFIG_X86
	/* The CPU marks accessed pages in the page table. */
	pgprot_val(prot) &= ~(pgprotval_t)(_PAGE_ACCESSED | _PAGE_DIRTY);
#endif

	mutex_lock(&buf->lock);
	buf->vmaps++;
	if (buf->pages)
		vaddr = vmap(buf->pages, buf->nr, VM_MAP, prot);
	buf->vaddr = vaddr;
	mutex_unlock(&buf->lock);
	if (!vaddr)
		return -ENOMEM;
	iosys_map_set_vaddr(map, vaddr);
	return 0;
}

/* The CMA heap is known by the name of this function. */
static int cma_heap_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	return odd_vmap(dmabuf, map);
}

static void odd_vunmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct odd_buffer *buf = dmabuf->priv;

	mutex_lock(&buf->lock);
	buf->vaddr = NULL;
	vunmap(map->vaddr);
	mutex_unlock(&buf->lock);
}

/* Pages that the CPU accessed through the kernel mapping */
static long odd_touched(struct odd_buffer *buf)
{
	long count = 0;
#ifdef CONFIG_X86
	unsigned int i, level;

	mutex_lock(&buf->lock);
	for (i = 0; buf->vaddr && i < buf->nr; i++) {
		unsigned long addr = (unsigned long)buf->vaddr + i * PAGE_SIZE;
		pte_t *pte = lookup_address(addr, &level);

		count += pte && level == PG_LEVEL_4K && pte_young(*pte);
	}
	mutex_unlock(&buf->lock);
#else
	count = -EOPNOTSUPP;
#endif
	return count;
}

/* This exporter does not support importing devices. */
static struct sg_table *odd_map(struct dma_buf_attachment *attachment,
				enum dma_data_direction dir)
{
	return ERR_PTR(-ENODEV);
}

static void odd_unmap(struct dma_buf_attachment *attachment,
		      struct sg_table *table, enum dma_data_direction dir)
{
}

static void odd_release(struct dma_buf *dmabuf)
{
	struct odd_buffer *buf = dmabuf->priv;

	odd_free_pages(buf, buf->pages);
	mutex_destroy(&buf->lock);
	kfree(buf);
}

static const struct dma_buf_ops odd_ops = {
	.map_dma_buf = odd_map,
	.unmap_dma_buf = odd_unmap,
	.mmap = odd_mmap,
	.vmap = odd_vmap,
	.vunmap = odd_vunmap,
	.release = odd_release,
};

static const struct dma_buf_ops odd_ops_no_vmap = {
	.map_dma_buf = odd_map,
	.unmap_dma_buf = odd_unmap,
	.mmap = odd_mmap,
	.release = odd_release,
};

static const struct dma_buf_ops odd_ops_cma = {
	.map_dma_buf = odd_map,
	.unmap_dma_buf = odd_unmap,
	.mmap = odd_mmap,
	.vmap = cma_heap_vmap,
	.vunmap = odd_vunmap,
	.release = odd_release,
};

static const struct dma_buf_ops *odd_ops_of(unsigned int oddities)
{
	if (oddities & ODD_NO_VMAP)
		return &odd_ops_no_vmap;
	return oddities & ODD_CMA ? &odd_ops_cma : &odd_ops;
}

static bool odd_is_ours(const struct dma_buf *dmabuf)
{
	return dmabuf->ops == &odd_ops || dmabuf->ops == &odd_ops_no_vmap ||
	       dmabuf->ops == &odd_ops_cma;
}

/* A page to which something else refers, as a packet of a network block device may */
static struct page *odd_held;

static long odd_hold(struct dma_buf *dmabuf)
{
	struct iosys_map map;
	struct page *page;
	long ret;

	ret = dma_buf_vmap_unlocked(dmabuf, &map);
	if (ret)
		return ret;
	page = is_vmalloc_addr(map.vaddr) ? vmalloc_to_page(map.vaddr) :
					    virt_to_page(map.vaddr);
	get_page(page);
	if (cmpxchg(&odd_held, NULL, page)) {
		put_page(page);
		ret = -EBUSY;
	}
	dma_buf_vunmap_unlocked(dmabuf, &map);
	return ret;
}

static long odd_let_go(void)
{
	struct page *page = xchg(&odd_held, NULL);
	long count;

	if (!page)
		return -ENOENT;
	count = page_ref_count(page);
	put_page(page);
	return count;
}

static long odd_lock(struct dma_buf *dmabuf)
{
	dma_resv_lock(dmabuf->resv, NULL);
	msleep_interruptible(60 * MSEC_PER_SEC);
	dma_resv_unlock(dmabuf->resv);
	return 0;
}

static long odd_create(const struct odd_create __user *arg)
{
	DEFINE_DMA_BUF_EXPORT_INFO(exp_info);
	struct odd_buffer *buf, fresh = {};
	struct odd_create create;
	struct dma_buf *dmabuf;
	int fd;

	if (copy_from_user(&create, arg, sizeof(create)))
		return -EFAULT;
	if (!create.pages || create.pages % ODD_UNIT ||
	    create.pages > ODD_MAX_PAGES || create.oddities & ~ODD_ALL)
		return -EINVAL;
	/* Memory that is not allocated in units */
	if (create.oddities & ODD_CMA &&
	    create.oddities & (ODD_UNCOUNTED | ODD_UNMAPPED))
		return -EINVAL;
	if (create.oddities & ODD_POISONED && create.oddities != ODD_POISONED)
		return -EINVAL;
	if (create.oddities & ODD_POISONED && !IS_ENABLED(CONFIG_MEMORY_FAILURE))
		return -EOPNOTSUPP;
#ifndef HAVE_CMA_ALLOC
	if (create.oddities & ODD_CMA)
		return -EOPNOTSUPP;
#endif

	fresh.nr = create.pages;
	fresh.oddities = create.oddities;
	fresh.pages = odd_alloc_pages(&fresh);
	if (!fresh.pages)
		return -ENOMEM;
	buf = kmemdup(&fresh, sizeof(fresh), GFP_KERNEL);
	if (!buf) {
		odd_free_pages(&fresh, fresh.pages);
		return -ENOMEM;
	}
	mutex_init(&buf->lock);

	exp_info.ops = odd_ops_of(create.oddities);
	exp_info.size = (size_t)buf->nr << PAGE_SHIFT;
	exp_info.flags = O_RDWR;
	exp_info.priv = buf;
	dmabuf = dma_buf_export(&exp_info);
	if (IS_ERR(dmabuf)) {
		odd_free_pages(buf, buf->pages);
		kfree(buf);
		return PTR_ERR(dmabuf);
	}

	fd = dma_buf_fd(dmabuf, O_CLOEXEC);
	if (fd < 0)
		dma_buf_put(dmabuf);
	return fd;
}

/* Holders of kernel mappings are not notified, as when memory is swapped out. */
static long odd_replace(struct dma_buf *dmabuf, struct page **pages)
{
	struct odd_buffer *buf = dmabuf->priv;
	struct page **old;
	unsigned int i;

	mutex_lock(&buf->lock);
	old = buf->pages;
	for (i = 0; pages && old && i < buf->nr; i++)
		copy_highpage(pages[i], old[i]);
	buf->pages = pages;
	unmap_mapping_range(dmabuf->file->f_mapping, 0, 0, 1);
	mutex_unlock(&buf->lock);
	odd_free_pages(buf, old);
	return 0;
}

static long odd_move(struct dma_buf *dmabuf)
{
	struct page **pages = odd_alloc_pages(dmabuf->priv);

	return pages ? odd_replace(dmabuf, pages) : -ENOMEM;
}

static long odd_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct dma_buf *dmabuf;
	struct odd_buffer *buf;
	long ret;

	if (cmd == ODD_CREATE)
		return odd_create((void __user *)arg);
	if (cmd == ODD_LET_GO)
		return odd_let_go();

	dmabuf = dma_buf_get(arg);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	if (cmd == ODD_HOLD) {
		ret = odd_hold(dmabuf);
		goto out_put;
	}
	if (cmd == ODD_LOCK) {
		ret = odd_lock(dmabuf);
		goto out_put;
	}
	if (!odd_is_ours(dmabuf)) {
		ret = -EINVAL;
		goto out_put;
	}
	buf = dmabuf->priv;

	switch (cmd) {
	case ODD_VMAPS:
		ret = READ_ONCE(buf->vmaps);
		break;
	case ODD_TOUCHED:
		ret = odd_touched(buf);
		break;
	case ODD_MOVE:
		ret = odd_move(dmabuf);
		break;
	case ODD_FREE:
		ret = odd_replace(dmabuf, NULL);
		break;
	default:
		ret = -ENOTTY;
	}
out_put:
	dma_buf_put(dmabuf);
	return ret;
}

#ifdef HAVE_IO_BUFFER_REGISTER_BVEC
static void odd_slot_release(void *priv)
{
	__free_page(priv);
}

/* Makes a page a fixed buffer of a ring, which is not dmabuf_dio's */
static int odd_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	const u64 *index = io_uring_sqe_cmd(cmd->sqe, u64);
	struct bio_vec bv;
	struct page *page;
	int ret;

	if (cmd->cmd_op != ODD_SLOT)
		return -ENOTTY;
	page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!page)
		return -ENOMEM;
	bvec_set_page(&bv, page, PAGE_SIZE, 0);
	ret = io_buffer_register_bvec(cmd, &bv, 1, odd_slot_release, page,
				      IO_BUF_DEST | IO_BUF_SOURCE,
				      READ_ONCE(*index), issue_flags);
	if (ret)
		__free_page(page);
	return ret;
}
#endif

static const struct file_operations odd_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = odd_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
#ifdef HAVE_IO_BUFFER_REGISTER_BVEC
	.uring_cmd = odd_uring_cmd,
#endif
};

static struct miscdevice odd_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = KBUILD_MODNAME,
	.fops = &odd_fops,
	.mode = 0600,
};
module_misc_device(odd_device);

MODULE_DESCRIPTION("dma-buf exporter with odd memory, for tests");
MODULE_LICENSE("GPL");
MODULE_INFO(import_ns, "DMA_BUF");
