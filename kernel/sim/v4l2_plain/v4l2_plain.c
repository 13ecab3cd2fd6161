// SPDX-License-Identifier: GPL-2.0-only
/*
 * A V4L2 device for tests that knows nothing of dma-bufs
 *
 * "plain-camera" neither imports dma-bufs nor exports its buffers, as
 * v4l2loopback. A program can only map them (V4L2_MEMORY_MMAP). Each 32-bit
 * word of a frame is the frame's number; there are 50 per second.
 */
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/workqueue.h>
#include <media/v4l2-device.h>
#include <media/v4l2-ioctl.h>
#include <media/videobuf2-v4l2.h>
#include <media/videobuf2-vmalloc.h>

#define PLAIN_WIDTH	160
#define PLAIN_HEIGHT	90
#define PLAIN_BYTES	(PLAIN_WIDTH * PLAIN_HEIGHT * 2)
#define PLAIN_RATE	50

struct plain_buffer {
	struct vb2_v4l2_buffer vb;	/* first */
	struct list_head head;
};

struct plain {
	struct v4l2_device v4l2;
	struct video_device video;
	struct vb2_queue queue;
	struct mutex lock;		/* of the queue and the device */
	spinlock_t list_lock;		/* of the list */
	struct list_head list;
	struct delayed_work work;
	u32 sequence;
};

static void plain_work(struct work_struct *work)
{
	struct plain *plain = container_of(work, struct plain, work.work);
	struct plain_buffer *buffer;
	u32 *words;
	int i;

	spin_lock(&plain->list_lock);
	buffer = list_first_entry_or_null(&plain->list, struct plain_buffer, head);
	if (buffer)
		list_del(&buffer->head);
	spin_unlock(&plain->list_lock);
	if (buffer) {
		words = vb2_plane_vaddr(&buffer->vb.vb2_buf, 0);
		for (i = 0; i < PLAIN_BYTES / sizeof(*words); i++)
			words[i] = plain->sequence;
		buffer->vb.sequence = plain->sequence;
		buffer->vb.field = V4L2_FIELD_NONE;
		buffer->vb.vb2_buf.timestamp = ktime_get_ns();
		vb2_set_plane_payload(&buffer->vb.vb2_buf, 0, PLAIN_BYTES);
		vb2_buffer_done(&buffer->vb.vb2_buf, VB2_BUF_STATE_DONE);
	}
	/* Without a buffer the frame is lost. */
	plain->sequence++;
	schedule_delayed_work(&plain->work, max(1UL, (unsigned long)HZ / PLAIN_RATE));
}

static int plain_queue_setup(struct vb2_queue *queue, unsigned int *buffers,
			     unsigned int *planes, unsigned int sizes[],
			     struct device *devices[])
{
	if (*planes)
		return sizes[0] < PLAIN_BYTES ? -EINVAL : 0;
	*planes = 1;
	sizes[0] = PLAIN_BYTES;
	return 0;
}

static void plain_buf_queue(struct vb2_buffer *vb)
{
	struct plain *plain = vb2_get_drv_priv(vb->vb2_queue);
	struct plain_buffer *buffer =
		container_of(to_vb2_v4l2_buffer(vb), struct plain_buffer, vb);

	spin_lock(&plain->list_lock);
	list_add_tail(&buffer->head, &plain->list);
	spin_unlock(&plain->list_lock);
}

static int plain_start(struct vb2_queue *queue, unsigned int count)
{
	struct plain *plain = vb2_get_drv_priv(queue);

	plain->sequence = 0;
	schedule_delayed_work(&plain->work, 1);
	return 0;
}

static void plain_stop(struct vb2_queue *queue)
{
	struct plain *plain = vb2_get_drv_priv(queue);
	struct plain_buffer *buffer, *next;

	cancel_delayed_work_sync(&plain->work);
	spin_lock(&plain->list_lock);
	list_for_each_entry_safe(buffer, next, &plain->list, head) {
		list_del(&buffer->head);
		vb2_buffer_done(&buffer->vb.vb2_buf, VB2_BUF_STATE_ERROR);
	}
	spin_unlock(&plain->list_lock);
}

static const struct vb2_ops plain_queue_ops = {
	.queue_setup = plain_queue_setup,
	.buf_queue = plain_buf_queue,
	.start_streaming = plain_start,
	.stop_streaming = plain_stop,
};

static int plain_querycap(struct file *file, void *priv, struct v4l2_capability *cap)
{
	strscpy(cap->driver, "v4l2_plain", sizeof(cap->driver));
	strscpy(cap->card, "plain-camera", sizeof(cap->card));
	strscpy(cap->bus_info, "platform:v4l2_plain", sizeof(cap->bus_info));
	return 0;
}

static int plain_enum_fmt(struct file *file, void *priv, struct v4l2_fmtdesc *format)
{
	if (format->index)
		return -EINVAL;
	format->pixelformat = V4L2_PIX_FMT_YUYV;
	return 0;
}

