// SPDX-License-Identifier: GPL-2.0-only
/*
 * dmabuf_dio: file I/O straight to and from the pages of a dma-buf
 *
 * The device, its parameters, and the dispatch of ioctls.
 */
#include <linux/build_bug.h>
#include <linux/dma-buf.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nospec.h>
#include <linux/rcupdate.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/stddef.h>
#include <linux/uaccess.h>

#include "call.h"
#include "compat.h"

unsigned long dbx_default_chunk = SZ_8M;
unsigned long dbx_default_gather = SZ_8M;
unsigned int dbx_default_depth = 4;
unsigned long dbx_reserve = ULONG_MAX;

static int dbx_open(struct inode *inode, struct file *file)
{
	struct dbx_context *ctx;

	ctx = kzalloc_obj(*ctx, GFP_KERNEL_ACCOUNT);
	if (!ctx)
		return -ENOMEM;
	mutex_init(&ctx->lock);
	spin_lock_init(&ctx->load_lock);
	file->private_data = ctx;
	return 0;
}

static int dbx_release(struct inode *inode, struct file *file)
{
	struct dbx_context *ctx = file->private_data;

	dbx_load_drop_paused(ctx);
	if (ctx->att)
		dbx_detach(ctx->att);
	mutex_destroy(&ctx->lock);
	kfree(ctx);
	return 0;
}

static int dbx_ioctl_info(struct dmabuf_dio_info *arg)
{
	if (arg->reserved || arg->reserved2)
		return -EINVAL;

	*arg = (struct dmabuf_dio_info){
		.features = (__is_defined(HAVE_IO_BUFFER_REGISTER_BVEC) ?
			     DMABUF_DIO_FEATURE_SLOTS | DMABUF_DIO_FEATURE_JOIN : 0) |
			    (__is_defined(HAVE_BIO_PREMAP) ?
			     DMABUF_DIO_FEATURE_PREMAP : 0),
		.max_depth = DBX_MAX_DEPTH,
		.max_chunk = DBX_MAX_CHUNK,
		.default_chunk = READ_ONCE(dbx_default_chunk),
		.default_gather = READ_ONCE(dbx_default_gather),
		.default_depth = READ_ONCE(dbx_default_depth),
	};
	return 0;
}

static int dbx_ioctl_attach(struct dbx_context *ctx,
			    struct dmabuf_dio_attach *arg)
{
	struct dbx_attachment *att;

	if (arg->flags || arg->refusal)
		return -EINVAL;

	if (mutex_lock_killable(&ctx->lock))
		return -EINTR;
	att = ctx->att ? ERR_PTR(-EBUSY) :
			 dbx_attach(arg->dmabuf_fd, &arg->refusal);
	if (!IS_ERR(att)) {
		arg->length = att->segs->length;
		arg->segments = att->segs->nr;
		/* Pairs with dbx_attached(), which sees a complete attachment. */
		smp_store_release(&ctx->att, att);
	}
	mutex_unlock(&ctx->lock);
	return PTR_ERR_OR_ZERO(att);
}

/* The new fd becomes visible last, once nothing can fail any more. */
static int dbx_ioctl_load(struct dbx_context *ctx, struct dmabuf_dio_load *arg,
			  void __user *uarg, size_t usize)
{
	struct dma_buf *dmabuf;
	int fd, ret;

	/* Without a field to return it in, the new fd would be lost. */
	if (usize < offsetofend(struct dmabuf_dio_load, dmabuf_fd))
		return -EINVAL;

	arg->dmabuf_fd = -1;
	fd = get_unused_fd_flags(arg->fd_flags & O_CLOEXEC);
	if (fd < 0)
		return fd;

	ret = dbx_load(ctx, arg, &dmabuf);
	if (!ret)
		arg->dmabuf_fd = fd;
	if (copy_to_user(uarg, arg, usize)) {
		if (!ret)
			dma_buf_put(dmabuf);
		ret = ret ?: -EFAULT;
	}
	if (ret)
		put_unused_fd(fd);
	else
		fd_install(fd, dmabuf->file);
	return ret;
}

static const size_t dbx_ioctl_sizes[] = {
	[_IOC_NR(DMABUF_DIO_IOC_INFO)] = sizeof(struct dmabuf_dio_info),
	[_IOC_NR(DMABUF_DIO_IOC_ATTACH)] = sizeof(struct dmabuf_dio_attach),
	[_IOC_NR(DMABUF_DIO_IOC_READ)] = sizeof(struct dmabuf_dio_rw),
	[_IOC_NR(DMABUF_DIO_IOC_WRITE)] = sizeof(struct dmabuf_dio_rw),
	[_IOC_NR(DMABUF_DIO_IOC_LOAD)] = sizeof(struct dmabuf_dio_load),
};

