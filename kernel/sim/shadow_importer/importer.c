// SPDX-License-Identifier: GPL-2.0-only
/*
 * An importing device for tests that is not coherent
 *
 * Open /dev/shadow_importer, pass a dma-buf with EDU_IMPORT, then read() and
 * write() what the device accesses, as with edu_importer. Each open file is a
 * device's context with one dma-buf, mapped until EDU_DROP or close.
 *
 * The "device" is a memcpy() to and from the shadow of the mapping: shadow_dma.c.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/platform_device.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "../../module/compat.h"
#include "../edu_importer/edu_importer.h"
#include "shadow_dma.h"

static struct platform_device *shadow_device;

struct importer {
	struct mutex lock;	/* one import at a time, and none while it is used */
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attachment;
	struct sg_table *table;
	enum dma_data_direction dir;
};

static ssize_t importer_read(struct file *file, char __user *ubuf,
			     size_t count, loff_t *pos)
{
	struct importer *importer = file->private_data;
	ssize_t ret = -ENOTCONN;

	mutex_lock(&importer->lock);
	if (importer->table) {
		struct scatterlist *sg = importer->table->sgl;

		ret = simple_read_from_buffer(ubuf, count, pos,
					      shadow_dma_memory(sg_dma_address(sg)),
					      sg_dma_len(sg));
	}
	mutex_unlock(&importer->lock);
	return ret;
}

static ssize_t importer_write(struct file *file, const char __user *ubuf,
			      size_t count, loff_t *pos)
{
	struct importer *importer = file->private_data;
	ssize_t ret = -ENOTCONN;

	mutex_lock(&importer->lock);
	if (importer->table) {
		struct scatterlist *sg = importer->table->sgl;

		ret = simple_write_to_buffer(shadow_dma_memory(sg_dma_address(sg)),
					     sg_dma_len(sg), pos, ubuf, count);
		if (!ret && count)
			ret = -ENOSPC;
	}
	mutex_unlock(&importer->lock);
	return ret;
}

static void importer_drop(struct importer *importer)
{
	if (!importer->table)
		return;
	dma_buf_unmap_attachment_unlocked(importer->attachment, importer->table,
					  importer->dir);
	dma_buf_detach(importer->dmabuf, importer->attachment);
	dma_buf_put(importer->dmabuf);
	importer->table = NULL;
}

static int importer_import(struct importer *importer, int fd,
			   enum dma_data_direction dir)
{
	struct dma_buf_attachment *attachment;
	struct sg_table *table;
	struct dma_buf *dmabuf;
	int ret;

	if (importer->table)
		return -EBUSY;

	dmabuf = dma_buf_get(fd);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);

	attachment = dma_buf_attach(dmabuf, &shadow_device->dev);
	if (IS_ERR(attachment)) {
		ret = PTR_ERR(attachment);
		goto err_put;
	}

	table = dma_buf_map_attachment_unlocked(attachment, dir);
	if (IS_ERR(table)) {
		ret = PTR_ERR(table);
		goto err_detach;
	}

	/* Any exporter that uses the DMA API. */
	ret = -EIO;
	if (table->nents != 1 || sg_dma_len(table->sgl) != dmabuf->size)
		goto err_unmap;

	importer->dmabuf = dmabuf;
	importer->attachment = attachment;
	importer->table = table;
	importer->dir = dir;
	return 0;

err_unmap:
	dma_buf_unmap_attachment_unlocked(attachment, table, dir);
err_detach:
	dma_buf_detach(dmabuf, attachment);
err_put:
	dma_buf_put(dmabuf);
	return ret;
}

static long importer_ioctl(struct file *file, unsigned int cmd,
			   unsigned long arg)
{
	struct importer *importer = file->private_data;
	int ret = 0;

	mutex_lock(&importer->lock);
	switch (cmd) {
	case EDU_IMPORT:
		ret = importer_import(importer, arg, DMA_BIDIRECTIONAL);
		break;
	case EDU_IMPORT_READER:
		ret = importer_import(importer, arg, DMA_TO_DEVICE);
		break;
	case EDU_IMPORT_WRITER:
		ret = importer_import(importer, arg, DMA_FROM_DEVICE);
		break;
	case EDU_DROP:
		importer_drop(importer);
		break;
	default:
		ret = -ENOTTY;
	}
	mutex_unlock(&importer->lock);
	return ret;
}

static int importer_open(struct inode *inode, struct file *file)
{
	struct importer *importer = kzalloc_obj(*importer, GFP_KERNEL);

	if (!importer)
		return -ENOMEM;
	mutex_init(&importer->lock);
	file->private_data = importer;
	return 0;
}

static int importer_release(struct inode *inode, struct file *file)
{
	struct importer *importer = file->private_data;

	importer_drop(importer);
	mutex_destroy(&importer->lock);
	kfree(importer);
	return 0;
}

static const struct file_operations importer_fops = {
	.owner = THIS_MODULE,
	.open = importer_open,
	.llseek = default_llseek,
	.read = importer_read,
	.write = importer_write,
	.unlocked_ioctl = importer_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.release = importer_release,
};

static struct miscdevice importer_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "shadow_importer",
	.fops = &importer_fops,
	.mode = 0600,
};

static int __init importer_init(void)
{
	int ret;

	shadow_device = platform_device_register_simple("shadow_importer",
							PLATFORM_DEVID_NONE,
							NULL, 0);
	if (IS_ERR(shadow_device))
		return PTR_ERR(shadow_device);

	/* The mask is set last: then the kernel notes that the device needs synchronisation. */
	shadow_dma_use(&shadow_device->dev);
	dma_set_max_seg_size(&shadow_device->dev, UINT_MAX);
	ret = dma_coerce_mask_and_coherent(&shadow_device->dev,
					   DMA_BIT_MASK(64));
	if (!ret)
		ret = misc_register(&importer_misc);
	if (ret)
		platform_device_unregister(shadow_device);
	return ret;
}
module_init(importer_init);

static void __exit importer_exit(void)
{
	misc_deregister(&importer_misc);
	platform_device_unregister(shadow_device);
}
module_exit(importer_exit);

MODULE_DESCRIPTION("dma-buf importer that is not coherent, for tests");
MODULE_LICENSE("GPL");
MODULE_INFO(import_ns, "DMA_BUF");
