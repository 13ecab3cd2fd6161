// SPDX-License-Identifier: GPL-2.0-only
/*
 * An importing device for tests: QEMU's "edu" PCI device
 *
 * Open /dev/edu_importer, pass a dma-buf with EDU_IMPORT, then read(): the device
 * copies every byte by DMA from the dma-buf to its internal memory of a few KiB,
 * and from there to a page of the driver. The CPU never accesses the dma-buf.
 * write() copies in the other direction. The dma-buf is mapped until EDU_DROP or
 * close.
 *
 * Registers: docs/specs/edu.txt in QEMU's source.
 */
#include <linux/completion.h>
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/interrupt.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>
#include <linux/uaccess.h>

#include "edu_importer.h"

/* Its name before 6.8 */
#ifndef PCI_IRQ_INTX
#define PCI_IRQ_INTX	PCI_IRQ_LEGACY
#endif

#define EDU_IRQ_STATUS	0x24
#define EDU_IRQ_ACK	0x64
#define EDU_DMA_SRC	0x80
#define EDU_DMA_DST	0x88
#define EDU_DMA_COUNT	0x90
#define EDU_DMA_CMD	0x98
#define  EDU_DMA_START		BIT(0)
#define  EDU_DMA_TO_MEMORY	BIT(1)
#define  EDU_DMA_IRQ		BIT(2)

#define EDU_BUFFER	0x40000
/* The device has 4 KiB, but QEMU before 8.1 cannot write the last byte. */
#define EDU_BUFFER_SIZE	SZ_2K

struct edu {
	struct pci_dev *pdev;
	void __iomem *regs;
	void *page;
	dma_addr_t page_dma;
	struct completion done;
	struct mutex lock;	/* one transfer at a time, one import at a time */
	struct miscdevice misc;
	atomic_t users;

	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attachment;
	struct sg_table *table;
	enum dma_data_direction dir;
};

static irqreturn_t edu_irq(int irq, void *data)
{
	struct edu *edu = data;
	u32 status = readl(edu->regs + EDU_IRQ_STATUS);

	if (!status)
		return IRQ_NONE;
	writel(status, edu->regs + EDU_IRQ_ACK);
	complete(&edu->done);
	return IRQ_HANDLED;
}

static int edu_dma(struct edu *edu, u64 src, u64 dst, u32 count, u32 dir)
{
	reinit_completion(&edu->done);
	writeq(src, edu->regs + EDU_DMA_SRC);
	writeq(dst, edu->regs + EDU_DMA_DST);
	writeq(count, edu->regs + EDU_DMA_COUNT);
	writel(EDU_DMA_START | EDU_DMA_IRQ | dir, edu->regs + EDU_DMA_CMD);
	/* The device takes 100 ms. */
	return wait_for_completion_timeout(&edu->done, 60 * HZ) ? 0 : -ETIMEDOUT;
}

/* The device address of @pos in the dma-buf, and the contiguous bytes there */
static dma_addr_t edu_address(struct edu *edu, u64 pos, u64 *contiguous)
{
	struct scatterlist *sg;
	unsigned int i;

	for_each_sgtable_dma_sg(edu->table, sg, i) {
		if (pos < sg_dma_len(sg)) {
			*contiguous = sg_dma_len(sg) - pos;
			return sg_dma_address(sg) + pos;
		}
		pos -= sg_dma_len(sg);
	}
	*contiguous = 0;
	return 0;
}

static ssize_t edu_move(struct edu *edu, char __user *ubuf, size_t count,
			loff_t *pos, u32 dir)
{
	dma_addr_t addr;
	u64 contiguous;
	int ret;

	if (!edu->table)
		return -ENOTCONN;
	if (*pos >= edu->dmabuf->size)
		return dir ? -ENOSPC : 0;

	addr = edu_address(edu, *pos, &contiguous);
	count = min3(count, (size_t)EDU_BUFFER_SIZE,
		     (size_t)min(contiguous, edu->dmabuf->size - *pos));
	if (!count)
		return -EIO;

	if (dir == EDU_DMA_TO_MEMORY) {
		if (copy_from_user(edu->page, ubuf, count))
			return -EFAULT;
		ret = edu_dma(edu, edu->page_dma, EDU_BUFFER, count, 0);
		if (!ret)
			ret = edu_dma(edu, EDU_BUFFER, addr, count,
				      EDU_DMA_TO_MEMORY);
	} else {
		ret = edu_dma(edu, addr, EDU_BUFFER, count, 0);
		if (!ret)
			ret = edu_dma(edu, EDU_BUFFER, edu->page_dma, count,
				      EDU_DMA_TO_MEMORY);
		if (!ret && copy_to_user(ubuf, edu->page, count))
			ret = -EFAULT;
	}
	if (ret)
		return ret;
	*pos += count;
	return count;
}

static struct edu *edu_of(struct file *file)
{
	return container_of(file->private_data, struct edu, misc);
}

/* Transfers all of the range, one device buffer at a time. */
static ssize_t edu_transfer(struct file *file, char __user *ubuf, size_t count,
			    loff_t *pos, u32 dir)
{
	struct edu *edu = edu_of(file);
	size_t done = 0;
	ssize_t ret = 0;

	if (mutex_lock_interruptible(&edu->lock))
		return -ERESTARTSYS;
	while (done < count && !fatal_signal_pending(current)) {
		ret = edu_move(edu, ubuf + done, count - done, pos, dir);
		if (ret <= 0)
			break;
		done += ret;
	}
	mutex_unlock(&edu->lock);
	return done ?: ret;
}

static ssize_t edu_read(struct file *file, char __user *ubuf, size_t count,
			loff_t *pos)
{
	return edu_transfer(file, ubuf, count, pos, 0);
}

