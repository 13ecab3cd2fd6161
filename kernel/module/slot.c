// SPDX-License-Identifier: GPL-2.0-only
/*
 * Slots: part of the attached buffer as an io_uring fixed buffer
 */
#include "context.h"

#ifdef HAVE_IO_BUFFER_REGISTER_BVEC

#include <linux/file.h>
#include <linux/limits.h>
#include <linux/overflow.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

/* A slot holds its context, which holds the buffer and this module. */
static void dio_slot_release(void *file)
{
	fput(file);
}

static int dio_slot_register(struct io_uring_cmd *cmd,
			     const struct dmabuf_dio_slot *slot,
			     unsigned int issue_flags)
{
	struct dio_context *ctx = cmd->file->private_data;
	struct dio_attachment *att = dio_attached(ctx);
	const struct dio_segments *segs;
	struct dio_cursor cur, last;
	struct bio_vec *vec;
	unsigned int nr;
	u8 dir = 0;
	u64 end;
	int ret;

	if (!slot->flags ||
	    slot->flags & ~(DMABUF_DIO_SLOT_READ | DMABUF_DIO_SLOT_WRITE))
		return -EINVAL;
	/* io_uring counts a buffer's bytes in an unsigned int. */
	if (!slot->length || slot->length > UINT_MAX ||
	    !PAGE_ALIGNED(slot->buf_offset))
		return -EINVAL;
	if (!att)
		return -ENOTCONN;
	if (slot->flags & DMABUF_DIO_SLOT_READ && !dio_writable(att))
		return -EACCES;
	segs = att->segs;
	if (check_add_overflow(slot->buf_offset, slot->length, &end) ||
	    end > segs->length)
		return -ERANGE;

	/* Thousands of slots, filled in order, take one walk together. */
	mutex_lock(&ctx->lock);
	dio_segments_seek(segs, &ctx->slot, slot->buf_offset);
	cur = ctx->slot;
	mutex_unlock(&ctx->lock);
	last = cur;
	dio_segments_seek(segs, &last, end - 1);
	nr = last.index - cur.index + 1;

	vec = kvmalloc_array(nr, sizeof(*vec), GFP_KERNEL);
	if (!vec)
		return -ENOMEM;
	memcpy(vec, &segs->vec[cur.index], nr * sizeof(*vec));
	vec[nr - 1].bv_len = end - last.start;
	/* Whole pages are skipped, so every boundary stays page aligned. */
	bvec_set_page(&vec[0],
		      vec[0].bv_page + ((slot->buf_offset - cur.start) >> PAGE_SHIFT),
		      vec[0].bv_len - (slot->buf_offset - cur.start), 0);

	if (slot->flags & DMABUF_DIO_SLOT_READ)
		dir |= IO_BUF_DEST;
	if (slot->flags & DMABUF_DIO_SLOT_WRITE)
		dir |= IO_BUF_SOURCE;

	get_file(cmd->file);	/* dropped by dio_slot_release() */
	ret = io_buffer_register_bvec(cmd, vec, nr, dio_slot_release, cmd->file,
				      dir, slot->index, issue_flags);
	if (ret)
		fput(cmd->file);
	kvfree(vec);
	return ret;
}

static int dio_slot_unregister(struct io_uring_cmd *cmd,
			       const struct dmabuf_dio_slot *slot,
			       unsigned int issue_flags)
{
	if (slot->buf_offset || slot->length || slot->flags)
		return -EINVAL;
	return io_buffer_unregister(cmd, slot->index, issue_flags);
}

int dio_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	const struct dmabuf_dio_uring_cmd *uc =
		io_uring_sqe_cmd(cmd->sqe, struct dmabuf_dio_uring_cmd);
	struct dmabuf_dio_slot slot;
	int ret;

	if (READ_ONCE(uc->reserved))
		return -EINVAL;
	ret = copy_struct_from_user(&slot, sizeof(slot),
				    u64_to_user_ptr(READ_ONCE(uc->arg)),
				    READ_ONCE(uc->size));
	if (ret)
		return ret;

	switch (cmd->cmd_op) {
	case DMABUF_DIO_URING_REGISTER:
		return dio_slot_register(cmd, &slot, issue_flags);
	case DMABUF_DIO_URING_UNREGISTER:
		return dio_slot_unregister(cmd, &slot, issue_flags);
	default:
		return -ENOTTY;
	}
}

#else

int dio_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	return -EOPNOTSUPP;
}

#endif