/* There is only one format: whatever is asked for. */
static int plain_fmt(struct file *file, void *priv, struct v4l2_format *format)
{
	format->fmt.pix = (struct v4l2_pix_format) {
		.width = PLAIN_WIDTH,
		.height = PLAIN_HEIGHT,
		.pixelformat = V4L2_PIX_FMT_YUYV,
		.field = V4L2_FIELD_NONE,
		.bytesperline = PLAIN_WIDTH * 2,
		.sizeimage = PLAIN_BYTES,
		.colorspace = V4L2_COLORSPACE_SRGB,
	};
	return 0;
}

static int plain_enum_input(struct file *file, void *priv, struct v4l2_input *input)
{
	if (input->index)
		return -EINVAL;
	input->type = V4L2_INPUT_TYPE_CAMERA;
	strscpy(input->name, "plain", sizeof(input->name));
	return 0;
}

static int plain_g_input(struct file *file, void *priv, unsigned int *input)
{
	*input = 0;
	return 0;
}

static int plain_s_input(struct file *file, void *priv, unsigned int input)
{
	return input ? -EINVAL : 0;
}

/* No vidioc_expbuf */
static const struct v4l2_ioctl_ops plain_ioctl_ops = {
	.vidioc_querycap = plain_querycap,
	.vidioc_enum_fmt_vid_cap = plain_enum_fmt,
	.vidioc_g_fmt_vid_cap = plain_fmt,
	.vidioc_s_fmt_vid_cap = plain_fmt,
	.vidioc_try_fmt_vid_cap = plain_fmt,
	.vidioc_enum_input = plain_enum_input,
	.vidioc_g_input = plain_g_input,
	.vidioc_s_input = plain_s_input,
	.vidioc_reqbufs = vb2_ioctl_reqbufs,
	.vidioc_querybuf = vb2_ioctl_querybuf,
	.vidioc_qbuf = vb2_ioctl_qbuf,
	.vidioc_dqbuf = vb2_ioctl_dqbuf,
	.vidioc_streamon = vb2_ioctl_streamon,
	.vidioc_streamoff = vb2_ioctl_streamoff,
};

static const struct v4l2_file_operations plain_file_ops = {
	.owner = THIS_MODULE,
	.open = v4l2_fh_open,
	.release = vb2_fop_release,
	.unlocked_ioctl = video_ioctl2,
	.mmap = vb2_fop_mmap,
	.poll = vb2_fop_poll,
};

static int plain_probe(struct platform_device *pdev)
{
	struct plain *plain;
	int ret;

	plain = devm_kzalloc(&pdev->dev, sizeof(*plain), GFP_KERNEL);
	if (!plain)
		return -ENOMEM;
	mutex_init(&plain->lock);
	spin_lock_init(&plain->list_lock);
	INIT_LIST_HEAD(&plain->list);
	INIT_DELAYED_WORK(&plain->work, plain_work);
	ret = v4l2_device_register(&pdev->dev, &plain->v4l2);
	if (ret)
		return ret;
	plain->queue.type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
	plain->queue.io_modes = VB2_MMAP;
	plain->queue.drv_priv = plain;
	plain->queue.buf_struct_size = sizeof(struct plain_buffer);
	plain->queue.ops = &plain_queue_ops;
	plain->queue.mem_ops = &vb2_vmalloc_memops;
	plain->queue.timestamp_flags = V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC;
	plain->queue.lock = &plain->lock;
	ret = vb2_queue_init(&plain->queue);
	if (ret)
		goto err_unregister;
	strscpy(plain->video.name, "plain-camera", sizeof(plain->video.name));
	plain->video.release = video_device_release_empty;
	plain->video.fops = &plain_file_ops;
	plain->video.ioctl_ops = &plain_ioctl_ops;
	plain->video.v4l2_dev = &plain->v4l2;
	plain->video.queue = &plain->queue;
	plain->video.lock = &plain->lock;
	plain->video.device_caps = V4L2_CAP_VIDEO_CAPTURE | V4L2_CAP_STREAMING;
	video_set_drvdata(&plain->video, plain);
	ret = video_register_device(&plain->video, VFL_TYPE_VIDEO, -1);
	if (ret)
		goto err_unregister;
	platform_set_drvdata(pdev, plain);
	return 0;

err_unregister:
	v4l2_device_unregister(&plain->v4l2);
	return ret;
}

static void plain_remove(struct platform_device *pdev)
{
	struct plain *plain = platform_get_drvdata(pdev);

	vb2_video_unregister_device(&plain->video);
	v4l2_device_unregister(&plain->v4l2);
}

static struct platform_driver plain_driver = {
	.driver = { .name = "v4l2_plain" },
	.probe = plain_probe,
	.remove = plain_remove,
};

static struct platform_device *plain_device;

static int __init plain_init(void)
{
	int ret;

	ret = platform_driver_register(&plain_driver);
	if (ret)
		return ret;
	plain_device = platform_device_register_simple("v4l2_plain",
						       PLATFORM_DEVID_NONE,
						       NULL, 0);
	if (IS_ERR(plain_device)) {
		platform_driver_unregister(&plain_driver);
		return PTR_ERR(plain_device);
	}
	return 0;
}
module_init(plain_init);

static void __exit plain_exit(void)
{
	platform_device_unregister(plain_device);
	platform_driver_unregister(&plain_driver);
}
module_exit(plain_exit);

MODULE_DESCRIPTION("V4L2 device for tests that knows nothing of dma-bufs");
MODULE_LICENSE("GPL");
