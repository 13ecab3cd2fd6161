// SPDX-License-Identifier: GPL-2.0-only
/*
 * Moving a range between a file and lent pages
 *
 * The range is cut into requests, of which several are in flight. Each is an
 * ordinary kernel read or write of the file over a bio_vec iterator. Requests
 * are reaped in file order, so what is done is always a prefix of the range.
 */
#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/fsnotify.h>
#include <linux/log2.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/stat.h>

#include "transfer.h"

struct dbx_request {
	struct kiocb iocb;
	struct completion completion;
	size_t length;
	ssize_t result;
	bool queued;
};

static void dbx_request_complete(struct kiocb *iocb, long ret)
{
	struct dbx_request *req = container_of(iocb, struct dbx_request, iocb);

	/* dbx_request_call() took the freeze protection. */
	if (iocb->ki_flags & IOCB_WRITE)
		kiocb_end_write(iocb);
	req->result = ret;
	complete(&req->completion);
}

/*
 * As vfs_iocb_iter_read() and vfs_iocb_iter_write(), which check each request
 * and notify of it: dbx_transfer_run() does that once for the whole range.
 */
static ssize_t dbx_request_call(struct dbx_transfer *t, struct kiocb *iocb,
				struct iov_iter *iter)
{
	ssize_t ret;

	if (t->rw == READ)
		return t->file->f_op->read_iter(iocb, iter);

	iocb->ki_flags |= IOCB_WRITE;
	kiocb_start_write(iocb);
	ret = t->file->f_op->write_iter(iocb, iter);
	if (ret != -EIOCBQUEUED)
		kiocb_end_write(iocb);
	return ret;
}

/* Starts a request; req->completion fires exactly once. */
static void dbx_request_start(struct dbx_transfer *t, struct dbx_request *req,
			      struct iov_iter *iter, loff_t pos, bool direct)
{
	ssize_t ret;

	init_completion(&req->completion);
	req->length = iov_iter_count(iter);

	init_sync_kiocb(&req->iocb, t->file);
	req->iocb.ki_complete = dbx_request_complete;
	req->iocb.ki_pos = pos;
	if (!direct)
		req->iocb.ki_flags &= ~IOCB_DIRECT;
	/* Not at first, see dbx_transfer_init(), but anybody may set it. */
	req->iocb.ki_flags &= ~IOCB_APPEND;

	ret = dbx_request_call(t, &req->iocb, iter);
	req->queued = ret == -EIOCBQUEUED;
	if (!req->queued) {
		req->result = ret;
		complete(&req->completion);
	}
}

/* The pages are in use until the request is done, even if a signal arrives. */
static ssize_t dbx_request_wait(struct dbx_request *req)
{
	if (wait_for_completion_interruptible(&req->completion))
		wait_for_completion(&req->completion);

	switch (req->result) {
	case -ERESTARTSYS:
	case -ERESTARTNOINTR:
	case -ERESTARTNOHAND:
	case -ERESTART_RESTARTBLOCK:
		/* A restart would repeat what other requests have done. */
		return -EINTR;
	default:
		return req->result;
	}
}

/* Requests are counted in file order, so t->done never covers a gap. */
static void dbx_count(struct dbx_transfer *t, size_t count, bool direct)
{
	t->done += count;
	if (direct)
		t->direct += count;
}

/* Lends memory that may have to be allocated first. */
static int dbx_lend(struct dbx_transfer *t, unsigned int slot, u64 offset,
		    size_t count, bool direct, struct iov_iter *iter)
{
	u64 end = max(offset + count, t->gather);
	int ret;

	if (t->grow && t->length < end) {
		ret = t->grow(t, end);
		if (ret)
			return ret;
	}
	return t->lend(t, slot, offset, count, direct, iter);
}

/**
 * dbx_lend_segments - lend from a table
 * @t: the transfer, with the table in segs
 * @slot: not needed, as the table stays where it is
 * @offset: bytes from the start of the buffer
 * @count: bytes, at least 1; @offset + @count is within the buffer
 * @direct: not needed, as the CPU finds the bytes in the same pages
 * @iter: filled in
 */
