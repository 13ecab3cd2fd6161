// SPDX-License-Identifier: GPL-2.0-only
/*
 * Slots: parts of the attached buffer as io_uring fixed buffers
 */
#include "context.h"
#include "exporter.h"

#ifdef HAVE_IO_BUFFER_REGISTER_BVEC

#include <linux/cache.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/hashtable.h>
#include <linux/limits.h>
#include <linux/overflow.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "premap.h"

/* A buffer of a slot */
struct dbx_slot_part {
	struct file *file;		/* the context, which holds buffer and module */
	struct bio_premap *premap;	/* of io_uring's copy of the vectors, or NULL */
};

/* A fixed buffer of a ring, from REGISTER or JOIN until its last request is done */
struct dbx_slot {
	struct hlist_node node;
	const struct io_ring_ctx *ring;	/* for comparison only */
	unsigned int index;
	unsigned int nr;
	struct dbx_slot_part parts[] __counted_by(nr);
};

/* Our slots in all rings, as io_uring does not report who owns a slot */
static DEFINE_HASHTABLE(dbx_slots, 10);
static DEFINE_SPINLOCK(dbx_slots_lock);

static const struct io_ring_ctx *dbx_ring(struct io_uring_cmd *cmd)
{
	return cmd_to_io_kiocb(cmd)->ctx;
}

static unsigned long dbx_slot_key(const struct io_ring_ctx *ring,
				  unsigned int index)
{
	return (unsigned long)ring / L1_CACHE_BYTES + index;
}

static void dbx_slot_release(void *priv)
{
	struct dbx_slot *slot = priv;
	struct file *last;
	unsigned int i;

	spin_lock(&dbx_slots_lock);
	hash_del(&slot->node);
	spin_unlock(&dbx_slots_lock);
	for (i = 0; i < slot->nr; i++) {
		dbx_premap_drop_copy(slot->parts[i].premap);
		if (i)
			fput(slot->parts[i].file);
	}
	last = slot->nr ? slot->parts[0].file : NULL;
	kfree(slot);
	/* At the end, as the module may go now: see dbx_exit(). */
	if (last)
		fput(last);
}

/* Called before the registration, which may release the slot at once. */
static struct dbx_slot *dbx_slot_create(struct io_uring_cmd *cmd,
					unsigned int index, unsigned int parts)
{
	struct dbx_slot *slot;

	slot = kzalloc(struct_size(slot, parts, parts), GFP_KERNEL_ACCOUNT);
	if (!slot)
		return NULL;

	slot->ring = dbx_ring(cmd);
	slot->index = index;
	spin_lock(&dbx_slots_lock);
	hash_add(dbx_slots, &slot->node, dbx_slot_key(slot->ring, index));
	spin_unlock(&dbx_slots_lock);
	return slot;
}

/*
 * Is the slot ours? It is known from before REGISTER fills it until io_uring has
 * released it, as UNREGISTER may fail.
 */
static bool dbx_slot_known(struct io_uring_cmd *cmd, unsigned int index)
{
	const struct io_ring_ctx *ring = dbx_ring(cmd);
	struct dbx_slot *slot;
	bool found = false;

	spin_lock(&dbx_slots_lock);
	hash_for_each_possible(dbx_slots, slot, node, dbx_slot_key(ring, index)) {
		if (slot->ring == ring && slot->index == index) {
			found = true;
			break;
		}
	}
	spin_unlock(&dbx_slots_lock);
	return found;
}

/* The file's reference is dropped by dbx_slot_release(). */
static struct dbx_slot_part *dbx_slot_add(struct dbx_slot *slot,
					  struct file *file)
{
	struct dbx_slot_part *part;

