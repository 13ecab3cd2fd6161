// SPDX-License-Identifier: GPL-2.0-only
/*
 * Slots: parts of the attached buffer as io_uring fixed buffers
 */
#include <linux/cleanup.h>
#include <linux/file.h>
#include <linux/io_uring/cmd.h>
#include <linux/limits.h>
#include <linux/overflow.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "context.h"
#include "exporter.h"
#include "premap.h"

/* A buffer of a slot */
struct dbx_slot_part {
	struct file *file;		/* the context, which holds buffer and module */
	struct bio_premap *premap;	/* of io_uring's copy of the vectors, or NULL */
};

/* References that a fixed buffer keeps until its last request is done */
struct dbx_slot {
	unsigned int nr;
	struct dbx_slot_part parts[] __counted_by(nr);
};

static void dbx_slot_release(void *priv)
{
	struct dbx_slot *slot = priv;
	struct file *last = NULL;
	unsigned int i;

	if (!slot)
		return;
	for (i = 0; i < slot->nr; i++) {
		if (last)
			fput(last);
		dbx_premap_drop_copy(slot->parts[i].premap);
		last = slot->parts[i].file;
	}
	kfree(slot);
	/* At the end, as the module may go now: see dbx_exit(). */
	if (last)
		fput(last);
}

DEFINE_FREE(dbx_slot, struct dbx_slot *, dbx_slot_release(_T))

/* dbx_slot_release() drops the references to the parts' files. */
static struct dbx_slot *dbx_slot_create(unsigned int nr)
{
	struct dbx_slot *slot;

	slot = kzalloc_flex(*slot, parts, nr, GFP_KERNEL_ACCOUNT);
	if (slot)
		slot->nr = nr;
	return slot;
}

static bool dbx_slot_flags_valid(u32 flags)
{
	return flags && !(flags & ~(DMABUF_DIO_SLOT_READ | DMABUF_DIO_SLOT_WRITE));
}

/* May a slot give these kinds of access to the buffer? */
static int dbx_slot_check(struct dbx_attachment *att, u32 flags)
{
	if (!att)
		return -ENOTCONN;
	if ((flags & DMABUF_DIO_SLOT_READ && !dbx_allowed(att, READ)) ||
	    (flags & DMABUF_DIO_SLOT_WRITE && !dbx_allowed(att, WRITE)))
		return -EACCES;
	/* Attached devices cannot be checked at each request. */
	if (att->exporter->unsynced)
		return -EOPNOTSUPP;
	if (flags & DMABUF_DIO_SLOT_READ)
		WRITE_ONCE(att->stored, true);
	return 0;
}

static u8 dbx_slot_direction(u32 flags)
{
	return (flags & DMABUF_DIO_SLOT_READ ? IO_BUF_DEST : 0) |
	       (flags & DMABUF_DIO_SLOT_WRITE ? IO_BUF_SOURCE : 0);
}

/* Consumes the slot; io_uring copies the vectors. */
static int dbx_slot_publish(struct io_uring_cmd *cmd, struct dbx_slot *slot,
			    const struct bio_vec *vec, unsigned int nr,
			    u32 flags, u32 index, unsigned int issue_flags)
{
	int ret;

	ret = io_buffer_register_bvec(cmd, vec, nr, dbx_slot_release, slot,
				      dbx_slot_direction(flags), index,
				      issue_flags);
	if (ret)
		dbx_slot_release(slot);
	return ret;
}

static int dbx_slot_register(struct io_uring_cmd *cmd,
			     const struct dmabuf_dio_slot *arg,
			     unsigned int issue_flags)
{
	struct dbx_context *ctx = cmd->file->private_data;
	struct dbx_attachment *att = dbx_attached(ctx);
	const struct dbx_segments *segs;
	struct dbx_cursor cur, last;
	unsigned int nr;
	u64 end, skip;
	int ret;

	/* io_uring counts a buffer's bytes in an unsigned int. */
	if (!dbx_slot_flags_valid(arg->flags) || !arg->length ||
	    arg->length > UINT_MAX || !PAGE_ALIGNED(arg->buf_offset))
		return -EINVAL;
	ret = dbx_slot_check(att, arg->flags);
	if (ret)
		return ret;
	segs = att->segs;
	if (check_add_overflow(arg->buf_offset, arg->length, &end) ||
	    end > segs->length)
		return -ERANGE;

	/* Registering slots in ascending order takes a single walk in total. */
	scoped_guard(mutex, &ctx->lock) {
		dbx_segments_seek(segs, &ctx->cursor, arg->buf_offset);
		cur = ctx->cursor;
	}
	last = cur;
	dbx_segments_seek(segs, &last, end - 1);
	nr = last.index - cur.index + 1;

	struct bio_vec *vec __free(kvfree) =
		kvmalloc_array(nr, sizeof(*vec), GFP_KERNEL);
	struct dbx_slot *slot __free(dbx_slot) = dbx_slot_create(1);
	if (!vec || !slot)
		return -ENOMEM;

	memcpy(vec, &segs->vec[cur.index], nr * sizeof(*vec));
	vec[nr - 1].bv_len = end - last.start;
	/* Only whole pages are skipped, so every boundary stays page-aligned. */
	skip = arg->buf_offset - cur.start;
	vec[0].bv_page += skip >> PAGE_SHIFT;
	vec[0].bv_len -= skip;
	slot->parts[0].premap = dbx_premap_copy(segs, vec, nr, cur.index);
	slot->parts[0].file = get_file(cmd->file);
	return dbx_slot_publish(cmd, no_free_ptr(slot), vec, nr, arg->flags,
				arg->index, issue_flags);
}

