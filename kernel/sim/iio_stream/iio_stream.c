// SPDX-License-Identifier: GPL-2.0-only
/*
 * IIO devices for tests: counting ADCs and checking DACs
 *
 * "stream-adc" fills blocks with the numbers 0, 1, 2, ...: frame n, with all
 * four channels enabled, is the 64-bit little-endian number n, 16 bits per
 * channel. "stream-dac" accepts such frames and counts those that are out of
 * order. Both are ordinary IIO devices with fileio and DMABUF buffers;
 * "stream-adc-fileio" and "stream-dac-fileio" have no DMABUF buffers.
 *
 * A thread copies what hardware would move by DMA. It accesses a block through
 * a mapping (dma_buf_vmap()) that is made when the dma-buf is attached; the
 * pages of an sg_table are never touched. The accesses are not bracketed by
 * begin and end of CPU access, which would wait for the fence of the block
 * itself. Buffers therefore have to be coherent, like the system heap's buffers
 * on the guests' machine.
 *
 * Frames arrive at sampling_frequency. Without a queued block they are lost and
 * counted in lost_frames. If the frequency is 0, they arrive as fast as blocks
 * are queued, and none are lost. A DAC loses frames only between two blocks:
 * before the first one and after the last it has nothing to output. Writing
 * inject_loss loses some frames. Writing scan_type ("be:s12/16>>4") changes the
 * format that the channels report, of 16 bits in memory; the bytes stay the
 * same. Writing reports chooses what the device says of lost frames: 2 their
 * number, 1 only that there were any, in the status register of a backend as
 * that of Analog Devices' cores (debugfs), 0 nothing. If sparse is set, only
 * the first frame of each block is written or checked, so that the device's CPU
 * time does not affect measurements.
 */
#include <linux/cleanup.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/iio/buffer-dma.h>
#include <linux/iio/buffer_impl.h>
#include <linux/iio/iio.h>
#include <linux/iio/sysfs.h>
#include <linux/iosys-map.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/unaligned.h>

static bool reset_dequeue = true;
module_param(reset_dequeue, bool, 0644);
MODULE_PARM_DESC(reset_dequeue, "Begin read() with the first block; kernel/series has the core do it");

#define STREAM_CHANNELS		4
#define STREAM_RATE_DEFAULT	1000000
#define STREAM_RATE_MAX		1000000000
#define STREAM_TICK_US		500
#define STREAM_STATUS		0x88	/* the register */
#define STREAM_UNDERFLOW	BIT(0)
#define STREAM_OVERFLOW		BIT(2)
#define STREAM_ALIGN		8	/* of blocks, as required by some DMA controllers */

/* An attached dma-buf, identified by its block */
struct stream_map {
	struct list_head head;
	struct iio_dma_buffer_block *block;
	struct dma_buf *dmabuf;		/* the IIO core's reference */
	struct iosys_map map;
};

struct stream {
	struct iio_dma_buffer_queue queue;
	struct iio_buffer_access_funcs access;
	struct list_head active;	/* queue.list_lock */
	struct list_head maps;		/* queue.list_lock */

	/* Held while a block is processed, so that it is not detached */
	struct mutex lock;
	wait_queue_head_t wake;
	struct task_struct *thread;
	bool input;
	bool running;
	size_t pos;			/* in the first active block */
	size_t frame;			/* bytes */
	u64 next;			/* number of the next frame */
	ktime_t start;
	u64 due;			/* frames since the start, at the rate */

	/* Set and read through sysfs */
	struct iio_chan_spec channels[STREAM_CHANNELS];
	u32 rate;
	bool sparse;
	u64 inject;
	u32 reports;
	u32 address;			/* of the register that is read next */
	u32 status;			/* queue.list_lock */
	u64 lost;			/* queue.list_lock */
	u64 starved;			/* by a DAC since its last block, same lock */
	u64 wrong;
	u64 done;
};

static struct stream *to_stream(struct iio_buffer *buffer)
{
	return container_of(buffer, struct stream, queue.buffer);
}

static struct stream *iio_to_stream(struct iio_dev *indio_dev)
{
	return *(struct stream **)iio_priv(indio_dev);
}

/* The frames of a block */

static struct iio_dma_buffer_block *stream_first(struct stream *stream)
{
	guard(spinlock_irqsave)(&stream->queue.list_lock);
	return list_first_entry_or_null(&stream->active,
					struct iio_dma_buffer_block, head);
}

