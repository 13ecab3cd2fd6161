// SPDX-License-Identifier: GPL-2.0-only
/*
 * A disk with inline encryption hardware, for tests of the block layer
 *
 * Writing an offset to the parameter read_at reads a data unit of 512 bytes,
 * with an encryption context, to this offset in a page. The disk exists only
 * for that. It supports DMA to any multiple of 4, but encrypts only data that
 * is aligned to a data unit. The write fails as the read does, or with EILSEQ
 * if the hardware gets an unaligned data unit.
 */
#include <linux/bio.h>
#include <linux/blk-crypto-profile.h>
#include <linux/blk-crypto.h>
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/module.h>

#define UNIT	512

static int crypt_program(struct blk_crypto_profile *profile,
			 const struct blk_crypto_key *key, unsigned int slot)
{
	return 0;
}

static const struct blk_crypto_ll_ops crypt_ops = {
	.keyslot_program = crypt_program,
	.keyslot_evict = crypt_program,
};

static blk_status_t crypt_queue_rq(struct blk_mq_hw_ctx *hctx,
				   const struct blk_mq_queue_data *queue)
{
	blk_status_t status = BLK_STS_OK;
	struct req_iterator iter;
	struct bio_vec bv;

	blk_mq_start_request(queue->rq);
	rq_for_each_bvec(bv, queue->rq, iter)
		if ((bv.bv_offset | bv.bv_len) % UNIT)
			status = BLK_STS_PROTECTION;
	blk_mq_end_request(queue->rq, status);
	return BLK_STS_OK;
}

static const struct blk_mq_ops crypt_mq_ops = {
	.queue_rq = crypt_queue_rq,
};

static const struct block_device_operations crypt_fops = {
	.owner = THIS_MODULE,
};

static int crypt_read(struct block_device *bdev, unsigned int offset)
{
	static const u64 dun[BLK_CRYPTO_DUN_ARRAY_SIZE] = { 1 };
	struct blk_crypto_key *key;
	u8 raw[64];
	struct page *page;
	struct bio *bio;
	int i, ret = -ENOMEM;

	/* XTS refuses two halves that are equal. */
	for (i = 0; i < sizeof(raw); i++)
		raw[i] = i;
	key = kzalloc_obj(*key);
	page = alloc_page(GFP_KERNEL);
	if (!key || !page)
		goto out_free;
	ret = blk_crypto_init_key(key, raw, sizeof(raw), BLK_CRYPTO_KEY_TYPE_RAW,
				  BLK_ENCRYPTION_MODE_AES_256_XTS, 8, UNIT,
				  BLK_CRYPTO_CFG_ALLOW_HW);
	if (ret)
		goto out_free;
	ret = blk_crypto_start_using_key(bdev, key);
	if (ret)
		goto out_free;

	bio = bio_alloc(bdev, 1, REQ_OP_READ, GFP_KERNEL);
	__bio_add_page(bio, page, UNIT, offset);
	bio_crypt_set_ctx(bio, key, dun, GFP_KERNEL);
	ret = submit_bio_wait(bio);
	bio_put(bio);
	blk_crypto_evict_key(bdev, key);

out_free:
	if (page)
		__free_page(page);
	kfree(key);
	return ret;
}

static int crypt_read_at(const char *text, const struct kernel_param *param)
{
	struct queue_limits limits = {
		.logical_block_size = UNIT,
		.dma_alignment = 3,
	};
	struct blk_mq_tag_set tags = {
		.ops = &crypt_mq_ops,
		.nr_hw_queues = 1,
		.queue_depth = 1,
		.numa_node = NUMA_NO_NODE,
		.flags = BLK_MQ_F_BLOCKING,
	};
	struct blk_crypto_profile *profile;
	struct gendisk *disk;
	unsigned int offset;
	int ret;

	ret = kstrtouint(text, 0, &offset);
	if (ret)
		return ret;
	if (offset % 4 || offset > PAGE_SIZE - UNIT)
		return -EINVAL;
	profile = kzalloc_obj(*profile);
	if (!profile)
		return -ENOMEM;
	ret = blk_crypto_profile_init(profile, 1);
	if (ret)
		goto out_profile;
	profile->ll_ops = crypt_ops;
	profile->max_dun_bytes_supported = 8;
	profile->key_types_supported = BLK_CRYPTO_KEY_TYPE_RAW;
	profile->modes_supported[BLK_ENCRYPTION_MODE_AES_256_XTS] = UNIT;

	ret = blk_mq_alloc_tag_set(&tags);
	if (ret)
		goto out_destroy;
	disk = blk_mq_alloc_disk(&tags, &limits, NULL);
	if (IS_ERR(disk)) {
		ret = PTR_ERR(disk);
		goto out_tags;
	}
	strscpy(disk->disk_name, "crypt_disk", sizeof(disk->disk_name));
	disk->fops = &crypt_fops;
	disk->flags |= GENHD_FL_NO_PART | GENHD_FL_HIDDEN;
	set_capacity(disk, SZ_1M >> SECTOR_SHIFT);
	blk_crypto_register(profile, disk->queue);
	ret = add_disk(disk);
	if (!ret) {
		ret = crypt_read(disk->part0, offset);
		del_gendisk(disk);
	}
	put_disk(disk);
out_tags:
	blk_mq_free_tag_set(&tags);
out_destroy:
	blk_crypto_profile_destroy(profile);
out_profile:
	kfree(profile);
	return ret;
}

static const struct kernel_param_ops crypt_param = {
	.set = crypt_read_at,
};
module_param_cb(read_at, &crypt_param, NULL, 0200);
MODULE_PARM_DESC(read_at, "Offset in a page: reads a data unit to it");

static int __init crypt_init(void)
{
	return 0;
}
module_init(crypt_init);

static void __exit crypt_exit(void)
{
}
module_exit(crypt_exit);

MODULE_DESCRIPTION("Disk with inline encryption for tests");
MODULE_LICENSE("GPL");
