// SPDX-License-Identifier: GPL-2.0-only
/*
 * DRM drivers for tests, whose objects are shared memory
 *
 * Each device has the name of a driver of the kernel, or another one, and one
 * property that matters to whoever borrows its buffers. They make dumb buffers.
 */
#include <linux/dma-buf.h>
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/err.h>
#include <linux/module.h>
#include <linux/panic.h>
#include <linux/platform_device.h>
#include <linux/slab.h>

#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_gem.h>
#include <drm/drm_gem_shmem_helper.h>
#include <drm/drm_ioctl.h>
#include <drm/drm_prime.h>

static bool gem_write_combined;
module_param_named(write_combined, gem_write_combined, bool, 0600);
MODULE_PARM_DESC(write_combined, "Are new buffers mapped so?");

static int gem_pins;
module_param_named(pins, gem_pins, int, 0400);
MODULE_PARM_DESC(pins, "Pins less unpins");

static int gem_vmaps;
module_param_named(vmaps, gem_vmaps, int, 0400);
MODULE_PARM_DESC(vmaps, "Kernel mappings that were removed");

static uint gem_dirty;
module_param_named(dirty, gem_dirty, uint, 0400);
MODULE_PARM_DESC(dirty, "Dirty pages when the latest of them was removed");

static int gem_begun, gem_ended;
module_param_named(begun, gem_begun, int, 0400);
MODULE_PARM_DESC(begun, "How often CPU access began at panthor");
module_param_named(ended, gem_ended, int, 0400);
MODULE_PARM_DESC(ended, "How often it ended");

/* The kernel marks modules from elsewhere so, and they are not lent. */
static int gem_set_foreign(const char *value, const struct kernel_param *param)
{
	bool foreign;
	int ret = kstrtobool(value, &foreign);

	if (!ret)
		assign_bit(TAINT_OOT_MODULE, &THIS_MODULE->taints, foreign);
	return ret;
}

static const struct kernel_param_ops gem_foreign_ops = {
	.set = gem_set_foreign,
};
module_param_cb(foreign, &gem_foreign_ops, NULL, 0200);
MODULE_PARM_DESC(foreign, "Is this module none of the kernel's? At first it is");

static int gem_pin(struct drm_gem_object *obj)
{
	int ret;

	/* As panfrost's objects that grow */
	if (!strcmp(obj->dev->driver->name, "panfrost"))
		return -EINVAL;
	ret = drm_gem_shmem_object_pin(obj);
	if (!ret)
		gem_pins++;
	return ret;
}

static void gem_unpin(struct drm_gem_object *obj)
{
	gem_pins--;
	drm_gem_shmem_object_unpin(obj);
}

static void gem_vunmap(struct drm_gem_object *obj, struct iosys_map *map)
{
	struct page **pages = to_drm_gem_shmem_obj(obj)->pages;
	unsigned long i;

	gem_vmaps++;
	gem_dirty = 0;
	for (i = 0; i < obj->size >> PAGE_SHIFT; i++)
		gem_dirty += !!PageDirty(compound_head(pages[i]));
	drm_gem_shmem_object_vunmap(obj, map);
}

static int gem_begin(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	/* As panthor, which looks at the attached devices */
	dma_resv_lock(dmabuf->resv, NULL);
	gem_begun++;
	dma_resv_unlock(dmabuf->resv);
	return 0;
}

static int gem_end(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	dma_resv_lock(dmabuf->resv, NULL);
	gem_ended++;
	dma_resv_unlock(dmabuf->resv);
	return 0;
}

static const struct dma_buf_ops gem_dmabuf_ops = {
	.attach = drm_gem_map_attach,
	.detach = drm_gem_map_detach,
	.map_dma_buf = drm_gem_map_dma_buf,
	.unmap_dma_buf = drm_gem_unmap_dma_buf,
	.release = drm_gem_dmabuf_release,
	.mmap = drm_gem_dmabuf_mmap,
	.vmap = drm_gem_dmabuf_vmap,
	.vunmap = drm_gem_dmabuf_vunmap,
	.begin_cpu_access = gem_begin,
	.end_cpu_access = gem_end,
};

static struct dma_buf *gem_export(struct drm_gem_object *obj, int flags)
{
	const struct dma_buf_export_info info = {
		.exp_name = KBUILD_MODNAME,
		.owner = THIS_MODULE,
		.ops = &gem_dmabuf_ops,
		.size = obj->size,
		.flags = flags,
		.priv = obj,
		.resv = obj->resv,
	};

	if (strcmp(obj->dev->driver->name, "panthor") &&
	    strcmp(obj->dev->driver->name, "hyperv_drm"))
		return drm_gem_prime_export(obj, flags);
	return drm_gem_dmabuf_export(obj->dev, (void *)&info);
}

static const struct drm_gem_object_funcs gem_funcs = {
	.free = drm_gem_shmem_object_free,
	.export = gem_export,
	.pin = gem_pin,
	.unpin = gem_unpin,
	.get_sg_table = drm_gem_shmem_object_get_sg_table,
	.vmap = drm_gem_shmem_object_vmap,
	.vunmap = gem_vunmap,
	.mmap = drm_gem_shmem_object_mmap,
	.vm_ops = &drm_gem_shmem_vm_ops,
};

