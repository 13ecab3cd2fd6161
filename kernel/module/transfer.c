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
#include <linux/fcntl.h>
#include <linux/fsnotify.h>
#include <linux/log2.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/stat.h>

#include "transfer.h"

struct dio_request {
	struct kiocb iocb;
	struct completion completion;
	size_t length;
	ssize_t result;
	bool queued;
};

static void dio_request_complete(struct kiocb *iocb, long ret)
{
	struct dio_request *req = container_of(iocb, struct dio_request, iocb);

	/* The submitter took the freeze protection, see vfs_iocb_iter_write(). */
	if (iocb->ki_flags & IOCB_WRITE)
		kiocb_end_write(iocb);
	req->result = ret;
	complete(&req->completion);
}

/* Starts a request; req->completion fires exactly once. */
static void dio_request_start(struct dio_transfer *t, struct dio_request *req,
			      struct iov_iter *iter, loff_t pos, bool direct)
{
	ssize_t ret;

	init_completion(&req->completion);
	req->length = iov_iter_count(iter);

	init_sync_kiocb(&req->iocb, t->file);
	req->iocb.ki_complete = dio_request_complete;
	req->iocb.ki_pos = pos;
	if (!direct)
		req->iocb.ki_flags &= ~IOCB_DIRECT;

	if (t->rw == WRITE) {
		req->iocb.ki_flags |= IOCB_WRITE;
		ret = vfs_iocb_iter_write(t->file, &req->iocb, iter);
	} else {
		ret = vfs_iocb_iter_read(t->file, &req->iocb, iter);
	}

	req->queued = ret == -EIOCBQUEUED;
	if (!req->queued) {
		req->result = ret;
		complete(&req->completion);
	}
}

static ssize_t dio_request_wait(struct dio_request *req)
{
	wait_for_completion(&req->completion);
	return req->result;
}

/* Lends what may first have to be allocated. */
static int dio_lend(struct dio_transfer *t, unsigned int slot, u64 offset,
		    size_t count, struct iov_iter *iter)
{
	u64 end = max(offset + count, t->gather);
	int ret;

	if (t->grow && t->length < end) {
		ret = t->grow(t, end);
		if (ret)
			return ret;
	}
	return t->lend(t, slot, offset, count, iter);
}

/**
 * dio_lend_segments - lend from a table
 * @t: the transfer, with the table in segs
 * @slot: not needed, as the table stays where it is
 * @offset: bytes from the start of the buffer
 * @count: bytes, at least 1; @offset + @count is within the buffer
 * @iter: filled in
 */
int dio_lend_segments(struct dio_transfer *t, unsigned int slot, u64 offset,
		      size_t count, struct iov_iter *iter)
{
	dio_segments_iter(t->segs, &t->cursor, iter,
			  t->rw == WRITE ? ITER_SOURCE : ITER_DEST,
			  offset, count);
	return 0;
}

/* Uses the time until @req is done to find memory for later ones. */
static int dio_grow_meanwhile(struct dio_transfer *t, struct dio_request *req)
{
	int ret = 0;

	while (t->grow && t->length < t->grow_until &&
	       !completion_done(&req->completion) && !ret)
		ret = t->grow(t, t->length + 1);
	return ret;
}

/*
 * Keeps up to t->depth requests of t->chunk bytes in flight over the range.
 * Returns 0 with everything or a short count in t->done, or -errno; nothing is
 * in flight any more in either case.
 */
static int dio_run_requests(struct dio_transfer *t, struct dio_request *reqs,
			    u64 pos, u64 buf_offset, u64 length, bool direct)
{
	unsigned int head = 0, tail = 0;
	bool gap = false, stop = false;
	u64 started = 0;
	int err = 0;

	for (;;) {
		struct dio_request *req;
		struct iov_iter iter;
		ssize_t ret;

		while (!stop && started < length && head - tail < t->depth) {
			size_t count = min(t->chunk, length - started);
			unsigned int slot = head % t->depth;

			err = t->stopped(t);
			if (!err)
				err = dio_lend(t, slot, buf_offset + started,
					       count, &iter);
			if (err) {
				stop = true;
				break;
			}

			dio_request_start(t, &reqs[slot], &iter, pos + started,
					  direct);
			head++;
			started += count;
			/* What failed at once is not followed by more. */
			stop = !reqs[slot].queued && reqs[slot].result != count;
		}
		if (head == tail)
			return err;

		req = &reqs[tail++ % t->depth];
		if (!stop) {
			err = dio_grow_meanwhile(t, req);
			stop = err;
		}

		/* A killed caller stops here, but its pages are still in use. */
		if (!stop && wait_for_completion_killable(&req->completion)) {
			err = -EINTR;
			stop = true;
			ret = dio_request_wait(req);
		} else {
			ret = stop ? dio_request_wait(req) : req->result;
		}
		if (gap)
			continue;
		if (ret > 0) {
			t->done += ret;
			/* vfs_iocb_iter_write() tells of what it did at once. */
			if (t->rw == WRITE && req->queued)
				fsnotify_modify(t->file);
		}
		if (ret != req->length) {
			gap = true;
			stop = true;
			if (ret < 0 && !err)
				err = ret;
		}
	}
}

/*
 * Runs requests until the range is done, the file ends or an error comes. A
 * short count in the middle of a file is not an end, so what follows it is
 * asked for again.
 */
