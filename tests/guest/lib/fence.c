// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fences from sw_sync or from vgem
 */
#include <sys/ioctl.h>

#include <libdrm/drm.h>
#include <linux/dma-buf.h>

#include "fence.h"
#include "drm.h"

struct sw_sync_create_fence_data {
	__u32 value;
	char name[32];
	__s32 fence;
};

#define SW_SYNC_IOC_CREATE_FENCE	_IOWR('W', 0, struct sw_sync_create_fence_data)
#define SW_SYNC_IOC_INC			_IOW('W', 1, __u32)

struct vgem_fence_attach {
	__u32 handle;
	__u32 flags;
	__u32 fence;
	__u32 pad;
};

struct vgem_fence_signal {
	__u32 fence;
	__u32 flags;
};

#define VGEM_IOC_FENCE_ATTACH	DRM_IOWR(DRM_COMMAND_BASE + 1, struct vgem_fence_attach)
#define VGEM_IOC_FENCE_SIGNAL	DRM_IOW(DRM_COMMAND_BASE + 2, struct vgem_fence_signal)
#define VGEM_FENCE_WRITE	1

static int timeline = -1, card = -1;
static unsigned int value;
/* vgem's fences that are not signalled yet, the oldest at @oldest */
static __u32 attached[16];
static unsigned int oldest, next;

void fence_prepare(void)
{
	timeline = open("/sys/kernel/debug/sync/sw_sync", O_RDWR | O_CLOEXEC);
	if (timeline >= 0)
		return;
	card = vgem_open();
	if (card < 0)
		skip("this kernel has neither sw_sync nor vgem");
}

static int sw_sync_fence(void)
{
	struct sw_sync_create_fence_data data = { .value = ++value, .name = "test" };

	check(!ioctl(timeline, SW_SYNC_IOC_CREATE_FENCE, &data));
	return data.fence;
}

/* vgem adds the fence to its own buffer, from which it is exported as a file. */
static int vgem_fence(void)
{
	struct vgem_fence_attach attach = { .flags = VGEM_FENCE_WRITE };
	struct dma_buf_export_sync_file export = { .flags = DMA_BUF_SYNC_READ };
	int fd = drm_buffer(card, PAGE, &attach.handle);

	check(fd >= 0);
	check(!ioctl(card, VGEM_IOC_FENCE_ATTACH, &attach));
	check(next - oldest < ARRAY_SIZE(attached));
	attached[next++ % ARRAY_SIZE(attached)] = attach.fence;
	check(!ioctl(fd, DMA_BUF_IOCTL_EXPORT_SYNC_FILE, &export));
	close(fd);
	return export.fd;
}

void fence_add(struct buffer *buf, unsigned int flags)
{
	struct dma_buf_import_sync_file import = { .flags = flags };

	import.fd = timeline >= 0 ? sw_sync_fence() : vgem_fence();
	check(!ioctl(buf->fd, DMA_BUF_IOCTL_IMPORT_SYNC_FILE, &import));
	close(import.fd);
}

void fence_signal(void)
{
	struct vgem_fence_signal signal = {};
	__u32 one = 1;

	if (timeline >= 0) {
		check(!ioctl(timeline, SW_SYNC_IOC_INC, &one));
		return;
	}
	check(oldest != next);
	signal.fence = attached[oldest++ % ARRAY_SIZE(attached)];
	check(!ioctl(card, VGEM_IOC_FENCE_SIGNAL, &signal));
}