static void *stream_address(struct stream *stream,
			    struct iio_dma_buffer_block *block)
{
	struct stream_map *map;

	if (block->fileio)
		return block->vaddr;
	guard(spinlock_irqsave)(&stream->queue.list_lock);
	list_for_each_entry(map, &stream->maps, head) {
		if (map->block == block) {
			/* Blocks take turns: the next one is first then. */
			list_move_tail(&map->head, &stream->maps);
			return map->map.vaddr;
		}
	}
	return NULL;
}

/* Writes the frame at the position, or checks it. */
static void stream_frame(struct stream *stream, u8 *at)
{
	u8 number[8];

	put_unaligned_le64(stream->next, number);
	if (stream->input) {
		memcpy(at, number, stream->frame);
	} else if (memcmp(at, number, stream->frame)) {
		stream->wrong++;
		memcpy(number, at, stream->frame);
		stream->next = get_unaligned_le64(number);
	}
}

/* Writes @count whole frames, as fast as a rate of 500 MB/s needs in an emulated machine. */
static void stream_count(struct stream *stream, __le64 *at, u64 count)
{
	u64 i;

	for (i = 0; i < count; i++)
		at[i] = cpu_to_le64(stream->next + i);
}

/* Transfers up to @count frames. Returns how many. */
static u64 stream_move(struct stream *stream, struct iio_dma_buffer_block *block,
		       u64 count)
{
	u8 *at = stream_address(stream, block);
	u64 moved, step;

	count = min(count, (block->bytes_used - stream->pos) / stream->frame);
	if (stream->input && !stream->sparse && stream->frame == sizeof(__le64)) {
		stream_count(stream, (__le64 *)(at + stream->pos), count);
		stream->next += count;
		stream->pos += count * stream->frame;
		stream->done += count;
		return count;
	}
	for (moved = 0; moved < count; moved += step) {
		step = stream->sparse ? count - moved : 1;
		if (!stream->sparse || !stream->pos)
			stream_frame(stream, at + stream->pos);
		stream->next += step;
		stream->pos += step * stream->frame;
	}
	stream->done += moved;
	return moved;
}

/* Completes the first block, or restarts it. */
static void stream_finish(struct stream *stream,
			  struct iio_dma_buffer_block *block)
{
	stream->pos = 0;
	scoped_guard(spinlock_irqsave, &stream->queue.list_lock) {
		/* A cyclic block is repeated until another one is queued. */
		if (block->cyclic && list_is_last(&block->head, &stream->active))
			return;
		list_del(&block->head);
	}
	iio_dma_buffer_block_done(block);
}

/* The thread that acts as the hardware */

/* Frames that are due at this rate */
static u64 stream_due(struct stream *stream)
{
	u64 elapsed, all, due;

	if (!stream->rate)
		return U64_MAX;
	elapsed = ktime_to_ns(ktime_sub(ktime_get(), stream->start));
	all = mul_u64_u32_div(elapsed, stream->rate, NSEC_PER_SEC);
	due = all - stream->due;
	stream->due = all;
	return due;
}

/* With list_lock held */
static void stream_note(struct stream *stream, u64 count)
{
	stream->lost += count;
	if (count)
		stream->status |= stream->input ? STREAM_OVERFLOW : STREAM_UNDERFLOW;
}

static void stream_lose(struct stream *stream, u64 count)
{
	stream->next += stream->input ? count : 0;
	guard(spinlock_irqsave)(&stream->queue.list_lock);
	stream_note(stream, count);
}

/* There was no block for @count frames. */
static void stream_starve(struct stream *stream, u64 count)
{
	if (stream->input) {
		stream_lose(stream, count);
	} else if (stream->done) {
		guard(spinlock_irqsave)(&stream->queue.list_lock);
		/* By now there may be one. */
		if (list_empty(&stream->active))
			stream->starved += count;
		else
			stream_note(stream, count);
	}
}