static int dio_run_body(struct dio_transfer *t, u64 pos, u64 buf_offset,
			u64 length, bool direct)
{
	struct dio_request *reqs;
	u64 begin = t->done;
	int ret = 0;

	reqs = kcalloc(t->depth, sizeof(*reqs), GFP_KERNEL);
	if (!reqs)
		return -ENOMEM;

	while (t->done - begin < length) {
		u64 moved = t->done - begin;

		ret = dio_run_requests(t, reqs, pos + moved, buf_offset + moved,
				       length - moved, direct);
		/* Direct I/O cannot go on from inside a block. */
		if (direct && !IS_ALIGNED(t->done - begin, t->block))
			break;
		if (ret || t->done - begin == moved)
			break;
	}
	kfree(reqs);
	return ret;
}

/*
 * What does not fill a block cannot go by O_DIRECT. Reading fetches the whole
 * block into a page of ours, so that the page cache stays out of it and the
 * buffer is changed within the range only.
 */
static int dio_read_edge(struct dio_transfer *t, u64 pos, u64 buf_offset,
			 unsigned int length)
{
	unsigned int skip = pos & (t->block - 1);
	unsigned int order = get_order(t->block);
	struct dio_request req;
	struct iov_iter iter;
	struct page *page;
	struct bio_vec bv;
	ssize_t ret;

	page = alloc_pages(GFP_KERNEL | __GFP_COMP | __GFP_NOWARN, order);
	if (!page)
		return -ENOMEM;

	bvec_set_page(&bv, page, t->block, 0);
	iov_iter_bvec(&iter, ITER_DEST, &bv, 1, t->block);
	dio_request_start(t, &req, &iter, pos - skip, true);
	ret = dio_request_wait(&req);
	if (ret > skip) {
		size_t count = min_t(size_t, length, ret - skip);

		ret = dio_lend(t, 0, buf_offset, count, &iter);
		if (!ret)
			t->done += copy_to_iter(page_address(page) + skip, count,
						&iter);
	}
	__free_pages(page, order);
	return min_t(ssize_t, ret, 0);
}

static int dio_run_edge(struct dio_transfer *t, u64 pos, u64 buf_offset,
			unsigned int length)
{
	/* Writing part of a block is what the page cache is for. */
	return t->rw == WRITE ?
		dio_run_body(t, pos, buf_offset, length, false) :
		dio_read_edge(t, pos, buf_offset, length);
}

/* The unit of O_DIRECT in the file, and what it asks of memory addresses. */
static int dio_query_alignment(struct dio_transfer *t)
{
	struct inode *inode = t->file->f_mapping->host;
	unsigned int offset_align = 0, mem_align = 0;
	struct kstat stat;
	int ret;

	if (S_ISBLK(inode->i_mode)) {
		offset_align = bdev_logical_block_size(I_BDEV(inode));
		mem_align = bdev_dma_alignment(I_BDEV(inode)) + 1;
	} else {
		ret = vfs_getattr(&t->file->f_path, &stat, STATX_DIOALIGN,
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
 * dio_transfer_init - look at the file and the caller's wishes
 * @t: to be filled in; the caller then sets lend and stopped, and grow if needed
 * @file: the file, which the caller keeps until the transfer is over
 * @rw: READ or WRITE
 * @chunk: bytes per request
 * @depth: requests in flight
 */
int dio_transfer_init(struct dio_transfer *t, struct file *file, int rw,
		      u64 chunk, unsigned int depth)
{
	umode_t mode = file_inode(file)->i_mode;
	int ret;

	*t = (struct dio_transfer){
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
	/* An appending file would ignore the offset. */
	if (rw == WRITE && (file->f_flags & O_APPEND))
		return -EBADF;

	if (file->f_flags & O_DIRECT) {
		ret = dio_query_alignment(t);
		if (ret)
			return ret;
		t->chunk = ALIGN(t->chunk, t->block);
	}
	return 0;
}

/**
 * dio_transfer_run - move a range
 * @t: the transfer
 * @file_offset: start in the file
 * @buf_offset: start in the buffer; the range lies within the buffer
 * @length: bytes to move
 *
 * Return: 0 if everything was moved or the file ended, else -errno; t->done
 * holds the bytes moved in every case.
 */
int dio_transfer_run(struct dio_transfer *t, u64 file_offset, u64 buf_offset,
		     u64 length)
{
	u64 end, head, body;
	int ret = 0;

	if (check_add_overflow(file_offset, length, &end) || end > LLONG_MAX)
		return -EOVERFLOW;
	if (!t->block)
		return dio_run_body(t, file_offset, buf_offset, length, false);

	head = min(length, ALIGN(file_offset, t->block) - file_offset);
	body = ALIGN_DOWN(length - head, t->block);
	if (body && (file_offset ^ buf_offset) & (t->align - 1))
		return -EINVAL;

	if (head) {
		ret = dio_run_edge(t, file_offset, buf_offset, head);
		if (ret || t->done < head)
			return ret;
	}
	if (body) {
		ret = dio_run_body(t, file_offset + head, buf_offset + head,
				   body, true);
		if (ret || t->done < head + body)
			return ret;
	}
	if (t->done < length) {
		ret = t->stopped(t);
		if (!ret)
			ret = dio_run_edge(t, file_offset + t->done,
					   buf_offset + t->done,
					   length - t->done);
	}
	return ret;
}