static struct drm_gem_object *gem_create(struct drm_device *drm, size_t size)
{
	struct drm_gem_shmem_object *shmem = kzalloc(sizeof(*shmem), GFP_KERNEL);

	if (!shmem)
		return ERR_PTR(-ENOMEM);
	shmem->base.funcs = &gem_funcs;
	shmem->map_wc = gem_write_combined;
	return &shmem->base;
}

DEFINE_DRM_GEM_FOPS(gem_fops);

/* DEFINE_DRM_GEM_FOPS() without the owner */
static const struct file_operations gem_ownerless_fops = {
	.open = drm_open,
	.release = drm_release,
	.unlocked_ioctl = drm_ioctl,
	.compat_ioctl = drm_compat_ioctl,
	.poll = drm_poll,
	.read = drm_read,
	.llseek = noop_llseek,
	.mmap = drm_gem_mmap,
#ifdef FOP_UNSIGNED_OFFSET
	.fop_flags = FOP_UNSIGNED_OFFSET,
#endif
};

#ifdef HAVE_DRM_DRIVER_DATE
#define GEM_DATE	.date = "20260101",
#else
#define GEM_DATE
#endif

#define GEM_DRIVER(called, file_ops)		\
{						\
	.driver_features = DRIVER_GEM,		\
	.name = called,				\
	.desc = "driver for tests",		\
	GEM_DATE				\
	.fops = (file_ops),			\
	.gem_create_object = gem_create,	\
	DRM_GEM_SHMEM_DRIVER_OPS,		\
}

static const struct drm_driver gem_drivers[] = {
	/* No driver of the kernel */
	GEM_DRIVER("gem_driver", &gem_fops),
	/* Nothing special */
	GEM_DRIVER("vkms", &gem_fops),
	/* It has forgotten that it is a module. */
	GEM_DRIVER("gud", &gem_ownerless_fops),
	/* Cannot be pinned */
	GEM_DRIVER("panfrost", &gem_fops),
	/* Begin and end of CPU access, as in Linux 7.3 */
	GEM_DRIVER("panthor", &gem_fops),
	/* The same, not as in Linux */
	GEM_DRIVER("hyperv_drm", &gem_fops),
	/* Its device needs no synchronisation at first. */
	GEM_DRIVER("powervr", &gem_fops),
	/* Its device needs it. */
	GEM_DRIVER("rocket", &gem_fops),
};

static struct platform_device *gem_parents[ARRAY_SIZE(gem_drivers)];
static struct drm_device *gem_devices[ARRAY_SIZE(gem_drivers)];

/* Not __exit: gem_init() calls it, too. */
static void gem_exit(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(gem_drivers); i++) {
		if (!IS_ERR_OR_NULL(gem_devices[i])) {
			drm_dev_unregister(gem_devices[i]);
			drm_dev_put(gem_devices[i]);
		}
		if (!IS_ERR_OR_NULL(gem_parents[i]))
			platform_device_unregister(gem_parents[i]);
	}
}

/* A device that has not set a mask counts as one that may need synchronisation. */
static int gem_set_mask(unsigned int i)
{
	struct device *dev = &gem_parents[i]->dev;

	if (!strcmp(gem_drivers[i].name, "rocket")) {
		*dev->dma_mask = DMA_BIT_MASK(24);
		return 0;
	}
	return dma_set_mask_and_coherent(dev, DMA_BIT_MASK(64));
}

#ifdef HAVE_DMA_RESET_NEED_SYNC
/* As with the first bounce buffer; setting a mask reverts it */
static int gem_set_bounces(const char *value, const struct kernel_param *param)
{
	unsigned int i;
	bool bounces;
	int ret = kstrtobool(value, &bounces);

	for (i = 0; !ret && i < ARRAY_SIZE(gem_drivers); i++) {
		if (strcmp(gem_drivers[i].name, "powervr"))
			continue;
		if (bounces)
			dma_reset_need_sync(&gem_parents[i]->dev);
		else
			ret = gem_set_mask(i);
	}
	return ret;
}

static const struct kernel_param_ops gem_bounces_ops = {
	.set = gem_set_bounces,
};
module_param_cb(bounces, &gem_bounces_ops, NULL, 0200);
MODULE_PARM_DESC(bounces, "Does powervr's own device use bounce buffers?");
#endif

static int __init gem_init(void)
{
	unsigned int i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(gem_drivers); i++) {
		gem_parents[i] = platform_device_register_simple("gem_driver", i,
								 NULL, 0);
		ret = PTR_ERR_OR_ZERO(gem_parents[i]);
		if (ret)
			goto err_remove;
		ret = gem_set_mask(i);
		if (ret)
			goto err_remove;
		gem_devices[i] = drm_dev_alloc(&gem_drivers[i],
					       &gem_parents[i]->dev);
		ret = PTR_ERR_OR_ZERO(gem_devices[i]);
		if (ret)
			goto err_remove;
		ret = drm_dev_register(gem_devices[i], 0);
		if (ret) {
			drm_dev_put(gem_devices[i]);
			gem_devices[i] = NULL;
			goto err_remove;
		}
	}
	return 0;

err_remove:
	gem_exit();
	return ret;
}
module_init(gem_init);
module_exit(gem_exit);

MODULE_DESCRIPTION("DRM drivers for tests");
MODULE_LICENSE("GPL");
