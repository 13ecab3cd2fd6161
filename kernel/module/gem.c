// SPDX-License-Identifier: GPL-2.0-only
/*
 * Buffers of DRM drivers whose objects are shared memory
 *
 * drm_gem_shmem_helper.c allocates all pages of such an object when it is pinned
 * or mapped, and holds a reference to each. It purges no object that is mapped,
 * since 7.3 none that is pinned. All of DRM shares one vmap function for its
 * dma-bufs, TTM's drivers, whose buffers move, included. An object is therefore
 * known by its own functions and by its driver. The drivers were read in 6.1,
 * 6.12 and 7.3.
 */
#include <linux/device.h>
#include <linux/kallsyms.h>
#include <linux/module.h>
#include <linux/panic.h>

#include <drm/drm_drv.h>
#include <drm/drm_gem.h>
#include <drm/drm_gem_shmem_helper.h>

#include "exporter.h"

struct dbx_gem_driver {
	const char *name;	/* of its struct drm_driver */
	const char *vmap;	/* of its objects, if it is not the helper's */
	bool dma;		/* maps objects for DMA by a device of its own */
	bool syncs;		/* if it has begin and end of CPU access, for all */
};

static const struct dbx_gem_driver dbx_gem_drivers[] = {
	/* NPUs */
	{ .name = "amdxdna_accel_driver", .vmap = "amdxdna_gem_obj_vmap", .dma = true },
	{ .name = "intel_vpu", .dma = true },
	{ .name = "rocket", .dma = true },
	/* GPUs; panfrost does not pin objects that grow */
	{ .name = "panfrost", .dma = true, .syncs = true },
	{ .name = "panthor", .dma = true, .syncs = true },
	{ .name = "panthor", .vmap = "panthor_gem_vmap_locked", .dma = true,
	  .syncs = true },
	{ .name = "powervr", .dma = true },
	{ .name = "virtio_gpu", .dma = true },
	/* Displays that the CPU fills, and virtual devices */
	{ .name = "ast" },
	{ .name = "bochs-drm" },
	{ .name = "cirrus" },
	{ .name = "cirrus-qemu" },
	{ .name = "gud" },
	{ .name = "hyperv_drm" },
	{ .name = "mgag200" },
	{ .name = "simpledrm" },
	{ .name = "udl" },
	{ .name = "vgem" },
	{ .name = "vkms" },
};

static struct device *dbx_gem_device(const struct dma_buf *dmabuf)
{
	const struct drm_gem_object *obj = dmabuf->priv;

#ifdef HAVE_DRM_DEV_DMA_DEV
	return drm_dev_dma_dev(obj->dev);
#else
	return obj->dev->dev;
#endif
}

/* Neither DRM nor the driver has begin and end of CPU access. */
static const struct dbx_exporter dbx_gem_cpu = {
	.unsynced = true,
	.pins = true,
};

static const struct dbx_exporter dbx_gem_dma = {
	.own_device = dbx_gem_device,
	.unsynced = true,
	.pins = true,
};

/* Begin and end reach its own device and attached ones. */
static const struct dbx_exporter dbx_gem_synced = {
	.locks = true,
	.pins = true,
};

/*
 * Modules from elsewhere may have the names of the kernel's, and other code. What
 * has no owner is part of the kernel's image.
 */
static bool dbx_gem_in_tree(const struct module *owner)
{
	return !owner || !test_bit(TAINT_OOT_MODULE, &owner->taints);
}

static const struct dbx_gem_driver *
dbx_gem_lookup(const struct drm_gem_object *obj)
{
	const struct drm_driver *drm = obj->dev->driver;
	char symbol[KSYM_SYMBOL_LEN];
	unsigned int i;

	if (!obj->funcs || !obj->funcs->vmap || !dbx_gem_in_tree(drm->fops->owner))
		return NULL;
	sprint_symbol(symbol, (unsigned long)obj->funcs->vmap);
	/* The image uses no module; a module may have forgotten its owner. */
	if (!drm->fops->owner && strchr(symbol, '['))
		return NULL;
	for (i = 0; i < ARRAY_SIZE(dbx_gem_drivers); i++)
		if (!strcmp(drm->name, dbx_gem_drivers[i].name) &&
		    dbx_is_symbol(symbol, dbx_gem_drivers[i].vmap ? :
				  "drm_gem_shmem_object_vmap"))
			return &dbx_gem_drivers[i];
	return NULL;
}

/*
 * Elsewhere than on x86-64 the linear mapping of write-combined memory stays
 * cached, and may have lines that nobody has cleaned.
 */
static bool dbx_gem_cached(const struct drm_gem_object *obj,
			   const struct dbx_gem_driver *driver)
{
	if (IS_ENABLED(CONFIG_X86_64))
		return true;
	return !driver->vmap && !to_drm_gem_shmem_obj(obj)->map_wc;
}

/**
 * dbx_gem_find - find out whether a dma-buf of DRM holds still
 * @dmabuf: a dma-buf whose vmap function is DRM's, so that it has a GEM object
 * @refusal: set to DMABUF_DIO_REFUSED_* if it is not lent
 *
 * Return: the exporter, or NULL.
 */
const struct dbx_exporter *dbx_gem_find(const struct dma_buf *dmabuf,
					u32 *refusal)
{
	const struct drm_gem_object *obj = dmabuf->priv;
	const struct dbx_gem_driver *driver;

	*refusal = DMABUF_DIO_REFUSED_EXPORTER;
	/* Before the object is looked at */
	if (!dbx_gem_in_tree(dmabuf->owner))
		return NULL;
	driver = dbx_gem_lookup(obj);
	if (!driver)
		return NULL;
	/* Its pages may be another exporter's. */
	if (obj->import_attach || !obj->filp || obj->size != dmabuf->size ||
	    obj->resv != dmabuf->resv || !dmabuf->ops->attach)
		return NULL;

	*refusal = DMABUF_DIO_REFUSED_UNSYNCED;
	if (dmabuf->ops->begin_cpu_access || dmabuf->ops->end_cpu_access)
		return driver->syncs ? &dbx_gem_synced : NULL;
	if (!dbx_gem_cached(obj, driver))
		return NULL;
	return driver->dma ? &dbx_gem_dma : &dbx_gem_cpu;
}