/* Returns whether there was anything to do. */
static bool stream_work(struct stream *stream)
{
	struct iio_dma_buffer_block *block;
	u64 due, moved;

	guard(mutex)(&stream->lock);
	if (!stream->running)
		return false;
	due = stream_due(stream);
	while (due) {
		block = stream_first(stream);
		if (!block) {
			if (stream->rate)
				stream_starve(stream, due);
			return false;
		}
		if (stream->inject && !stream->pos) {
			stream_lose(stream, stream->inject);
			stream->inject = 0;
		}
		moved = stream_move(stream, block, min(due, SZ_64K));
		due -= stream->rate ? moved : 0;
		if (stream->pos + stream->frame > block->bytes_used)
			stream_finish(stream, block);
		if (!stream->rate)
			break;
	}
	return true;
}

static int stream_thread(void *data)
{
	struct stream *stream = data;

	while (!kthread_should_stop()) {
		bool busy = stream_work(stream);

		if (READ_ONCE(stream->rate) && READ_ONCE(stream->running))
			usleep_range(STREAM_TICK_US, 2 * STREAM_TICK_US);
		else if (!busy)
			wait_event_interruptible(stream->wake,
						 kthread_should_stop() ||
						 (READ_ONCE(stream->running) &&
						  (stream->rate || stream_first(stream))));
		else
			cond_resched();
	}
	return 0;
}

/* Callbacks of the IIO core */

static int stream_submit(struct iio_dma_buffer_queue *queue,
			 struct iio_dma_buffer_block *block)
{
	struct stream *stream = to_stream(&queue->buffer);

	if (block->fileio && stream->input)
		block->bytes_used = block->size;
	if (!block->fileio && block->bytes_used % STREAM_ALIGN)
		return -EINVAL;
	scoped_guard(spinlock_irqsave, &queue->list_lock) {
		stream_note(stream, stream->starved);
		stream->starved = 0;
		list_add_tail(&block->head, &stream->active);
	}
	wake_up(&stream->wake);
	return 0;
}

static void stream_abort(struct iio_dma_buffer_queue *queue)
{
	struct stream *stream = to_stream(&queue->buffer);

	guard(mutex)(&stream->lock);
	stream->pos = 0;
	iio_dma_buffer_block_list_abort(queue, &stream->active);
}

static const struct iio_dma_buffer_ops stream_queue_ops = {
	.submit = stream_submit,
	.abort = stream_abort,
};

/* Called with the dma-buf's reservation held. */
static struct iio_dma_buffer_block *
stream_attach(struct iio_buffer *buffer, struct dma_buf_attachment *attach)
{
	struct stream *stream = to_stream(buffer);
	struct iio_dma_buffer_block *block;
	int ret;

	struct stream_map *map __free(kfree) = kzalloc_obj(*map);
	if (!map)
		return ERR_PTR(-ENOMEM);
	ret = dma_buf_vmap(attach->dmabuf, &map->map);
	if (ret)
		return ERR_PTR(ret);
	if (map->map.is_iomem) {
		block = ERR_PTR(-EOPNOTSUPP);
		goto err_vunmap;
	}
	block = iio_dma_buffer_attach_dmabuf(buffer, attach);
	if (IS_ERR(block))
		goto err_vunmap;

	map->block = block;
	map->dmabuf = attach->dmabuf;
	scoped_guard(spinlock_irqsave, &stream->queue.list_lock)
		list_add_tail(&no_free_ptr(map)->head, &stream->maps);
	return block;

err_vunmap:
	dma_buf_vunmap(attach->dmabuf, &map->map);
	return block;
}

/* The block is not in use: its fence held a reference to the attachment. */
static void stream_detach(struct iio_buffer *buffer,
			  struct iio_dma_buffer_block *block)
{
	struct stream *stream = to_stream(buffer);
	struct stream_map *map, *found = NULL;

	scoped_guard(spinlock_irqsave, &stream->queue.list_lock) {
		list_for_each_entry(map, &stream->maps, head) {
			if (map->block == block) {
				found = map;
				list_del(&map->head);
				break;
			}
		}
	}
	if (found) {
		dma_buf_vunmap_unlocked(found->dmabuf, &found->map);
		kfree(found);
	}
	iio_dma_buffer_detach_dmabuf(buffer, block);
}

static void stream_release(struct iio_buffer *buffer)
{
	struct stream *stream = to_stream(buffer);

	iio_dma_buffer_release(&stream->queue);
	mutex_destroy(&stream->lock);
	kfree(stream);
}

static ssize_t length_align_show(struct device *dev,
				 struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", STREAM_ALIGN);
}