int dbx_lend_segments(struct dbx_transfer *t, unsigned int slot, u64 offset,
		      size_t count, bool direct, struct iov_iter *iter)
{
	dbx_segments_iter(t->segs, &t->cursor, iter,
			  t->rw == WRITE ? ITER_SOURCE : ITER_DEST,
			  offset, count);
	return 0;
}

/* Uses the time until @req is done to find memory for later ones. */
static int dbx_grow_meanwhile(struct dbx_transfer *t, struct dbx_request *req)
{
	int ret = 0;

	while (t->grow && t->length < t->grow_until &&
	       !completion_done(&req->completion) && !ret)
		ret = t->grow(t, t->length + 1);
	return ret;
}

/* A finished request is reaped before another is started, so that signals are seen. */
static bool dbx_reap_first(const struct dbx_transfer *t,
			   struct dbx_request *reqs, unsigned int head,
			   unsigned int tail)
{
	return head - tail == t->depth ||
	       (head != tail &&
		completion_done(&reqs[tail % t->depth].completion));
}

/*
 * Keeps up to t->depth requests of t->chunk bytes in flight over the range.
 * Returns 0 with everything or a short count in t->done, or -errno; nothing is
 * in flight any more in either case.
 */
static int dbx_run_requests(struct dbx_transfer *t, struct dbx_request *reqs,
			    u64 pos, u64 buf_offset, u64 length, bool direct)
{
	unsigned int head = 0, tail = 0;
	bool gap = false, stop = false;
	u64 started = 0;
	int err = 0;

	for (;;) {
		struct dbx_request *req;
		struct iov_iter iter;
		ssize_t ret;

		while (!stop && started < length &&
		       !dbx_reap_first(t, reqs, head, tail)) {
			size_t count = min(t->chunk, length - started);
			unsigned int slot = head % t->depth;

			err = t->stopped(t);
			if (!err)
				err = dbx_lend(t, slot, buf_offset + started,
					       count, direct, &iter);
			if (err) {
				stop = true;
				break;
			}

			dbx_request_start(t, &reqs[slot], &iter, pos + started,
					  direct);
			head++;
			started += count;
			/* Start no more after a request that failed at once. */
			stop = !reqs[slot].queued && reqs[slot].result != count;
		}
		if (head == tail)
			return err;

		req = &reqs[tail++ % t->depth];
		if (!stop) {
			err = dbx_grow_meanwhile(t, req);
			stop = err;
		}

		ret = dbx_request_wait(req);
		if (gap)
			continue;
		if (ret > 0)
			dbx_count(t, ret, direct);
		if (ret != req->length) {
			gap = true;
			stop = true;
			if (ret < 0 && !err)
				err = ret;
		}
	}
}

/*
 * O_DIRECT cannot move part of a block. Read the whole block into a page of our
 * own: this bypasses the page cache, and the buffer changes only within the range.
 */
static int dbx_read_block(struct dbx_transfer *t, u64 pos, u64 buf_offset,
			  size_t length)
{
	unsigned int skip = pos & (t->block - 1);
	unsigned int order = get_order(t->block);
	struct dbx_request req;
	struct iov_iter iter;
	struct page *page;
	struct bio_vec bv;
	ssize_t ret;

	page = alloc_pages(GFP_KERNEL | __GFP_COMP | __GFP_NOWARN |
			   __GFP_RETRY_MAYFAIL, order);
	if (!page)
		return -ENOMEM;

	bvec_set_page(&bv, page, t->block, 0);
	iov_iter_bvec(&iter, ITER_DEST, &bv, 1, t->block);
	dbx_request_start(t, &req, &iter, pos - skip, true);
	ret = dbx_request_wait(&req);
	if (ret > skip) {
		size_t count = min_t(size_t, length, ret - skip);

		ret = dbx_lend(t, 0, buf_offset, count, false, &iter);
		if (!ret)
			dbx_count(t, copy_to_iter(page_address(page) + skip,
						  count, &iter), true);
	}
	__free_pages(page, order);
	return min_t(ssize_t, ret, 0);
}

