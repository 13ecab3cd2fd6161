// SPDX-License-Identifier: GPL-2.0-only
/*
 * Buffers of DRM drivers
 */
#include <sys/ioctl.h>

#include <libdrm/drm.h>

#include "drm.h"

static const char *wanted;

static bool is_wanted(int card)
{
	char name[32] = "";
	struct drm_version version = { .name = name, .name_len = sizeof(name) - 1 };

	return !ioctl(card, DRM_IOCTL_VERSION, &version) && !strcmp(name, wanted);
}

int drm_open(const char *driver)
{
	wanted = driver;
	return open_numbered("/dev/dri/card", 16, is_wanted);
}

int vgem_open(void)
{
	int card = drm_open("vgem");

	if (card < 0) {
		run_command("modprobe -q vgem 2>/dev/null");
		card = drm_open("vgem");
	}
	return card;
}

int drm_buffer(int card, size_t length, __u32 *handle)
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
