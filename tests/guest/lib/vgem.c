// SPDX-License-Identifier: GPL-2.0-only
/*
 * Buffers of the virtual GPU
 */
#include <sys/ioctl.h>

#include <libdrm/drm.h>

#include "vgem.h"

static bool is_vgem(int card)
{
	char name[5] = "";
	struct drm_version version = { .name = name, .name_len = 4 };

	return !ioctl(card, DRM_IOCTL_VERSION, &version) && !strcmp(name, "vgem");
}

int vgem_open(void)
{
	return open_numbered("/dev/dri/card", 4, is_vgem);
}

int vgem_buffer(int card, size_t length, __u32 *handle)
{
	struct drm_mode_create_dumb dumb = {
		.width = PAGE / 4,
		.height = length / PAGE,
		.bpp = 32,
	};
	struct drm_prime_handle prime = { .flags = O_RDWR | O_CLOEXEC };

	if (ioctl(card, DRM_IOCTL_MODE_CREATE_DUMB, &dumb))
		return -errno;
	prime.handle = dumb.handle;
	if (ioctl(card, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime))
		return -errno;
	*handle = dumb.handle;
	return prime.fd;
}
