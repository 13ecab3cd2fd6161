#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# conftest.sh FEATURE COMPILER FLAGS... : prints "yes" if FEATURE compiles.
feature=$1
shift
# Errors are expected in every test but the first.
exec 3>/dev/null

case $feature in
CONTROL)
	# Exists in every kernel from 6.1 on, where files first told how direct I/O has to be aligned.
	code='#include <linux/blkdev.h>
	#include <linux/dma-buf.h>
	#include <linux/dma-mapping.h>
	#include <linux/stat.h>
	bool f(struct dma_buf *d, struct kstat *s)
	{ return d->size && s->dio_offset_align; }'
	exec 3>&2
	;;
BDEV_ITER_IS_ALIGNED)
	# Direct I/O requires every vector to consist of whole blocks (up to 7.2).
	code='#include <linux/blkdev.h>
	bool f(struct block_device *b, struct iov_iter *i)
	{ return bdev_iter_is_aligned(b, i); }'
	;;
DMA_BUF_VMAP_UNLOCKED)
	# Whoever maps a dma-buf locks the reservation, or leaves that to this function (since 6.2).
	code='#include <linux/dma-buf.h>
	int f(struct dma_buf *d, struct iosys_map *m)
	{ return dma_buf_vmap_unlocked(d, m); }'
	;;
DRM_GEM_SHMEM)
	# The headers of DRM's objects in shared memory are there, and have what is asked of them.
	code='#include <drm/drm_drv.h>
	#include <drm/drm_gem.h>
	#include <drm/drm_gem_shmem_helper.h>
	bool f(struct drm_gem_object *o)
	{ return to_drm_gem_shmem_obj(o)->map_wc && o->import_attach && o->filp && o->funcs->vmap &&
		 o->resv && o->dev->driver->name && o->dev->driver->fops; }'
	;;
DRM_DEV_DMA_DEV)
	# A DRM device may do DMA by another one.
	code='#include <drm/drm_device.h>
	struct device *f(struct drm_device *d)
	{ return drm_dev_dma_dev(d); }'
	;;
DMA_DEV_NEED_SYNC)
	# A device knows whether any of its mappings may need synchronisation (since 6.10).
	code='#include <linux/dma-mapping.h>
	bool f(struct device *d)
	{ return dma_dev_need_sync(d); }'
	;;
FOLIO_CONTAIN_HWPOISONED_PAGE)
	# Both flags of a memory error in one question (since 6.12).
	code='#include <linux/mm.h>
	bool f(struct folio *f)
	{ return folio_contain_hwpoisoned_page(f); }'
	;;
VM_FLAGS_SET)
	# The flags of a mapping are changed by functions only (since 6.3).
	code='#include <linux/mm.h>
	void f(struct vm_area_struct *v)
	{ vm_flags_set(v, VM_IO); }'
	;;
MODULE_MEMORY)
	# Where a module is loaded, in one array (since 6.4).
	code='#include <linux/module.h>
	void *f(struct module *m)
	{ return m->mem[MOD_TEXT].base; }'
	;;
DMA_BUF_RW_FILE)
	# Exporters can carry out file I/O (patch series).
	code='#include <linux/dma-buf-file.h>
	ssize_t f(struct dma_buf *d, const struct dma_buf_rw *r)
	{ return d->ops->rw_file(d, r); }'
	;;
DMA_BUF_LOAN)
	# Exporters that do so lend their pages to this module (patch series).
	code='#include <linux/dma-buf-file.h>
	int f(struct dma_buf *d, const struct dma_buf_file_ops **o)
	{ return dma_buf_loan(d, o); }'
	;;
BIO_PREMAP)
	# Tables of vectors can stay mapped for DMA (patch series).
	code='#include <linux/bio-premap.h>
	struct bio_premap *f(const struct bio_vec *v)
	{ return bio_premap_wanted() ? bio_premap_create(v, 1u) : 0; }'
	;;
IO_BUFFER_REGISTER_BVEC)
	# Any bio_vec array can become an io_uring fixed buffer.
	code='#include <linux/io_uring/cmd.h>
	int f(struct io_uring_cmd *c, const struct bio_vec *v, void (*r)(void *))
	{ return io_buffer_register_bvec(c, v, 1u, r, v ? c : 0,
					 IO_BUF_DEST | IO_BUF_SOURCE, 0u, 0u); }'
	;;
*)
	echo "conftest.sh: unknown feature $feature" >&2
	exit 1
	;;
esac

printf '%s\n' "$code" |
	"$@" -Wno-missing-prototypes -Wno-missing-declarations \
		-DKBUILD_MODNAME='"conftest"' -DKBUILD_BASENAME='"conftest"' \
		-DMODULE -x c -c -o /dev/null - >/dev/null 2>&3 && echo yes
