// SPDX-License-Identifier: GPL-2.0-only
/*
 * A USB device controller for tests, and the host that it is connected to
 *
 * A gadget bound to it is configured at once. Data that the gadget sends on a
 * bulk endpoint is accepted and counted; its frames of eight bytes should be the
 * numbers 0, 1, 2, ... (as from iio_stream), and frames out of order are counted.
 * Requests of the gadget to receive are filled with such numbers. There is no bus
 * and there are no packets. If sparse is set, for measurements, the content is
 * neither written nor checked.
 *
 * Unlike dummy_hcd it supports scatter-gather, which FunctionFS requires for
 * dma-bufs. Like hardware, it uses the DMA addresses of a request and not the
 * pages of the dma-buf's table. It therefore works only on machines on which
 * devices use physical addresses.
 *
 * The parameter controller names a PCI device that takes its place as the
 * controller's device, for which dma-bufs are mapped. It may be behind an IOMMU;
 * nothing can be transferred then.
 */
#include <linux/cleanup.h>
#include <linux/delay.h>
#include <linux/dma-direct.h>
#include <linux/dma-mapping.h>
#include <linux/kthread.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/unaligned.h>
#include <linux/usb/ch9.h>
#include <linux/usb/gadget.h>

#define SINK_FRAME	8

static char *controller;
module_param(controller, charp, 0444);
MODULE_PARM_DESC(controller, "Name of a PCI device to use as the controller's");

/* Bytes copied at a time, with interrupts off */
#define SINK_STEP	SZ_64K

struct sink_request {
	struct usb_request req;
	struct list_head head;
	/* Position of the copy */
	struct scatterlist *sg;
	size_t offset;
};

struct sink_ep {
	struct usb_ep ep;
	struct sink *sink;
	struct list_head queue;
	u64 next;
	u8 part[SINK_FRAME];		/* of a frame that continues in the next request */
	size_t filled;
};

struct sink {
	struct usb_gadget gadget;
	struct device *device;		/* the controller's */
	struct usb_gadget_driver *driver;
	struct sink_ep ep0;
	struct sink_ep in;
	struct sink_ep out;
	spinlock_t lock;		/* endpoints, and the memory of requests */
	struct mutex host;		/* held while the host does something */
	wait_queue_head_t wake;
	struct task_struct *thread;
	bool pulled_up;
	bool plugged;
	bool configured;

	/* Set and read through sysfs */
	u32 rate;			/* bytes per second, 0: no limit */
	bool sparse;			/* content is ignored */
	u64 bytes;
	u64 wrong;
};

static struct sink_ep *to_sink_ep(struct usb_ep *ep)
{
	return container_of(ep, struct sink_ep, ep);
}

static struct sink_request *to_sink_request(struct usb_request *req)
{
	return container_of(req, struct sink_request, req);
}

static struct sink *to_sink(struct usb_gadget *gadget)
{
	return container_of(gadget, struct sink, gadget);
}

/* Endpoints */

static int sink_ep_enable(struct usb_ep *ep,
			  const struct usb_endpoint_descriptor *desc)
{
	struct sink_ep *end = to_sink_ep(ep);

	ep->desc = desc;
	ep->maxpacket = usb_endpoint_maxp(desc);
	end->next = 0;
	end->filled = 0;
	return 0;
}

/* Returns every request of an endpoint to its driver. */
static void sink_flush(struct sink_ep *end, int status)
{
	struct sink_request *request;

	for (;;) {
		scoped_guard(spinlock_irqsave, &end->sink->lock) {
			request = list_first_entry_or_null(&end->queue,
							   struct sink_request,
							   head);
			if (request)
				list_del_init(&request->head);
		}
		if (!request)
			return;
		request->req.status = status;
		usb_gadget_giveback_request(&end->ep, &request->req);
	}
}

static int sink_ep_disable(struct usb_ep *ep)
{
	sink_flush(to_sink_ep(ep), -ESHUTDOWN);
	ep->desc = NULL;
	return 0;
}

static struct usb_request *sink_alloc_request(struct usb_ep *ep, gfp_t gfp)
{
	struct sink_request *request = kzalloc_obj(*request, gfp);

	if (!request)
		return NULL;
	INIT_LIST_HEAD(&request->head);
	return &request->req;
}

static void sink_free_request(struct usb_ep *ep, struct usb_request *req)
{
	kfree(to_sink_request(req));
}

static int sink_queue(struct usb_ep *ep, struct usb_request *req, gfp_t gfp)
{
	struct sink_request *request = to_sink_request(req);
	struct sink_ep *end = to_sink_ep(ep);

	req->status = -EINPROGRESS;
	req->actual = 0;
	request->sg = req->num_sgs ? req->sg : NULL;
	request->offset = 0;
	scoped_guard(spinlock_irqsave, &end->sink->lock)
		list_add_tail(&request->head, &end->queue);
	wake_up(&end->sink->wake);
	return 0;
}