static IIO_DEVICE_ATTR(length_align_bytes, 0444, length_align_show, NULL, 0);

static const struct iio_dev_attr *stream_buffer_attrs[] = {
	&iio_dev_attr_length_align_bytes,
	NULL
};

static const struct iio_buffer_access_funcs stream_access = {
	.read = iio_dma_buffer_read,
	.write = iio_dma_buffer_write,
	.set_bytes_per_datum = iio_dma_buffer_set_bytes_per_datum,
	.set_length = iio_dma_buffer_set_length,
	.request_update = iio_dma_buffer_request_update,
	.enable = iio_dma_buffer_enable,
	.disable = iio_dma_buffer_disable,
	.data_available = iio_dma_buffer_usage,
	.space_available = iio_dma_buffer_usage,
	.release = stream_release,
	.attach_dmabuf = stream_attach,
	.detach_dmabuf = stream_detach,
	.enqueue_dmabuf = iio_dma_buffer_enqueue_dmabuf,
	.lock_queue = iio_dma_buffer_lock_queue,
	.unlock_queue = iio_dma_buffer_unlock_queue,
	.get_dma_dev = iio_dma_buffer_get_dma_dev,
	.modes = INDIO_BUFFER_HARDWARE,
	.flags = INDIO_BUFFER_FLAG_FIXED_WATERMARK,
};

/* Counting restarts each time the buffer is enabled. */
static int stream_preenable(struct iio_dev *indio_dev)
{
	struct stream *stream = iio_to_stream(indio_dev);

	guard(mutex)(&stream->lock);
	stream->frame = stream->queue.buffer.bytes_per_datum;
	/* The core would continue read() with the block that was next before. */
	if (reset_dequeue)
		stream->queue.fileio.next_dequeue = 0;
	stream->pos = 0;
	stream->next = 0;
	stream->due = 0;
	stream->wrong = 0;
	stream->done = 0;
	scoped_guard(spinlock_irqsave, &stream->queue.list_lock) {
		stream->lost = 0;
		stream->starved = 0;
	}
	return 0;
}

static int stream_postenable(struct iio_dev *indio_dev)
{
	struct stream *stream = iio_to_stream(indio_dev);

	scoped_guard(mutex, &stream->lock) {
		stream->start = ktime_get();
		stream->running = true;
	}
	wake_up(&stream->wake);
	return 0;
}

static int stream_predisable(struct iio_dev *indio_dev)
{
	struct stream *stream = iio_to_stream(indio_dev);

	guard(mutex)(&stream->lock);
	stream->running = false;
	return 0;
}

static const struct iio_buffer_setup_ops stream_setup = {
	.preenable = stream_preenable,
	.postenable = stream_postenable,
	.predisable = stream_predisable,
};

/* Channels and attributes */

#define STREAM_CHANNEL(_number, _scan_index, _output) {			\
	.type = IIO_VOLTAGE,						\
	.indexed = 1,							\
	.channel = (_number),						\
	.output = (_output),						\
	.scan_index = (_scan_index),					\
	.scan_type = {							\
		.sign = 'u',						\
		.realbits = 16,						\
		.storagebits = 16,					\
		.endianness = IIO_LE,					\
	},								\
	.info_mask_shared_by_all = BIT(IIO_CHAN_INFO_SAMP_FREQ),	\
}

static const struct iio_chan_spec stream_adc_channels[STREAM_CHANNELS] = {
	STREAM_CHANNEL(0, 0, 0), STREAM_CHANNEL(1, 1, 0),
	STREAM_CHANNEL(2, 2, 0), STREAM_CHANNEL(3, 3, 0),
};

static const struct iio_chan_spec stream_dac_channels[STREAM_CHANNELS] = {
	STREAM_CHANNEL(0, 0, 1), STREAM_CHANNEL(1, 1, 1),
	STREAM_CHANNEL(2, 2, 1), STREAM_CHANNEL(3, 3, 1),
};

static int stream_read_raw(struct iio_dev *indio_dev,
			   struct iio_chan_spec const *channel, int *val,
			   int *val2, long mask)
{
	struct stream *stream = iio_to_stream(indio_dev);

	if (mask != IIO_CHAN_INFO_SAMP_FREQ)
		return -EINVAL;
	*val = stream->rate;
	return IIO_VAL_INT;
}