/* Takes the contexts. Returns how many vectors their buffers have, or an error. */
static int dbx_join_contexts(struct io_uring_cmd *cmd, struct dbx_slot *slot,
			     const struct dmabuf_dio_join *arg)
{
	const s32 __user *fds = u64_to_user_ptr(arg->contexts);
	struct dbx_attachment *att;
	unsigned int i, nr = 0;
	struct file *file;
	u64 length = 0;
	int ret, fd;

	for (i = 0; i < slot->nr; i++) {
		if (get_user(fd, &fds[i]))
			return -EFAULT;
		file = fget(fd);
		if (!file)
			return -EBADF;
		slot->parts[i].file = file;
		if (file->f_op != cmd->file->f_op)
			return -EINVAL;
		att = dbx_attached(file->private_data);
		ret = dbx_slot_check(att, arg->flags);
		if (ret)
			return ret;
		/* Every boundary stays page-aligned; io_uring counts in 32 bits. */
		length += att->segs->length;
		if (!PAGE_ALIGNED(att->segs->length) || length > UINT_MAX ||
		    check_add_overflow(nr, att->segs->nr, &nr) || nr > INT_MAX)
			return -EINVAL;
	}
	return nr;
}

static int dbx_slot_join(struct io_uring_cmd *cmd,
			 const struct dmabuf_dio_join *arg,
			 unsigned int issue_flags)
{
	unsigned int i, at = 0;
	int nr;

	if (!dbx_slot_flags_valid(arg->flags) || arg->reserved ||
	    !arg->count || arg->count > DMABUF_DIO_JOIN_MAX)
		return -EINVAL;

	struct dbx_slot *slot __free(dbx_slot) = dbx_slot_create(arg->count);
	if (!slot)
		return -ENOMEM;
	nr = dbx_join_contexts(cmd, slot, arg);
	if (nr < 0)
		return nr;

	struct bio_vec *vec __free(kvfree) =
		kvmalloc_array(nr, sizeof(*vec), GFP_KERNEL);
	if (!vec)
		return -ENOMEM;
	for (i = 0; i < slot->nr; i++) {
		struct dbx_slot_part *part = &slot->parts[i];
		const struct dbx_segments *segs =
			dbx_attached(part->file->private_data)->segs;

		memcpy(&vec[at], segs->vec, segs->nr * sizeof(*vec));
		part->premap = dbx_premap_copy(segs, &vec[at], segs->nr, 0);
		at += segs->nr;
	}
	return dbx_slot_publish(cmd, no_free_ptr(slot), vec, nr, arg->flags,
				arg->index, issue_flags);
}

int dbx_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	const struct dmabuf_dio_uring_cmd *uc =
		io_uring_sqe_cmd(cmd->sqe, struct dmabuf_dio_uring_cmd);
	const void __user *uarg = u64_to_user_ptr(READ_ONCE(uc->arg));
	u32 size = READ_ONCE(uc->size);
	struct dmabuf_dio_slot slot;
	struct dmabuf_dio_join join;
	int ret;

	if (READ_ONCE(uc->reserved))
		return -EINVAL;
	/* copy_struct_from_user() reads all of it. */
	if (size > PAGE_SIZE)
		return -E2BIG;

	switch (cmd->cmd_op) {
	case DMABUF_DIO_URING_REGISTER:
		ret = copy_struct_from_user(&slot, sizeof(slot), uarg, size);
		return ret ?: dbx_slot_register(cmd, &slot, issue_flags);
	case DMABUF_DIO_URING_JOIN:
		ret = copy_struct_from_user(&join, sizeof(join), uarg, size);
		return ret ?: dbx_slot_join(cmd, &join, issue_flags);
	default:
		return -ENOTTY;
	}
}
