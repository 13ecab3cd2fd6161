// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fixes of functionfs in kernel/series/usb: fences that outlive the endpoint,
 * dma-bufs after the gadget was unbound and after its controller was removed,
 * also from behind an IOMMU (--iommu). Steps 1 and 3 need KASAN or slab_debug=P
 * to show. The last step tests kernel/series/udmabuf: it needs a process that
 * waits with the reservation locked. timeout=60
 *
 * fixes-ffs [STEP]: one step only. Skipped on other kernels, which oops.
 */
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <linux/dma-buf.h>
#include <linux/sync_file.h>
#include <linux/usb/functionfs.h>

#include "fence.h"

/* From linux/usb/functionfs.h; distributions ship it without these */
struct transfer {
	int32_t fd;
	uint32_t flags;
	uint64_t length;
};

#define ATTACH		_IOW('g', 131, int)
#define DETACH		_IOW('g', 132, int)
#define TRANSFER	_IOW('g', 133, struct transfer)

#define GADGET	"/sys/kernel/config/usb_gadget/fixes"
#define HOST	"/sys/bus/platform/devices/usb_sink"
#define LENGTH	KIB(64)

static const struct {
	struct usb_functionfs_descs_head_v2 head;
	__le32 counts[3];
	struct {
		struct usb_interface_descriptor interface;
		struct usb_endpoint_descriptor_no_audio endpoint;
	} __attribute__((packed)) speeds[3];
	struct usb_ss_ep_comp_descriptor companion;
} __attribute__((packed)) descriptors = {
	.head = {
		.magic = FUNCTIONFS_DESCRIPTORS_MAGIC_V2,
		.length = sizeof(descriptors),
		.flags = FUNCTIONFS_HAS_FS_DESC | FUNCTIONFS_HAS_HS_DESC |
			 FUNCTIONFS_HAS_SS_DESC,
	},
	.counts = { 2, 2, 3 },
#define SPEED(packet) {							\
	.interface = {							\
		.bLength = sizeof(struct usb_interface_descriptor),	\
		.bDescriptorType = USB_DT_INTERFACE,			\
		.bNumEndpoints = 1,					\
		.bInterfaceClass = USB_CLASS_VENDOR_SPEC,		\
		.iInterface = 1,					\
	},								\
	.endpoint = {							\
		.bLength = sizeof(struct usb_endpoint_descriptor_no_audio), \
		.bDescriptorType = USB_DT_ENDPOINT,			\
		.bEndpointAddress = 1 | USB_DIR_IN,			\
		.bmAttributes = USB_ENDPOINT_XFER_BULK,			\
		.wMaxPacketSize = (packet),				\
	},								\
}
	.speeds = { SPEED(64), SPEED(512), SPEED(1024) },
	.companion = {
		.bLength = sizeof(struct usb_ss_ep_comp_descriptor),
		.bDescriptorType = USB_DT_SS_ENDPOINT_COMP,
	},
};

static const struct {
	struct usb_functionfs_strings_head head;
	__le16 language;
	char name[6];
} __attribute__((packed)) strings = {
	.head = { FUNCTIONFS_STRINGS_MAGIC, sizeof(strings), 1, 1 },
	.language = 0x0409,
	.name = "fixes",
};

static const char *controller_name = "usb_sink";
static enum buffer_kind kind = BUFFER_HEAP;
static int control, endpoint;
static struct buffer block;

static int call(unsigned long request, void *argument)
{
	return ioctl(endpoint, request, argument) ? -errno : 0;
}

static int attach(void)
{
	return call(ATTACH, &block.fd);
}

static int detach(void)
{
	return call(DETACH, &block.fd);
}

static int transfer(void)
{
	struct transfer transfer = { .fd = block.fd, .length = LENGTH };

	return call(TRANSFER, &transfer);
}

/* Waits until the host has all of the block. */
static void arrived(void)
{
	struct pollfd poller = { .fd = block.fd, .events = POLLOUT };

	expect(poll(&poller, 1, 10000), 1);
}