static int stream_write_raw(struct iio_dev *indio_dev,
			    struct iio_chan_spec const *channel, int val,
			    int val2, long mask)
{
	struct stream *stream = iio_to_stream(indio_dev);

	if (mask != IIO_CHAN_INFO_SAMP_FREQ || val < 0 || val2 ||
	    val > STREAM_RATE_MAX)
		return -EINVAL;
	scoped_guard(mutex, &stream->lock) {
		stream->rate = val;
		stream->start = ktime_get();
		stream->due = 0;
	}
	wake_up(&stream->wake);
	return 0;
}

enum stream_attribute {
	STREAM_SPARSE_MODE,
	STREAM_INJECT,
	STREAM_REPORTS,
	STREAM_LOST,
	STREAM_WRONG,
	STREAM_DONE,
};

static ssize_t stream_show(struct device *dev, struct device_attribute *attr,
			   char *buf)
{
	struct stream *stream = iio_to_stream(dev_to_iio_dev(dev));
	u64 value = 0;

	guard(mutex)(&stream->lock);
	switch ((enum stream_attribute)to_iio_dev_attr(attr)->address) {
	case STREAM_SPARSE_MODE:
		value = stream->sparse;
		break;
	case STREAM_INJECT:
		value = stream->inject;
		break;
	case STREAM_REPORTS:
		value = stream->reports;
		break;
	case STREAM_LOST:
		if (stream->reports != 2)
			return -EOPNOTSUPP;
		scoped_guard(spinlock_irqsave, &stream->queue.list_lock)
			value = stream->lost;
		break;
	case STREAM_WRONG:
		value = stream->wrong;
		break;
	case STREAM_DONE:
		value = stream->done;
		break;
	}
	return sysfs_emit(buf, "%llu\n", value);
}

static ssize_t stream_store(struct device *dev, struct device_attribute *attr,
			    const char *buf, size_t len)
{
	struct stream *stream = iio_to_stream(dev_to_iio_dev(dev));
	u64 value;
	int ret;

	ret = kstrtou64(buf, 0, &value);
	if (ret)
		return ret;
	guard(mutex)(&stream->lock);
	if (to_iio_dev_attr(attr)->address == STREAM_INJECT)
		stream->inject = value;
	else if (to_iio_dev_attr(attr)->address == STREAM_REPORTS)
		stream->reports = value;
	else
		stream->sparse = value;
	return len;
}

static ssize_t scan_type_show(struct device *dev, struct device_attribute *attr,
			      char *buf)
{
	struct stream *stream = iio_to_stream(dev_to_iio_dev(dev));
	const struct iio_scan_type *type = &stream->channels[0].scan_type;

	return sysfs_emit(buf, "%s:%c%d/%d>>%u\n",
			  type->endianness == IIO_BE ? "be" : "le", type->sign,
			  type->realbits, type->storagebits, type->shift);
}

static ssize_t scan_type_store(struct device *dev, struct device_attribute *attr,
			       const char *buf, size_t len)
{
	struct stream *stream = iio_to_stream(dev_to_iio_dev(dev));
	unsigned int bits, storage, shift;
	char order, sign;
	int i;

	if (sscanf(buf, "%ce:%c%u/%u>>%u", &order, &sign, &bits, &storage, &shift) != 5 ||
	    (order != 'l' && order != 'b') || (sign != 's' && sign != 'u') ||
	    !bits || storage != 16 || bits > storage || shift > storage - bits)
		return -EINVAL;
	guard(mutex)(&stream->lock);
	for (i = 0; i < STREAM_CHANNELS; i++) {
		struct iio_scan_type *type = &stream->channels[i].scan_type;

		type->sign = sign;
		type->realbits = bits;
		type->shift = shift;
		type->endianness = order == 'b' ? IIO_BE : IIO_LE;
	}
	return len;
}

static IIO_DEVICE_ATTR_RW(scan_type, 0);
static IIO_DEVICE_ATTR(sparse, 0644, stream_show, stream_store, STREAM_SPARSE_MODE);
static IIO_DEVICE_ATTR(inject_loss, 0644, stream_show, stream_store, STREAM_INJECT);
static IIO_DEVICE_ATTR(reports, 0644, stream_show, stream_store, STREAM_REPORTS);
static IIO_DEVICE_ATTR(lost_frames, 0444, stream_show, NULL, STREAM_LOST);
static IIO_DEVICE_ATTR(wrong_frames, 0444, stream_show, NULL, STREAM_WRONG);
static IIO_DEVICE_ATTR(moved_frames, 0444, stream_show, NULL, STREAM_DONE);

