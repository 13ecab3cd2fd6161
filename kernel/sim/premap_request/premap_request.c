// SPDX-License-Identifier: GPL-2.0-only
/*
 * Maps a request for tests as a driver does, segment by segment, and can have a table disappear in
 * between. No owner of a table does that, so user space cannot.
 */
#include <linux/bio-premap.h>
#include <linux/bio.h>
#include <linux/blk-mq-dma.h>
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "premap_request.h"

#define BIOS	2

/* The request is not sent, so it needs no tag. */
struct mapper {
	struct request rq;
	struct bio bios[BIOS];
	struct bio_vec vecs[BIOS];
	struct bio_premap *tables[BIOS];
	struct dma_iova_state state;
	struct blk_dma_iter iter;
};

static struct device *mapper_device(struct block_device *bdev)
{
	struct device *dev = disk_to_dev(bdev->bd_disk);

	while (dev && !dev_is_pci(dev))
		dev = dev->parent;
	return dev;
}

static int mapper_create(struct mapper *m, struct block_device *bdev)
{
	struct page *page;
	int i;

	m->rq.q = bdev_get_queue(bdev);
	for (i = 0; i < BIOS; i++) {
		page = alloc_page(GFP_KERNEL);
		if (!page)
			return -ENOMEM;
		bvec_set_page(&m->vecs[i], page, PAGE_SIZE, 0);
		m->tables[i] = bio_premap_create(&m->vecs[i], 1);
		if (!m->tables[i])
			return -ENOMEM;

		/* The state of a bio after bio_iov_iter_set() and a split */
		bio_init(&m->bios[i], bdev, &m->vecs[i], 0, REQ_OP_READ);
		m->bios[i].bi_iter.bi_size = PAGE_SIZE;
		bio_set_flag(&m->bios[i], BIO_CLONED);
		m->rq.__data_len += PAGE_SIZE;
	}
	return 0;
}

static bool mapper_start(struct mapper *m, struct device *dev, int first)
{
	struct bio *last = &m->bios[!first];

	m->rq.bio = &m->bios[first];
	m->rq.bio->bi_next = last;
	m->rq.biotail = last;
	last->bi_next = NULL;
	return blk_rq_dma_map_iter_start(&m->rq, dev, &m->state, &m->iter);
}

static void mapper_destroy(struct mapper *m)
{
	int i;

	for (i = 0; i < BIOS; i++) {
		bio_premap_destroy(m->tables[i]);
		if (m->vecs[i].bv_page)
			__free_page(m->vecs[i].bv_page);
	}
}

static int mapper_map(struct mapper *m, struct device *dev, struct premap_request *call)
{
	int first = 0;
	bool more;

	more = mapper_start(m, dev, first);
	/* Addresses that happen to follow each other are one segment. Backwards they are not. */
	if (more && m->iter.len > PAGE_SIZE)
		more = mapper_start(m, dev, ++first);
	/* No mapping has to be undone: with addresses from a table there is none. */
	if (WARN_ON_ONCE(!more || m->iter.p2pdma.map != PCI_P2PDMA_MAP_BUS_ADDR))
		return -ENXIO;
	if (call->lose) {
		bio_premap_destroy(m->tables[!first]);
		m->tables[!first] = NULL;
	}
	do {
		call->segments++;
		call->bytes += m->iter.len;
	} while (blk_rq_dma_map_iter_next(&m->rq, dev, &m->iter));
	call->status = m->iter.status;
	return 0;
}

static int mapper_call(struct file *file, struct premap_request *call)
{
	struct inode *inode = file->f_mapping->host;
	struct block_device *bdev;
	struct device *dev;
	struct mapper *m;
	int ret;

	if (!S_ISBLK(inode->i_mode))
		return -ENOTBLK;
	bdev = file_bdev(file);
	dev = mapper_device(bdev);
	if (!dev)
		return -ENODEV;
	m = kzalloc_obj(*m);
	if (!m)
		return -ENOMEM;
	ret = mapper_create(m, bdev);
	if (!ret)
		ret = mapper_map(m, dev, call);
	mapper_destroy(m);
	kfree(m);
	return ret;
}

static long mapper_ioctl(struct file *unused, unsigned int cmd, unsigned long arg)
{
	struct premap_request __user *user = (void __user *)arg;
	struct premap_request call;
	struct file *file;
	int ret;

	if (cmd != PREMAP_REQUEST)
		return -ENOTTY;
	if (copy_from_user(&call, user, sizeof(call)))
		return -EFAULT;
	call.segments = 0;
	call.bytes = 0;
	call.status = 0;

	file = fget(call.disk_fd);
	if (!file)
		return -EBADF;
	ret = mapper_call(file, &call);
	fput(file);
	if (ret)
		return ret;
	return copy_to_user(user, &call, sizeof(call)) ? -EFAULT : 0;
}

static const struct file_operations mapper_fops = {
	.owner		= THIS_MODULE,
	.unlocked_ioctl	= mapper_ioctl,
};

static struct miscdevice mapper_misc = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "premap_request",
	.fops	= &mapper_fops,
	.mode	= 0600,
};
module_misc_device(mapper_misc);

MODULE_DESCRIPTION("Maps a request whose memory stays mapped, for tests");
MODULE_LICENSE("GPL");