/* Calls are identified by number, because the size differs between versions. */
static long dbx_ioctl(struct file *file, unsigned int cmd, unsigned long uaddr)
{
	struct dbx_context *ctx = file->private_data;
	void __user *uarg = (void __user *)uaddr;
	size_t usize = _IOC_SIZE(cmd);
	unsigned int nr = _IOC_NR(cmd);
	size_t ksize;
	union {
		struct dmabuf_dio_info info;
		struct dmabuf_dio_attach attach;
		struct dmabuf_dio_rw rw;
		struct dmabuf_dio_load load;
	} arg;
	int ret;

	if (cmd == DMABUF_DIO_IOC_CANCEL) {
		WRITE_ONCE(ctx->cancelled, true);
		/* Its lock orders this before dbx_load() looks. */
		dbx_load_drop_paused(ctx);
		return 0;
	}
	if (_IOC_TYPE(cmd) != DMABUF_DIO_IOC_MAGIC ||
	    nr >= ARRAY_SIZE(dbx_ioctl_sizes) ||
	    _IOC_DIR(cmd) != (_IOC_READ | _IOC_WRITE))
		return -ENOTTY;

	ksize = dbx_ioctl_sizes[array_index_nospec(nr, ARRAY_SIZE(dbx_ioctl_sizes))];
	ret = copy_struct_from_user(&arg, ksize, uarg, usize);
	if (ret)
		return ret;
	usize = min(usize, ksize);

	switch (nr) {
	case _IOC_NR(DMABUF_DIO_IOC_INFO):
		ret = dbx_ioctl_info(&arg.info);
		break;
	case _IOC_NR(DMABUF_DIO_IOC_ATTACH):
		ret = dbx_ioctl_attach(ctx, &arg.attach);
		break;
	case _IOC_NR(DMABUF_DIO_IOC_READ):
		ret = dbx_rw(ctx, READ, &arg.rw);
		break;
	case _IOC_NR(DMABUF_DIO_IOC_WRITE):
		ret = dbx_rw(ctx, WRITE, &arg.rw);
		break;
	case _IOC_NR(DMABUF_DIO_IOC_LOAD):
		return dbx_ioctl_load(ctx, &arg.load, uarg, usize);
	}

	/* A failed call reports its progress, too. */
	if (copy_to_user(uarg, &arg, usize) && !ret)
		ret = -EFAULT;
	return ret;
}

static void dbx_show_fdinfo(struct seq_file *m, struct file *file)
{
	struct dbx_context *ctx = file->private_data;
	struct dbx_attachment *att = dbx_attached(ctx);

	seq_printf(m, "moved:\t%lld\n", atomic64_read(&ctx->moved));
	dbx_load_show(ctx, m);
	if (att) {
		seq_printf(m, "size:\t%zu\n", att->dmabuf->size);
		seq_printf(m, "exp_name:\t%s\n", att->dmabuf->exp_name);
		seq_printf(m, "segments:\t%u\n", att->segs->nr);
	}
}

static const struct file_operations dbx_fops = {
	.owner = THIS_MODULE,
	.open = dbx_open,
	.release = dbx_release,
	.unlocked_ioctl = dbx_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
#ifdef HAVE_IO_BUFFER_REGISTER_BVEC
	.uring_cmd = dbx_uring_cmd,
#endif
	.show_fdinfo = dbx_show_fdinfo,
};

struct miscdevice dbx_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "dmabuf_dio",
	.fops = &dbx_fops,
	.mode = 0600,
};

static int __init dbx_init(void)
{
	u64 memory = (u64)totalram_pages() << PAGE_SHIFT;
	int ret;

	if (dbx_reserve == ULONG_MAX)
		dbx_reserve = min(clamp(memory / 16, SZ_128M, SZ_1G), memory / 4);
	ret = dbx_detach_init();
	if (ret)
		return ret;
	/* Last: others can use it at once. */
	ret = misc_register(&dbx_device);
	if (ret)
		dbx_detach_exit();
	return ret;
}
module_init(dbx_init);

static void __exit dbx_exit(void)
{
	misc_deregister(&dbx_device);
	dbx_detach_exit();
	/*
	 * Tasks that were preempted at the end of dbx_slot_release() or
	 * dbx_request_complete() leave the module before they sleep.
	 */
	synchronize_rcu_tasks();
}
module_exit(dbx_exit);

/* The layouts are ABI. */
static_assert(sizeof(struct dmabuf_dio_info) == 48);
static_assert(sizeof(struct dmabuf_dio_attach) == 24);
static_assert(sizeof(struct dmabuf_dio_rw) == 72);
static_assert(sizeof(struct dmabuf_dio_load) == 88);
static_assert(sizeof(struct dmabuf_dio_slot) == 24);
static_assert(sizeof(struct dmabuf_dio_join) == 24);
static_assert(sizeof(struct dmabuf_dio_uring_cmd) == 16);

module_param_named(chunk, dbx_default_chunk, ulong, 0644);
MODULE_PARM_DESC(chunk, "Bytes per request, if the caller passes 0 (8 MiB)");
module_param_named(depth, dbx_default_depth, uint, 0644);
MODULE_PARM_DESC(depth, "Requests in flight, if the caller passes 0 (4)");
module_param_named(gather, dbx_default_gather, ulong, 0644);
MODULE_PARM_DESC(gather, "Bytes LOAD allocates before its first read (8 MiB)");
module_param_named(reserve, dbx_reserve, ulong, 0644);
MODULE_PARM_DESC(reserve, "Bytes of available memory LOAD leaves to others (default: a sixteenth of the memory, but 128 MiB to 1 GiB, and at most a quarter)");

MODULE_DESCRIPTION("File I/O straight to and from the pages of a dma-buf");
MODULE_VERSION("0.1.0");
MODULE_LICENSE("GPL");
/* MODULE_IMPORT_NS() took an identifier before 6.13, a string since. */
MODULE_INFO(import_ns, "DMA_BUF");