static int sink_dequeue(struct usb_ep *ep, struct usb_request *req)
{
	struct sink_request *request = to_sink_request(req);
	struct sink_ep *end = to_sink_ep(ep);

	scoped_guard(spinlock_irqsave, &end->sink->lock) {
		if (list_empty(&request->head))
			return -EINVAL;
		list_del_init(&request->head);
	}
	req->status = -ECONNRESET;
	usb_gadget_giveback_request(ep, req);
	return 0;
}

static int sink_set_halt(struct usb_ep *ep, int value)
{
	return 0;
}

static const struct usb_ep_ops sink_ep_ops = {
	.enable = sink_ep_enable,
	.disable = sink_ep_disable,
	.alloc_request = sink_alloc_request,
	.free_request = sink_free_request,
	.queue = sink_queue,
	.dequeue = sink_dequeue,
	.set_halt = sink_set_halt,
};

/* The content of requests */

static void sink_take_frame(struct sink_ep *end, const u8 *frame)
{
	u64 number = get_unaligned_le64(frame);

	/* A new transfer begins with number 0. */
	if (number && number != end->next)
		end->sink->wrong++;
	end->next = number + 1;
}

static void sink_take(struct sink_ep *end, const u8 *at, size_t len)
{
	while (len) {
		size_t part = min(len, SINK_FRAME - end->filled);

		memcpy(end->part + end->filled, at, part);
		end->filled += part;
		at += part;
		len -= part;
		if (end->filled == SINK_FRAME) {
			sink_take_frame(end, end->part);
			end->filled = 0;
		}
	}
}

static void sink_give(struct sink_ep *end, u8 *at, size_t len)
{
	while (len) {
		size_t part = min(len, SINK_FRAME - end->filled);

		put_unaligned_le64(end->next, end->part);
		memcpy(at, end->part + end->filled, part);
		end->filled += part;
		at += part;
		len -= part;
		if (end->filled == SINK_FRAME) {
			end->next++;
			end->filled = 0;
		}
	}
}

static void sink_move(struct sink_ep *end, void *at, size_t len)
{
	if (end->sink->sparse)
		return;
	if (end == &end->sink->in)
		sink_take(end, at, len);
	else
		sink_give(end, at, len);
}

static void *sink_address(struct sink *sink, struct usb_request *req,
			  struct scatterlist *sg)
{
	struct device *dev = sink->gadget.dev.parent;

	if (!req->sg_was_mapped)
		return sg_virt(sg);
	return phys_to_virt(dma_to_phys(dev, sg_dma_address(sg)));
}

/* Copies part of a request. */
static void sink_step(struct sink_ep *end, struct sink_request *request)
{
	struct usb_request *req = &request->req;
	struct scatterlist *sg = request->sg;
	size_t len = min(req->length - req->actual, SINK_STEP);

	if (sg) {
		size_t all = req->sg_was_mapped ? sg_dma_len(sg) : sg->length;

		len = min(len, all - request->offset);
		sink_move(end, sink_address(end->sink, req, sg) + request->offset,
			  len);
		request->offset += len;
		if (request->offset == all) {
			request->sg = sg_next(sg);
			request->offset = 0;
		}
	} else if (end != &end->sink->ep0) {
		sink_move(end, req->buf + req->actual, len);
	}
	req->actual += len;
	end->sink->bytes += end == &end->sink->ep0 ? 0 : len;
}

/* The host */

/* Processes the first request. The driver may dequeue it between two steps. */
static bool sink_serve(struct sink_ep *end)
{
	struct sink *sink = end->sink;
	struct sink_request *request;

	scoped_guard(spinlock_irqsave, &sink->lock) {
		request = list_first_entry_or_null(&end->queue,
						   struct sink_request, head);
		if (!request)
			return false;
		sink_step(end, request);
		if (request->req.actual < request->req.length)
			return true;
		list_del_init(&request->head);
	}
	if (sink->rate)
		fsleep(div_u64((u64)request->req.actual * USEC_PER_SEC,
			       sink->rate));
	request->req.status = 0;
	usb_gadget_giveback_request(&end->ep, &request->req);
	return true;
}

static void sink_configure(struct sink *sink)
{
	struct usb_ctrlrequest setup = {
		.bRequestType = USB_DIR_OUT | USB_TYPE_STANDARD |
				USB_RECIP_DEVICE,
		.bRequest = USB_REQ_SET_CONFIGURATION,
		.wValue = cpu_to_le16(1),
	};

	sink->configured = true;
	sink->gadget.speed = min(USB_SPEED_SUPER, sink->driver->max_speed);
	usb_gadget_set_state(&sink->gadget, USB_STATE_ADDRESS);
	if (sink->driver->setup(&sink->gadget, &setup) < 0)
		dev_warn(&sink->gadget.dev, "the gadget takes no configuration\n");
	else
		usb_gadget_set_state(&sink->gadget, USB_STATE_CONFIGURED);
}