	slot->nr++;
	part = &slot->parts[slot->nr - 1];
	part->file = file;
	return part;
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

/* Frees the vectors, which io_uring copies, and if that fails the slot. */
static int dbx_slot_publish(struct io_uring_cmd *cmd, struct dbx_slot *slot,
			    struct bio_vec *vec, unsigned int nr, u32 flags,
			    unsigned int issue_flags)
{
	int ret;

	ret = io_buffer_register_bvec(cmd, vec, nr, dbx_slot_release, slot,
				      dbx_slot_direction(flags), slot->index,
				      issue_flags);
	if (ret)
		dbx_slot_release(slot);
	kvfree(vec);
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
	struct dbx_slot *slot;
	struct bio_vec *vec;
	unsigned int nr;
	u64 end;
	int ret;

	if (!dbx_slot_flags_valid(arg->flags))
		return -EINVAL;
	/* io_uring counts a buffer's bytes in an unsigned int. */
	if (!arg->length || arg->length > UINT_MAX ||
	    !PAGE_ALIGNED(arg->buf_offset))
		return -EINVAL;
	ret = dbx_slot_check(att, arg->flags);
	if (ret)
		return ret;
	segs = att->segs;
	if (check_add_overflow(arg->buf_offset, arg->length, &end) ||
	    end > segs->length)
		return -ERANGE;

	/* Registering slots in ascending order takes a single walk in total. */
	mutex_lock(&ctx->lock);
	dbx_segments_seek(segs, &ctx->cursor, arg->buf_offset);
	cur = ctx->cursor;
	mutex_unlock(&ctx->lock);
	last = cur;
	dbx_segments_seek(segs, &last, end - 1);
	nr = last.index - cur.index + 1;

	vec = kvmalloc_array(nr, sizeof(*vec), GFP_KERNEL);
	if (!vec)
		return -ENOMEM;
	memcpy(vec, &segs->vec[cur.index], nr * sizeof(*vec));
	vec[nr - 1].bv_len = end - last.start;
	/* Only whole pages are skipped, so every boundary stays page-aligned. */
	bvec_set_page(&vec[0],
		      vec[0].bv_page + ((arg->buf_offset - cur.start) >> PAGE_SHIFT),
		      vec[0].bv_len - (arg->buf_offset - cur.start), 0);

	slot = dbx_slot_create(cmd, arg->index, 1);
	if (!slot) {
		kvfree(vec);
		return -ENOMEM;
	}
	dbx_slot_add(slot, get_file(cmd->file))->premap =
		dbx_premap_copy(segs, vec, nr, cur.index);
	return dbx_slot_publish(cmd, slot, vec, nr, arg->flags, issue_flags);
}

/*
 * Takes references to the contexts. Returns how many vectors their buffers have,
 * or an error; the caller releases the slot.
 */
static int dbx_join_contexts(struct io_uring_cmd *cmd, struct dbx_slot *slot,
			     const s32 *fds, const struct dmabuf_dio_join *arg)
{
	struct dbx_attachment *att;
	unsigned int i, nr = 0;
	struct file *file;
	u64 length = 0;
	int ret;

	for (i = 0; i < arg->count; i++) {
		file = fget(fds[i]);
		if (!file)
			return -EBADF;
		dbx_slot_add(slot, file);
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
	struct dbx_slot *slot;
	struct bio_vec *vec;
	unsigned int i, at = 0;
	int ret, nr;
	s32 *fds;

	if (!dbx_slot_flags_valid(arg->flags) || arg->reserved)
		return -EINVAL;
	if (!arg->count || arg->count > DMABUF_DIO_JOIN_MAX)
		return -EINVAL;
	fds = memdup_array_user(u64_to_user_ptr(arg->contexts), arg->count,
				sizeof(*fds));
	if (IS_ERR(fds))
		return PTR_ERR(fds);

	ret = -ENOMEM;
	slot = dbx_slot_create(cmd, arg->index, arg->count);
	if (!slot)
		goto out_free;
	nr = dbx_join_contexts(cmd, slot, fds, arg);
	ret = nr;
	if (nr < 0)
		goto err_release;
	ret = -ENOMEM;
	vec = kvmalloc_array(nr, sizeof(*vec), GFP_KERNEL);
	if (!vec)
		goto err_release;
	for (i = 0; i < arg->count; i++) {
		struct dbx_slot_part *part = &slot->parts[i];
		const struct dbx_segments *segs =
			dbx_attached(part->file->private_data)->segs;

		memcpy(&vec[at], segs->vec, segs->nr * sizeof(*vec));
		part->premap = dbx_premap_copy(segs, &vec[at], segs->nr, 0);
		at += segs->nr;
	}
	ret = dbx_slot_publish(cmd, slot, vec, nr, arg->flags, issue_flags);
	goto out_free;

err_release:
	dbx_slot_release(slot);
out_free:
	kfree(fds);
	return ret;
}

static int dbx_slot_unregister(struct io_uring_cmd *cmd,
			       const struct dmabuf_dio_slot *arg,
			       unsigned int issue_flags)
{
	int ret;

	if (arg->buf_offset || arg->length || arg->flags)
		return -EINVAL;
	if (!dbx_slot_known(cmd, arg->index))
		return -EBUSY;
	ret = io_buffer_unregister(cmd, arg->index, issue_flags);
	/* The slot is empty: something else has removed the buffer. */
	return ret == -EINVAL ? -EBUSY : ret;
}

int dbx_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	const struct dmabuf_dio_uring_cmd *uc =
		io_uring_sqe_cmd(cmd->sqe, struct dmabuf_dio_uring_cmd);
	union {
		struct dmabuf_dio_slot slot;
		struct dmabuf_dio_join join;
	} arg;
	u32 size = READ_ONCE(uc->size);
	size_t ksize;
	int ret;

	if (READ_ONCE(uc->reserved))
		return -EINVAL;
	/* copy_struct_from_user() reads all of it. */
	if (size > PAGE_SIZE)
		return -E2BIG;
	ksize = cmd->cmd_op == DMABUF_DIO_URING_JOIN ? sizeof(arg.join) :
						       sizeof(arg.slot);
	ret = copy_struct_from_user(&arg, ksize,
				    u64_to_user_ptr(READ_ONCE(uc->arg)), size);
	if (ret)
		return ret;

	switch (cmd->cmd_op) {
	case DMABUF_DIO_URING_REGISTER:
		return dbx_slot_register(cmd, &arg.slot, issue_flags);
	case DMABUF_DIO_URING_UNREGISTER:
		return dbx_slot_unregister(cmd, &arg.slot, issue_flags);
	case DMABUF_DIO_URING_JOIN:
		return dbx_slot_join(cmd, &arg.join, issue_flags);
	default:
		return -ENOTTY;
	}
}

#else

int dbx_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	return -EOPNOTSUPP;
}

#endif
