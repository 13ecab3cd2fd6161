// SPDX-License-Identifier: GPL-2.0-only
/*
 * A caller of iomap_dio_rw() for tests. User space chooses flags, operations and
 * mapping, also those that no file system uses for reads, and sees the arguments of
 * ->iomap_end, which file systems do not show. It also sees whether pages are still pinned when
 * an asynchronous read of any file completes.
 */
#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/iomap.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/uio.h>

#include "iomap_caller.h"

/* Data of a mapping of type IOMAP_INLINE, within a page */
static char inline_data[PAGE_SIZE] __aligned(PAGE_SIZE);

static int caller_begin(struct inode *inode, loff_t position, loff_t length,
			unsigned int flags, struct iomap *iomap,
			struct iomap *srcmap)
{
	struct iomap_iter *iter = container_of(iomap, struct iomap_iter, iomap);
	struct iomap_call *call = iter->private;
	u64 done = position - call->position;

	call->begun++;
	if (call->begin_error)
		return call->begin_error;

	iomap->bdev = inode->i_sb->s_bdev;
	if (done < call->mapped) {
		iomap->type = call->type;
		iomap->addr = call->address;
		iomap->offset = call->position;
		iomap->length = call->mapped;
		iomap->inline_data = inline_data;
	} else {
		iomap->type = IOMAP_HOLE;
		iomap->addr = IOMAP_NULL_ADDR;
		iomap->offset = position;
		iomap->length = length;
	}
	if (done < call->source_length) {
		*srcmap = *iomap;
		srcmap->type = IOMAP_MAPPED;
		srcmap->length = call->source_length;
	}
	return 0;
}

static int caller_end(struct inode *inode, loff_t position, loff_t length,
		      ssize_t written, unsigned int flags, struct iomap *iomap)
{
	struct iomap_iter *iter = container_of(iomap, struct iomap_iter, iomap);
	struct iomap_call *call = iter->private;

	call->ended++;
	call->written += written;
	return 0;
}

static const struct iomap_ops caller_ops = {
	.iomap_begin	= caller_begin,
	.iomap_end	= caller_end,
};

static int caller_end_io(struct kiocb *iocb, ssize_t size, int error,
			 unsigned int flags)
{
	return error;
}

static const struct iomap_dio_ops caller_dio_ops = {
	.end_io		= caller_end_io,
};

static int caller_read(struct file *file, struct iomap_call *call)
{
	struct inode *inode = file_inode(file);
	struct kiocb iocb;
	struct iov_iter iter;
	int ret;

	if (!(file->f_flags & O_DIRECT) || !inode->i_sb->s_bdev)
		return -EINVAL;

	init_sync_kiocb(&iocb, file);
	iocb.ki_pos = call->position;
	ret = import_ubuf(ITER_DEST, u64_to_user_ptr(call->memory),
			  call->length, &iter);
	if (ret)
		return ret;

	inode_lock_shared(inode);
	call->result = iomap_dio_rw(&iocb, &iter, &caller_ops,
				    call->own_ops ? &caller_dio_ops : NULL,
				    call->dio_flags, call, call->done_before);
	inode_unlock_shared(inode);
	return 0;
}

struct caller_async {
	struct kiocb iocb;
	struct folio *folio;
	struct completion done;
	ssize_t result;
	bool pinned;
};

static void caller_complete(struct kiocb *iocb, long result)
{
	struct caller_async *async = container_of(iocb, struct caller_async, iocb);

	async->result = result;
	async->pinned = folio_maybe_dma_pinned(async->folio);
	complete(&async->done);
}

static int caller_read_async(struct file *file, struct iomap_async *call)
{
	struct caller_async async = {};
	struct iov_iter iter;
	struct page *page;
	ssize_t ret;

	if (!(file->f_flags & O_DIRECT) || !file->f_op->read_iter)
		return -EINVAL;
	ret = import_ubuf(ITER_DEST, u64_to_user_ptr(call->memory), call->length, &iter);
	if (ret)
		return ret;
	/* A reference, which is no pin */
	ret = get_user_pages_fast(call->memory, 1, FOLL_WRITE, &page);
	if (ret != 1)
		return ret < 0 ? ret : -EFAULT;

	async.folio = page_folio(page);
	init_completion(&async.done);
	init_sync_kiocb(&async.iocb, file);
	async.iocb.ki_complete = caller_complete;
	async.iocb.ki_pos = call->position;
	ret = file->f_op->read_iter(&async.iocb, &iter);
	call->queued = ret == -EIOCBQUEUED;
	if (call->queued) {
		call->pinned_before = folio_maybe_dma_pinned(async.folio);
		wait_for_completion(&async.done);
		ret = async.result;
	}
	call->result = ret;
	call->pinned = async.pinned;
	put_page(page);
	return 0;
}

static long caller_async_ioctl(struct iomap_async __user *user)
{
	struct iomap_async call;
	struct file *file;
	int ret;

	if (copy_from_user(&call, user, sizeof(call)))
		return -EFAULT;
	call.pinned_before = 0;

	file = fget(call.file_fd);
	if (!file)
		return -EBADF;
	ret = caller_read_async(file, &call);
	fput(file);
	if (ret)
		return ret;
	return copy_to_user(user, &call, sizeof(call)) ? -EFAULT : 0;
}

static long caller_ioctl(struct file *unused, unsigned int cmd, unsigned long arg)
{
	struct iomap_call __user *user = (void __user *)arg;
	struct iomap_call call;
	struct file *file;
	int ret;

	if (cmd == IOMAP_ASYNC)
		return caller_async_ioctl((void __user *)arg);
	if (cmd != IOMAP_CALL)
		return -ENOTTY;
	if (copy_from_user(&call, user, sizeof(call)))
		return -EFAULT;
	call.begun = 0;
	call.ended = 0;
	call.written = 0;

	file = fget(call.file_fd);
	if (!file)
		return -EBADF;
	ret = caller_read(file, &call);
	fput(file);
	if (ret)
		return ret;
	return copy_to_user(user, &call, sizeof(call)) ? -EFAULT : 0;
}

static const struct file_operations caller_fops = {
	.owner		= THIS_MODULE,
	.unlocked_ioctl	= caller_ioctl,
};

static struct miscdevice caller_device = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "iomap_caller",
	.fops	= &caller_fops,
	.mode	= 0600,
};

static int __init caller_init(void)
{
	memset(inline_data, 'i', sizeof(inline_data));
	return misc_register(&caller_device);
}
module_init(caller_init);

static void __exit caller_exit(void)
{
	misc_deregister(&caller_device);
}
module_exit(caller_exit);

MODULE_DESCRIPTION("Direct reads with chosen iomap arguments, for tests");
MODULE_LICENSE("GPL");