/* Ends all requests: the host is gone, or the driver disables the endpoint. */
static void sink_disconnect(struct sink *sink)
{
	sink->configured = false;
	sink_flush(&sink->ep0, -ESHUTDOWN);
	sink_flush(&sink->in, -ESHUTDOWN);
	sink_flush(&sink->out, -ESHUTDOWN);
}

static bool sink_is_connected(struct sink *sink)
{
	return sink->pulled_up && sink->plugged;
}

static bool sink_has_work(struct sink *sink)
{
	bool work;

	spin_lock_irq(&sink->lock);
	work = !sink->configured || !list_empty(&sink->ep0.queue) ||
	       !list_empty(&sink->in.queue) || !list_empty(&sink->out.queue);
	spin_unlock_irq(&sink->lock);
	return kthread_should_stop() || (work && sink_is_connected(sink));
}

static int sink_thread(void *data)
{
	struct sink *sink = data;

	while (!kthread_should_stop()) {
		wait_event_interruptible(sink->wake, sink_has_work(sink));
		cond_resched();
		guard(mutex)(&sink->host);
		if (!sink_is_connected(sink))
			continue;
		if (!sink->configured)
			sink_configure(sink);
		sink_serve(&sink->ep0);
		sink_serve(&sink->in);
		sink_serve(&sink->out);
	}
	return 0;
}

/* The controller */

static int sink_get_frame(struct usb_gadget *gadget)
{
	return ktime_to_ms(ktime_get()) & 0x7ff;
}

static int sink_pullup(struct usb_gadget *gadget, int on)
{
	struct sink *sink = to_sink(gadget);

	scoped_guard(mutex, &sink->host) {
		sink->pulled_up = on;
		/* From now on, no request is completed. */
		if (!on)
			sink_disconnect(sink);
	}
	wake_up(&sink->wake);
	return 0;
}

static int sink_start(struct usb_gadget *gadget, struct usb_gadget_driver *driver)
{
	struct sink *sink = to_sink(gadget);

	guard(mutex)(&sink->host);
	sink->driver = driver;
	sink->bytes = 0;
	sink->wrong = 0;
	return 0;
}

static int sink_stop(struct usb_gadget *gadget)
{
	struct sink *sink = to_sink(gadget);

	guard(mutex)(&sink->host);
	sink->driver = NULL;
	return 0;
}

static const struct usb_gadget_ops sink_gadget_ops = {
	.get_frame = sink_get_frame,
	.pullup = sink_pullup,
	.udc_start = sink_start,
	.udc_stop = sink_stop,
};

/* Attributes of the device: rate, sparse, plugged, bytes, wrong_frames */

static ssize_t rate_show(struct device *dev, struct device_attribute *attr,
			 char *buf)
{
	struct sink *sink = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%u\n", sink->rate);
}

static ssize_t rate_store(struct device *dev, struct device_attribute *attr,
			  const char *buf, size_t len)
{
	struct sink *sink = dev_get_drvdata(dev);
	int ret = kstrtou32(buf, 0, &sink->rate);

	return ret ?: len;
}
static DEVICE_ATTR_RW(rate);

static ssize_t sparse_show(struct device *dev, struct device_attribute *attr,
			   char *buf)
{
	struct sink *sink = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%d\n", sink->sparse);
}

static ssize_t sparse_store(struct device *dev, struct device_attribute *attr,
			    const char *buf, size_t len)
{
	struct sink *sink = dev_get_drvdata(dev);
	int ret = kstrtobool(buf, &sink->sparse);

	return ret ?: len;
}
static DEVICE_ATTR_RW(sparse);

static ssize_t plugged_show(struct device *dev, struct device_attribute *attr,
			    char *buf)
{
	struct sink *sink = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%d\n", sink->plugged);
}

static ssize_t plugged_store(struct device *dev, struct device_attribute *attr,
			     const char *buf, size_t len)
{
	struct sink *sink = dev_get_drvdata(dev);
	bool on;
	int ret = kstrtobool(buf, &on);

	if (ret)
		return ret;
	scoped_guard(mutex, &sink->host) {
		if (sink->plugged && !on && sink->configured) {
			sink_disconnect(sink);
			sink->driver->disconnect(&sink->gadget);
		}
		sink->plugged = on;
	}
	wake_up(&sink->wake);
	return len;
}
static DEVICE_ATTR_RW(plugged);

