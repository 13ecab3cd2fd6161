// SPDX-License-Identifier: GPL-2.0-only
/*
 * Buffers of DRM drivers whose objects are shared memory
 *
 * drm_gem_shmem_helper.c allocates all pages of such an object when it is pinned,
 * holds a reference to each, and purges none that is pinned. All of DRM shares one
 * vmap function for its dma-bufs, TTM's drivers, whose buffers move, included. An
 * object is therefore known by its own functions and by its driver.
 */
#include <linux/device.h>
#include <linux/kallsyms.h>
#include <linux/module.h>
#include <linux/panic.h>

#include <drm/drm_drv.h>
#include <drm/drm_gem.h>
#include <drm/drm_gem_shmem_helper.h>

#include "exporter.h"

#define DBX_GEM_HELPER	"drm_gem_shmem_object_vmap"

struct dbx_gem_driver {
	const char *name;	/* of its struct drm_driver */
	const char *vmap;	/* name of its objects' vmap function */
	bool dma;		/* maps objects for DMA by a device of its own */
};

static const struct dbx_gem_driver dbx_gem_drivers[] = {
	/* NPUs */
	{ "amdxdna_accel_driver", "amdxdna_gem_obj_vmap", .dma = true },
	{ "intel_vpu", DBX_GEM_HELPER, .dma = true },
	{ "rocket", DBX_GEM_HELPER, .dma = true },
	/* GPUs; panfrost does not pin objects that grow */
	{ "panfrost", DBX_GEM_HELPER, .dma = true },
	{ "panthor", DBX_GEM_HELPER, .dma = true },
	{ "panthor", "panthor_gem_vmap_locked", .dma = true },
	{ "powervr", DBX_GEM_HELPER, .dma = true },
	{ "virtio_gpu", DBX_GEM_HELPER, .dma = true },
	/* Displays that the CPU fills, and virtual devices */
	{ "ast", DBX_GEM_HELPER },
	{ "bochs-drm", DBX_GEM_HELPER },
	{ "cirrus", DBX_GEM_HELPER },
	{ "cirrus-qemu", DBX_GEM_HELPER },
	{ "gud", DBX_GEM_HELPER },
	{ "hyperv_drm", DBX_GEM_HELPER },
	{ "mgag200", DBX_GEM_HELPER },
	{ "simpledrm", DBX_GEM_HELPER },
	{ "udl", DBX_GEM_HELPER },
	{ "vgem", DBX_GEM_HELPER },
	{ "vkms", DBX_GEM_HELPER },
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

/* Panfrost and panthor since 7.3, for their own device and for attached ones */
static const struct dbx_exporter dbx_gem_synced = {
	.locks = true,
	.pins = true,
};

/* Other code may have the names of the kernel's. */
static bool dbx_gem_in_tree(const struct module *owner)
{
	return !owner || !test_bit(TAINT_OOT_MODULE, &owner->taints);
}

static const struct dbx_gem_driver *
dbx_gem_driver(const struct drm_gem_object *obj)
{
	char symbol[KSYM_SYMBOL_LEN];
	unsigned int i;

	if (!obj->funcs || !obj->funcs->vmap)
		return NULL;
	sprint_symbol(symbol, (unsigned long)obj->funcs->vmap);
	for (i = 0; i < ARRAY_SIZE(dbx_gem_drivers); i++)
		if (!strcmp(obj->dev->driver->name, dbx_gem_drivers[i].name) &&
		    dbx_is_symbol(symbol, dbx_gem_drivers[i].vmap))
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
	return !strcmp(driver->vmap, DBX_GEM_HELPER) &&
	       !to_drm_gem_shmem_obj(obj)->map_wc;
}

/**
 * dbx_gem_find - find out whether a dma-buf of DRM holds still
 * @dmabuf: a dma-buf whose vmap function is DRM's, so that it has a GEM object
 * @refusal: set to DMABUF_DIO_REFUSED_UNSYNCED if its caching prevents a loan
 *
 * Return: the exporter, or NULL.
 */
const struct dbx_exporter *dbx_gem_find(const struct dma_buf *dmabuf,
					u32 *refusal)
{
	const struct drm_gem_object *obj = dmabuf->priv;
	const struct dbx_gem_driver *driver = dbx_gem_driver(obj);

	if (!driver || !dbx_gem_in_tree(dmabuf->owner) ||
	    !dbx_gem_in_tree(obj->dev->driver->fops->owner))
		return NULL;
	/* Its pages may be another exporter's. */
	if (obj->import_attach || !obj->filp || obj->size != dmabuf->size ||
	    obj->resv != dmabuf->resv || !dmabuf->ops->attach)
		return NULL;
	if (dmabuf->ops->begin_cpu_access && dmabuf->ops->end_cpu_access)
		return &dbx_gem_synced;
	if (!dbx_gem_cached(obj, driver)) {
		*refusal = DMABUF_DIO_REFUSED_UNSYNCED;
		return NULL;
	}
	return driver->dma ? &dbx_gem_dma : &dbx_gem_cpu;
}