static void bind(void)
{
	proc_write(GADGET "/UDC", controller_name);
	/* Waits for the host. */
	check(ioctl(endpoint, FUNCTIONFS_ENDPOINT_REVMAP) >= 0);
}

static void unbind(void)
{
	proc_write(GADGET "/UDC", "\n");
}

static void begin(void)
{
	check(!mkdir(GADGET, 0755));
	proc_write(GADGET "/idVendor", "0x1d6b");
	proc_write(GADGET "/idProduct", "0x0104");
	check(!mkdir(GADGET "/functions/ffs.fixes", 0755));
	check(!mkdir(GADGET "/configs/c.1", 0755));
	check(!symlink(GADGET "/functions/ffs.fixes", GADGET "/configs/c.1/ffs.fixes"));
	check(!mkdir("ffs", 0755));
	check(!mount("fixes", "ffs", "functionfs", 0, NULL));
	control = open("ffs/ep0", O_RDWR | O_CLOEXEC);
	check(control >= 0);
	expect(write(control, &descriptors, sizeof(descriptors)), sizeof(descriptors));
	expect(write(control, &strings, sizeof(strings)), sizeof(strings));
	endpoint = open("ffs/ep1", O_RDWR | O_CLOEXEC);
	check(endpoint >= 0);
	bind();
	buffer_create(&block, kind, LENGTH);
}

static void end(void)
{
	buffer_destroy(&block);
	if (endpoint >= 0)
		close(endpoint);
	close(control);
	proc_try_write(GADGET "/UDC", "\n");
	check(!umount("ffs"));
	check(!rmdir("ffs"));
	check(!unlink(GADGET "/configs/c.1/ffs.fixes"));
	check(!rmdir(GADGET "/configs/c.1"));
	check(!rmdir(GADGET "/functions/ffs.fixes"));
	check(!rmdir(GADGET));
}

/* The fence has been signalled, and the endpoint and its memory are gone. */
static void fence(void)
{
	struct dma_buf_export_sync_file export = { .flags = DMA_BUF_SYNC_WRITE };
	struct sync_fence_info fence = { 0 };
	struct sync_file_info info = { .num_fences = 1, .sync_fence_info = (uintptr_t)&fence };
	struct pollfd poller = { .events = POLLIN };

	begin();
	trying("a fence that outlives its endpoint");
	proc_write(HOST "/rate", "500000");
	expect(attach(), 0);
	expect(transfer(), 0);
	check(!ioctl(block.fd, DMA_BUF_IOCTL_EXPORT_SYNC_FILE, &export));
	poller.fd = export.fd;
	expect(poll(&poller, 1, 0), 0);
	expect(poll(&poller, 1, 10000), 1);
	proc_write(HOST "/rate", "0");
	close(endpoint);
	endpoint = -1;
	/* The last references are put by a worker, and freed memory may stay a while. */
	sleep_ms(500);
	check(!ioctl(export.fd, SYNC_IOC_FILE_INFO, &info));
	expect(info.status, 1);
	expect(fence.status, 1);
	close(export.fd);
	end();
}

static void unbound(void)
{
	begin();
	expect(attach(), 0);
	expect(transfer(), 0);
	arrived();

	trying("a transfer after unbind");
	unbind();
	expect(transfer(), -EPERM);
	expect(attach(), -EPERM);
	expect(detach(), -EPERM);

	trying("a transfer after the next bind");
	bind();
	expect(transfer(), -EPERM);
	expect(attach(), 0);
	expect(transfer(), 0);
	arrived();

	trying("unbind during a transfer");
	proc_write(HOST "/rate", "100000");
	expect(transfer(), 0);
	unbind();
	arrived();
	proc_write(HOST "/rate", "0");

	trying("detach after unbind");
	expect(detach(), -EPERM);
	bind();
	expect(transfer(), -EPERM);
	end();
}