static struct attribute *stream_attributes[] = {
	&iio_dev_attr_scan_type.dev_attr.attr,
	&iio_dev_attr_sparse.dev_attr.attr,
	&iio_dev_attr_inject_loss.dev_attr.attr,
	&iio_dev_attr_reports.dev_attr.attr,
	&iio_dev_attr_lost_frames.dev_attr.attr,
	&iio_dev_attr_wrong_frames.dev_attr.attr,
	&iio_dev_attr_moved_frames.dev_attr.attr,
	NULL
};

static const struct attribute_group stream_group = {
	.attrs = stream_attributes,
};

/* The registers of a backend, as in drivers/iio/industrialio-backend.c */

static ssize_t stream_registers_read(struct file *file, char __user *to,
				     size_t count, loff_t *pos)
{
	struct stream *stream = file->private_data;
	char text[20];
	int len;

	if (stream->reports != 1 || stream->address != STREAM_STATUS)
		return -EINVAL;
	scoped_guard(spinlock_irqsave, &stream->queue.list_lock)
		len = scnprintf(text, sizeof(text), "0x%X\n", stream->status);
	return simple_read_from_buffer(to, count, pos, text, len);
}

static ssize_t stream_registers_write(struct file *file, const char __user *from,
				      size_t count, loff_t *pos)
{
	struct stream *stream = file->private_data;
	unsigned int value;
	char text[80];
	ssize_t len;
	int found;

	if (*pos || count >= sizeof(text))
		return -ENOSPC;
	len = simple_write_to_buffer(text, sizeof(text) - 1, pos, from, count);
	if (len < 0)
		return len;
	text[len] = 0;
	found = sscanf(text, "%i %i", &stream->address, &value);
	if (found < 1 || (found == 2 && stream->address != STREAM_STATUS))
		return -EINVAL;
	if (found == 2) {
		scoped_guard(spinlock_irqsave, &stream->queue.list_lock)
			stream->status &= ~value;
	}
	return count;
}

static const struct file_operations stream_registers = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = stream_registers_read,
	.write = stream_registers_write,
};

static ssize_t stream_backend_read(struct file *file, char __user *to,
				   size_t count, loff_t *pos)
{
	struct stream *stream = file->private_data;
	const char *name = stream->reports == 1 ? "axi-simulated\n" : "none\n";

	return simple_read_from_buffer(to, count, pos, name, strlen(name));
}

static const struct file_operations stream_backend = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = stream_backend_read,
};

/* The device itself has no registers, but without this no folder in debugfs. */
static int stream_reg_access(struct iio_dev *indio_dev, unsigned int reg,
			     unsigned int value, unsigned int *read)
{
	return -EOPNOTSUPP;
}

static void stream_debugfs(struct iio_dev *indio_dev, struct stream *stream)
{
	struct dentry *folder = iio_get_debugfs_dentry(indio_dev);

	if (!folder)
		return;
	folder = debugfs_create_dir("backend0", folder);
	debugfs_create_file("name", 0400, folder, stream, &stream_backend);
	debugfs_create_file("direct_reg_access", 0600, folder, stream,
			    &stream_registers);
}

static const struct iio_info stream_info = {
	.attrs = &stream_group,
	.debugfs_reg_access = stream_reg_access,
	.read_raw = stream_read_raw,
	.write_raw = stream_write_raw,
};

/* Creation and removal */

static void stream_put(void *data)
{
	struct stream *stream = data;

	kthread_stop(stream->thread);
	iio_dma_buffer_exit(&stream->queue);
	iio_buffer_put(&stream->queue.buffer);
}

/*
 * read() copies to user space with the queue's lock held, and attaching a dma-buf
 * takes the queue's lock inside the reservation lock. lockdep reports the two
 * together. A queue without dma-bufs therefore has a lock class of its own.
 */
static struct lock_class_key stream_fileio_class;