/*
 * Moves part of a block. Writes use the page cache. So do reads that continue
 * where a direct read ended inside a block: at the end of the file, or because
 * the file system returned less than it was asked for.
 */
static int dbx_run_edge(struct dbx_transfer *t, struct dbx_request *reqs,
			u64 pos, u64 buf_offset, size_t length)
{
	u64 before = t->done;
	int ret;

	if (t->rw == READ) {
		ret = dbx_read_block(t, pos, buf_offset, length);
		if (ret || t->done != before)
			return ret;
	}
	return dbx_run_requests(t, reqs, pos, buf_offset, length, false);
}

/* Moves the first part of the range, as much as can be moved in the same way. */
static int dbx_run_part(struct dbx_transfer *t, struct dbx_request *reqs,
			u64 pos, u64 buf_offset, u64 length)
{
	unsigned int skip;

	if (!t->block)
		return dbx_run_requests(t, reqs, pos, buf_offset, length, false);

	skip = pos & (t->block - 1);
	if (!skip && length >= t->block)
		return dbx_run_requests(t, reqs, pos, buf_offset,
					ALIGN_DOWN(length, t->block), true);

	return dbx_run_edge(t, reqs, pos, buf_offset,
			    min_t(u64, length, t->block - skip));
}

/* Finds out how O_DIRECT has to be aligned, in the file and in memory. */
static int dbx_query_alignment(struct dbx_transfer *t)
{
	struct inode *inode = t->file->f_mapping->host;
	unsigned int offset_align = 0, mem_align = 0;
	struct kstat stat;
	int ret;

	if (S_ISBLK(inode->i_mode)) {
		offset_align = bdev_logical_block_size(I_BDEV(inode));
		mem_align = bdev_dma_alignment(I_BDEV(inode)) + 1;
	} else {
		ret = vfs_getattr_nosec(&t->file->f_path, &stat, STATX_DIOALIGN,
					AT_STATX_SYNC_AS_STAT);
		if (ret)
			return ret;
		if (stat.result_mask & STATX_DIOALIGN) {
			offset_align = stat.dio_offset_align;
			mem_align = stat.dio_mem_align;
		}
	}

#ifdef HAVE_BDEV_ITER_IS_ALIGNED
	/* Before 7.3 every vector has to be whole blocks long. */
	mem_align = max(mem_align, offset_align);
#endif
	/*
	 * A partial page written through the page cache must not share a page
	 * with direct I/O, or writing it back would undo the latter. Network
	 * and FUSE file systems report sizes of transfers as block sizes.
	 */
	t->block = max3(offset_align, min(i_blocksize(inode), (unsigned int)SZ_64K),
			(unsigned int)PAGE_SIZE);
	t->align = mem_align ?: SECTOR_SIZE;
	if (!is_power_of_2(t->block) || t->block > SZ_1M ||
	    !is_power_of_2(t->align))
		return -EINVAL;
	return 0;
}

/**
 * dbx_transfer_init - prepare a transfer
 * @t: filled in; the caller then sets lend and stopped, and grow if needed
 * @file: the file, which the caller keeps until the transfer is over
 * @rw: READ or WRITE
 * @chunk: bytes per request
 * @depth: requests in flight
 */