/* A transfer waits for a disabled endpoint while the gadget is unbound and bound again. */
static void waiting(void)
{
	pid_t child;

	begin();
	trying("unbind while a transfer waits for its endpoint");
	proc_write(HOST "/plugged", "0");
	expect(attach(), 0);
	child = spawn();
	if (!child) {
		expect(transfer(), -EPERM);
		exit(0);
	}
	sleep_ms(500);
	unbind();
	proc_write(HOST "/plugged", "1");
	bind();
	reap(child);
	expect(transfer(), -EPERM);
	end();
}

static void controller(void)
{
	begin();
	expect(attach(), 0);
	trying("a controller that goes while a dma-buf is attached");
	unbind();
	expect(module_remove("usb_sink"), 0);
	sleep_ms(500);
	expect(detach(), -EPERM);
	expect(module_insert("usb_sink", ""), 0);
	bind();
	expect(attach(), 0);
	expect(transfer(), 0);
	arrived();
	end();
}

/* QEMU's edu device, if it is behind an IOMMU */
static bool find_device(char *name, size_t size)
{
	bool found = false;
	char id[16];
	glob_t all;
	size_t i;

	if (glob("/sys/bus/pci/devices/*/iommu_group", 0, NULL, &all))
		return false;
	for (i = 0; i < all.gl_pathc && !found; i++) {
		char *path = all.gl_pathv[i], file[256];

		*strrchr(path, '/') = 0;
		snprintf(file, sizeof(file), "%s/device", path);
		found = proc_read(file, id, sizeof(id)) && !strcmp(id, "0x11e8\n");
		if (found)
			snprintf(name, size, "%s", strrchr(path, '/') + 1);
	}
	globfree(&all);
	return found;
}

/*
 * A device that was removed has no IOMMU to unmap from. DMA_API_DEBUG reports
 * mappings that remain.
 */
static void behind_iommu(void)
{
	char name[64], parameter[96], remove[96];

	if (!find_device(name, sizeof(name))) {
		printf("no edu device behind an IOMMU\n");
		return;
	}
	snprintf(parameter, sizeof(parameter), "controller=%s", name);
	snprintf(remove, sizeof(remove), "/sys/bus/pci/devices/%s/remove", name);
	expect(module_remove("usb_sink"), 0);
	expect(module_insert("usb_sink", parameter), 0);
	controller_name = name;
	begin();
	expect(attach(), 0);
	trying("a controller behind an IOMMU that goes while a dma-buf is attached");
	unbind();
	expect(module_remove("usb_sink"), 0);
	proc_write(remove, "1");
	expect(detach(), -EPERM);
	proc_write("/sys/bus/pci/rescan", "1");
	expect(module_insert("usb_sink", ""), 0);
	controller_name = "usb_sink";
	bind();
	end();
}

/* Functionfs waits for the fence with the reservation locked. */
static void signals(void)
{
	struct dma_buf_sync sync = { DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW };
	pid_t child;

	fence_prepare();
	kind = BUFFER_UDMABUF;
	begin();
	expect(attach(), 0);
	fence_add(&block, DMA_BUF_SYNC_WRITE);
	child = spawn();
	if (!child) {
		expect(transfer(), 0);
		exit(0);
	}
	sleep_ms(500);
	trying("a signal while the end of CPU access waits");
	signal_handled(SIGALRM, 0);
	alarm_every(1000);
	expect(ioctl(block.fd, DMA_BUF_IOCTL_SYNC, &sync) ? -errno : 0, -EINTR);
	alarm_every(0);
	fence_signal();
	reap(child);
	arrived();
	expect(ioctl(block.fd, DMA_BUF_IOCTL_SYNC, &sync), 0);
	end();
	kind = BUFFER_HEAP;
}

int main(int argc, char **argv)
{
	static void (* const steps[])(void) = { fence, unbound, controller, behind_iommu, waiting, signals };

	run_steps(argc, argv, steps, ARRAY_SIZE(steps));
	return 0;
}