static int stream_probe_one(struct device *dev, const char *name, bool input,
			    bool dmabuf)
{
	struct iio_dev *indio_dev;
	struct stream *stream;
	int ret;

	indio_dev = devm_iio_device_alloc(dev, sizeof(struct stream *));
	if (!indio_dev)
		return -ENOMEM;
	stream = kzalloc_obj(*stream);
	if (!stream)
		return -ENOMEM;
	*(struct stream **)iio_priv(indio_dev) = stream;

	/* From now on, the buffer's reference count controls the memory. */
	iio_dma_buffer_init(&stream->queue, dev, &stream_queue_ops);
	stream->access = stream_access;
	if (!dmabuf) {
		stream->access.attach_dmabuf = NULL;
		stream->access.detach_dmabuf = NULL;
		stream->access.enqueue_dmabuf = NULL;
		lockdep_set_class(&stream->queue.lock, &stream_fileio_class);
	}
	stream->queue.buffer.access = &stream->access;
	stream->queue.buffer.attrs = stream_buffer_attrs;
	stream->queue.buffer.direction = input ? IIO_BUFFER_DIRECTION_IN :
						 IIO_BUFFER_DIRECTION_OUT;
	INIT_LIST_HEAD(&stream->active);
	INIT_LIST_HEAD(&stream->maps);
	mutex_init(&stream->lock);
	init_waitqueue_head(&stream->wake);
	stream->input = input;
	stream->rate = STREAM_RATE_DEFAULT;
	stream->reports = 2;
	stream->thread = kthread_run(stream_thread, stream, "%s", name);
	if (IS_ERR(stream->thread)) {
		ret = PTR_ERR(stream->thread);
		iio_buffer_put(&stream->queue.buffer);
		return ret;
	}
	ret = devm_add_action_or_reset(dev, stream_put, stream);
	if (ret)
		return ret;

	indio_dev->name = name;
	indio_dev->info = &stream_info;
	indio_dev->setup_ops = &stream_setup;
	indio_dev->modes = INDIO_DIRECT_MODE | INDIO_BUFFER_HARDWARE;
	BUILD_BUG_ON(sizeof(stream->channels) != sizeof(stream_adc_channels));
	memcpy(stream->channels, input ? stream_adc_channels : stream_dac_channels,
	       sizeof(stream->channels));
	indio_dev->channels = stream->channels;
	indio_dev->num_channels = STREAM_CHANNELS;
	ret = iio_device_attach_buffer(indio_dev, &stream->queue.buffer);
	if (ret)
		return ret;
	ret = devm_iio_device_register(dev, indio_dev);
	if (ret)
		return ret;
	stream_debugfs(indio_dev, stream);
	return 0;
}

static int stream_probe(struct platform_device *pdev)
{
	int ret;

	ret = dma_coerce_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (ret)
		return ret;
	dma_set_max_seg_size(&pdev->dev, UINT_MAX);
	ret = stream_probe_one(&pdev->dev, "stream-adc", true, true);
	if (ret)
		return ret;
	ret = stream_probe_one(&pdev->dev, "stream-dac", false, true);
	if (ret)
		return ret;
	ret = stream_probe_one(&pdev->dev, "stream-adc-fileio", true, false);
	if (ret)
		return ret;
	return stream_probe_one(&pdev->dev, "stream-dac-fileio", false, false);
}

static struct platform_driver stream_driver = {
	.driver = { .name = "iio_stream" },
	.probe = stream_probe,
};

static struct platform_device *stream_device;

static int __init stream_init(void)
{
	int ret;

	ret = platform_driver_register(&stream_driver);
	if (ret)
		return ret;
	stream_device = platform_device_register_simple("iio_stream",
							PLATFORM_DEVID_NONE,
							NULL, 0);
	if (IS_ERR(stream_device)) {
		platform_driver_unregister(&stream_driver);
		return PTR_ERR(stream_device);
	}
	return 0;
}
module_init(stream_init);

static void __exit stream_exit(void)
{
	platform_device_unregister(stream_device);
	platform_driver_unregister(&stream_driver);
}
module_exit(stream_exit);

MODULE_DESCRIPTION("IIO devices for tests: counting ADCs, checking DACs");
MODULE_LICENSE("GPL");
/* MODULE_IMPORT_NS() took an identifier before 6.13, a string since. */
MODULE_INFO(import_ns, "DMA_BUF");
MODULE_INFO(import_ns, "IIO_DMA_BUFFER");