static ssize_t edu_write(struct file *file, const char __user *ubuf,
			 size_t count, loff_t *pos)
{
	return edu_transfer(file, (char __user *)ubuf, count, pos,
			    EDU_DMA_TO_MEMORY);
}

static void edu_drop(struct edu *edu)
{
	if (!edu->table)
		return;
	dma_buf_unmap_attachment_unlocked(edu->attachment, edu->table,
					  edu->dir);
	dma_buf_detach(edu->dmabuf, edu->attachment);
	dma_buf_put(edu->dmabuf);
	edu->table = NULL;
}

static int edu_import(struct edu *edu, int fd, enum dma_data_direction dir)
{
	int ret;

	if (edu->table)
		return -EBUSY;

	edu->dmabuf = dma_buf_get(fd);
	if (IS_ERR(edu->dmabuf))
		return PTR_ERR(edu->dmabuf);

	edu->attachment = dma_buf_attach(edu->dmabuf, &edu->pdev->dev);
	if (IS_ERR(edu->attachment)) {
		ret = PTR_ERR(edu->attachment);
		goto err_put;
	}

	edu->dir = dir;
	edu->table = dma_buf_map_attachment_unlocked(edu->attachment, dir);
	if (IS_ERR(edu->table)) {
		ret = PTR_ERR(edu->table);
		edu->table = NULL;
		goto err_detach;
	}
	return 0;

err_detach:
	dma_buf_detach(edu->dmabuf, edu->attachment);
err_put:
	dma_buf_put(edu->dmabuf);
	return ret;
}

static long edu_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct edu *edu = edu_of(file);
	int ret = 0;

	mutex_lock(&edu->lock);
	switch (cmd) {
	case EDU_IMPORT:
		ret = edu_import(edu, arg, DMA_BIDIRECTIONAL);
		break;
	case EDU_IMPORT_READER:
		ret = edu_import(edu, arg, DMA_TO_DEVICE);
		break;
	case EDU_IMPORT_WRITER:
		ret = edu_import(edu, arg, DMA_FROM_DEVICE);
		break;
	case EDU_DROP:
		edu_drop(edu);
		break;
	default:
		ret = -ENOTTY;
	}
	mutex_unlock(&edu->lock);
	return ret;
}

/* A single user, so that closing does not drop the import of another one */
static int edu_open(struct inode *inode, struct file *file)
{
	return atomic_cmpxchg(&edu_of(file)->users, 0, 1) ? -EBUSY : 0;
}

static int edu_release(struct inode *inode, struct file *file)
{
	struct edu *edu = edu_of(file);

	mutex_lock(&edu->lock);
	edu_drop(edu);
	mutex_unlock(&edu->lock);
	atomic_set(&edu->users, 0);
	return 0;
}

static const struct file_operations edu_fops = {
	.owner = THIS_MODULE,
	.open = edu_open,
	.llseek = default_llseek,
	.read = edu_read,
	.write = edu_write,
	.unlocked_ioctl = edu_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.release = edu_release,
};

static void edu_free_vectors(void *pdev)
{
	pci_free_irq_vectors(pdev);
}

static int edu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct device *dev = &pdev->dev;
	struct edu *edu;
	int ret;

	edu = devm_kzalloc(dev, sizeof(*edu), GFP_KERNEL);
	if (!edu)
		return -ENOMEM;
	edu->pdev = pdev;
	mutex_init(&edu->lock);
	init_completion(&edu->done);

	ret = pcim_enable_device(pdev);
	if (ret)
		return ret;
	edu->regs = pcim_iomap(pdev, 0, 0);
	if (!edu->regs)
		return -ENOMEM;
	pci_set_master(pdev);

	ret = dma_set_mask_and_coherent(dev, DMA_BIT_MASK(64));
	if (ret)
		return ret;
	dma_set_max_seg_size(dev, UINT_MAX);
	edu->page = dmam_alloc_coherent(dev, EDU_BUFFER_SIZE, &edu->page_dma,
					GFP_KERNEL);
	if (!edu->page)
		return -ENOMEM;

	ret = pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_MSI | PCI_IRQ_INTX);
	if (ret < 0)
		return ret;
	ret = devm_add_action_or_reset(dev, edu_free_vectors, pdev);
	if (ret)
		return ret;
	ret = devm_request_irq(dev, pci_irq_vector(pdev, 0), edu_irq,
			       IRQF_SHARED, KBUILD_MODNAME, edu);
	if (ret)
		return ret;

	edu->misc = (struct miscdevice){
		.minor = MISC_DYNAMIC_MINOR,
		.name = KBUILD_MODNAME,
		.fops = &edu_fops,
		.mode = 0600,
	};
	ret = misc_register(&edu->misc);
	if (ret)
		return ret;
	pci_set_drvdata(pdev, edu);
	return 0;
}

static void edu_remove(struct pci_dev *pdev)
{
	struct edu *edu = pci_get_drvdata(pdev);

	misc_deregister(&edu->misc);
}

static const struct pci_device_id edu_ids[] = {
	{ PCI_DEVICE(0x1234, 0x11e8) },
	{}
};
MODULE_DEVICE_TABLE(pci, edu_ids);

static struct pci_driver edu_driver = {
	.name = KBUILD_MODNAME,
	.id_table = edu_ids,
	.probe = edu_probe,
	.remove = edu_remove,
	/* Unbinding would free memory that open files use. */
	.driver.suppress_bind_attrs = true,
};
module_pci_driver(edu_driver);

MODULE_DESCRIPTION("dma-buf importer on QEMU's edu device, for tests");
MODULE_LICENSE("GPL");
MODULE_INFO(import_ns, "DMA_BUF");