int dbx_transfer_init(struct dbx_transfer *t, struct file *file, int rw,
		      u64 chunk, unsigned int depth)
{
	umode_t mode = file_inode(file)->i_mode;
	int ret;

	*t = (struct dbx_transfer){
		.file = file,
		.rw = rw,
		.chunk = chunk,
		.depth = depth,
	};
	if (S_ISDIR(mode))
		return -EISDIR;
	if (!S_ISREG(mode) && !S_ISBLK(mode))
		return -EINVAL;
	if (!(file->f_mode & (rw == WRITE ? FMODE_WRITE : FMODE_READ)))
		return -EBADF;
	/* Not every file of /proc and the like has both. */
	if (!(file->f_mode & (rw == WRITE ? FMODE_PWRITE : FMODE_PREAD)) ||
	    (rw == WRITE ? !file->f_op->write_iter : !file->f_op->read_iter))
		return -EINVAL;
	/* An appending file would ignore the offset. */
	if (rw == WRITE && (file->f_flags & O_APPEND))
		return -EBADF;

	if (file->f_flags & O_DIRECT) {
		ret = dbx_query_alignment(t);
		if (ret)
			return ret;
		t->chunk = ALIGN(t->chunk, t->block);
	}
	return 0;
}

/**
 * dbx_transfer_signalled - a @stopped for transfers on behalf of user space
 * @t: the transfer
 *
 * Stop signals and the freezer count as signals. A caller that continues after
 * what was done makes progress, however often it is signalled.
 *
 * Return: 0 or -EINTR.
 */
int dbx_transfer_signalled(const struct dbx_transfer *t)
{
	/* Task work, such as that of io_uring, is not a signal. */
	if (fatal_signal_pending(current) || (t->done && task_sigpending(current)))
		return -EINTR;
	return 0;
}

/* Is a part of the range moved by direct I/O for which memory is not aligned? */
static bool dbx_misaligned(const struct dbx_transfer *t, u64 pos,
			   u64 buf_offset, u64 length)
{
	u64 head = ALIGN(pos, t->block) - pos;

	return length >= head + t->block &&
	       (pos ^ buf_offset) & (t->align - 1);
}

/* Once for a range, however many requests it takes */
static int dbx_permitted(const struct dbx_transfer *t, loff_t pos, u64 length)
{
	if (t->by_vfs)
		return 0;
	return rw_verify_area(t->rw, t->file, &pos,
			      min_t(u64, length, SSIZE_MAX));
}

static void dbx_notify(const struct dbx_transfer *t)
{
	if (t->by_vfs || !t->done)
		return;
	if (t->rw == WRITE)
		fsnotify_modify(t->file);
	else
		fsnotify_access(t->file);
}

/* A read of 0 bytes is the end of the file; a write of 0 bytes is an error. */
static int dbx_end(const struct dbx_transfer *t)
{
	return t->rw == READ ? 0 : -EIO;
}

/**
 * dbx_transfer_run - move a range
 * @t: the transfer
 * @file_offset: start in the file
 * @buf_offset: start in the buffer; the range lies within the buffer
 * @length: bytes to move
 *
 * A short result is not the end of the file: only a result of 0 is.
 *
 * Return: 0 if everything was moved or a file that is read ended, else -errno;
 * t->done holds the bytes moved in every case.
 */
int dbx_transfer_run(struct dbx_transfer *t, u64 file_offset, u64 buf_offset,
		     u64 length)
{
	struct dbx_request *reqs;
	u64 end, before;
	int ret;

	if (check_add_overflow(file_offset, length, &end) || end > LLONG_MAX)
		return -EOVERFLOW;
	if (t->block && dbx_misaligned(t, file_offset, buf_offset, length)) {
		t->misaligned = true;
		return -EINVAL;
	}

	ret = dbx_permitted(t, file_offset, length);
	if (ret)
		return ret;

	/* Must not invoke the OOM killer, not even that of a memory cgroup. */
	reqs = kcalloc(t->depth, sizeof(*reqs), GFP_KERNEL_ACCOUNT |
		       __GFP_NOWARN | __GFP_RETRY_MAYFAIL);
	if (!reqs)
		return -ENOMEM;

	while (t->done < length) {
		before = t->done;
		ret = dbx_run_part(t, reqs, file_offset + before,
				   buf_offset + before, length - before);
		if (!ret && t->done < length)
			ret = t->done == before ? dbx_end(t) : t->stopped(t);
		if (ret || t->done == before)
			break;
	}

	kfree(reqs);
	dbx_notify(t);
	return ret;
}