static ssize_t bytes_show(struct device *dev, struct device_attribute *attr,
			  char *buf)
{
	struct sink *sink = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%llu\n", sink->bytes);
}
static DEVICE_ATTR_RO(bytes);

static ssize_t wrong_frames_show(struct device *dev,
				 struct device_attribute *attr, char *buf)
{
	struct sink *sink = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%llu\n", sink->wrong);
}
static DEVICE_ATTR_RO(wrong_frames);

static struct attribute *sink_attrs[] = {
	&dev_attr_rate.attr,
	&dev_attr_sparse.attr,
	&dev_attr_plugged.attr,
	&dev_attr_bytes.attr,
	&dev_attr_wrong_frames.attr,
	NULL
};
ATTRIBUTE_GROUPS(sink);

/* Creation and removal */

static void sink_ep_init(struct sink *sink, struct sink_ep *end,
			 const char *name, struct usb_ep_caps caps)
{
	end->sink = sink;
	end->ep.name = name;
	end->ep.ops = &sink_ep_ops;
	end->ep.caps = caps;
	INIT_LIST_HEAD(&end->queue);
	if (caps.type_control) {
		usb_ep_set_maxpacket_limit(&end->ep, 64);
		sink->gadget.ep0 = &end->ep;
		INIT_LIST_HEAD(&end->ep.ep_list);
	} else {
		usb_ep_set_maxpacket_limit(&end->ep, 1024);
		list_add_tail(&end->ep.ep_list, &sink->gadget.ep_list);
	}
}

static int sink_probe(struct platform_device *pdev)
{
	struct sink *sink;
	int ret;

	ret = dma_coerce_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (ret)
		return ret;
	dma_set_max_seg_size(&pdev->dev, UINT_MAX);
	sink = devm_kzalloc(&pdev->dev, sizeof(*sink), GFP_KERNEL);
	if (!sink)
		return -ENOMEM;
	platform_set_drvdata(pdev, sink);
	spin_lock_init(&sink->lock);
	mutex_init(&sink->host);
	init_waitqueue_head(&sink->wake);
	sink->plugged = true;

	sink->gadget.name = "usb_sink";
	sink->gadget.ops = &sink_gadget_ops;
	sink->gadget.max_speed = USB_SPEED_SUPER;
	sink->gadget.sg_supported = 1;
	INIT_LIST_HEAD(&sink->gadget.ep_list);
	sink_ep_init(sink, &sink->ep0, "ep0", (struct usb_ep_caps) {
		.type_control = 1, .dir_in = 1, .dir_out = 1 });
	sink_ep_init(sink, &sink->in, "ep1in-bulk", (struct usb_ep_caps) {
		.type_bulk = 1, .dir_in = 1 });
	sink_ep_init(sink, &sink->out, "ep2out-bulk", (struct usb_ep_caps) {
		.type_bulk = 1, .dir_out = 1 });

	sink->device = controller ?
		bus_find_device_by_name(&pci_bus_type, NULL, controller) :
		get_device(&pdev->dev);
	if (!sink->device)
		return -ENODEV;
	sink->thread = kthread_run(sink_thread, sink, "usb_sink");
	if (IS_ERR(sink->thread)) {
		ret = PTR_ERR(sink->thread);
		goto err_device;
	}
	ret = usb_add_gadget_udc(sink->device, &sink->gadget);
	if (ret)
		goto err_thread;
	return 0;

err_thread:
	kthread_stop(sink->thread);
err_device:
	put_device(sink->device);
	return ret;
}

static void sink_remove(struct platform_device *pdev)
{
	struct sink *sink = platform_get_drvdata(pdev);

	usb_del_gadget_udc(&sink->gadget);
	kthread_stop(sink->thread);
	put_device(sink->device);
}

static struct platform_driver sink_driver = {
	.driver = {
		.name = "usb_sink",
		.dev_groups = sink_groups,
	},
	.probe = sink_probe,
	.remove = sink_remove,
};

static struct platform_device *sink_device;

static int __init sink_init(void)
{
	int ret;

	ret = platform_driver_register(&sink_driver);
	if (ret)
		return ret;
	sink_device = platform_device_register_simple("usb_sink",
						      PLATFORM_DEVID_NONE,
						      NULL, 0);
	if (IS_ERR(sink_device)) {
		platform_driver_unregister(&sink_driver);
		return PTR_ERR(sink_device);
	}
	return 0;
}
module_init(sink_init);

static void __exit sink_exit(void)
{
	platform_device_unregister(sink_device);
	platform_driver_unregister(&sink_driver);
}
module_exit(sink_exit);

MODULE_DESCRIPTION("USB device controller for tests, and the host that it is connected to");
/* The gadgets it is used with */
MODULE_SOFTDEP("pre: libcomposite");
MODULE_LICENSE("GPL");
