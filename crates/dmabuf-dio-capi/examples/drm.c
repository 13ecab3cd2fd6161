/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * drm DEVICE FILE: has the driver of an NPU or a GPU allocate a buffer, and loads a file straight into it. DEVICE is
 * /dev/accel/accel0, or /dev/dri/card0. Then it compares the buffer with the file. The driver's jobs name the buffer
 * by the handle.
 */
#include <dmabuf_dio.h>

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xf86drm.h>

/* Of the kernel, which has them since the driver is there */
#if __has_include(<drm/ivpu_accel.h>)
#include <drm/ivpu_accel.h>
#endif
#if __has_include(<drm/amdxdna_accel.h>)
#include <drm/amdxdna_accel.h>
#endif
#if __has_include(<drm/rocket_accel.h>)
#include <drm/rocket_accel.h>
#endif

static void must(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static void dio(int status, const char *what)
{
	if (status >= 0)
		return;
	fprintf(stderr, "drm: %s: %s\n  %s\n", what, dmabuf_dio_error_message(), dmabuf_dio_error_hint());
	exit(1);
}

/* The handle of a buffer that the driver has allocated */
static uint32_t allocate(int device, const char *driver, uint64_t size)
{
#ifdef DRM_IOCTL_IVPU_BO_CREATE
	if (!strcmp(driver, "intel_vpu")) {
		struct drm_ivpu_bo_create create = { .size = size, .flags = DRM_IVPU_BO_CACHED };

		must(!drmIoctl(device, DRM_IOCTL_IVPU_BO_CREATE, &create), "allocate by intel_vpu");
		return create.handle;
	}
#endif
#ifdef DRM_IOCTL_AMDXDNA_CREATE_BO
	if (!strcmp(driver, "amdxdna_accel_driver")) {
		struct amdxdna_drm_create_bo create = { .size = size, .type = AMDXDNA_BO_SHMEM };

		must(!drmIoctl(device, DRM_IOCTL_AMDXDNA_CREATE_BO, &create), "allocate by amdxdna");
		return create.handle;
	}
#endif
#ifdef DRM_IOCTL_ROCKET_CREATE_BO
	if (!strcmp(driver, "rocket")) {
		struct drm_rocket_create_bo create = { .size = size };

		must(!drmIoctl(device, DRM_IOCTL_ROCKET_CREATE_BO, &create), "allocate by rocket");
		return create.handle;
	}
#endif
	/* Displays and virtual GPUs have the call for images, here of rows of 4096 bytes. */
	struct drm_mode_create_dumb dumb = { .width = 1024, .height = (size + 4095) / 4096, .bpp = 32 };

	if (drmIoctl(device, DRM_IOCTL_MODE_CREATE_DUMB, &dumb) && (errno == ENOSYS || errno == ENOTTY || errno == EOPNOTSUPP)) {
		fprintf(stderr, "drm: %s has a call of its own to allocate, in <drm/*.h> of the kernel, which this example lacks\n",
			driver);
		exit(1);
	}
	must(dumb.handle, "allocate");
	return dumb.handle;
}

static void compare(const struct dmabuf_dio_buffer *buffer, int file, uint64_t length)
{
	struct dmabuf_dio_map *map;
	unsigned char block[1 << 16];

	dio(dmabuf_dio_map(buffer, DMABUF_DIO_ACCESS_READ, &map), "map the buffer");
	const unsigned char *bytes = dmabuf_dio_map_address(map);
	for (uint64_t at = 0; at < length;) {
		ssize_t got = pread(file, block, sizeof(block), at);

		must(got > 0, "read the file");
		if (memcmp(bytes + at, block, got)) {
			fprintf(stderr, "drm: the buffer differs from the file after byte %llu\n", (unsigned long long)at);
			exit(1);
		}
		at += got;
	}
	dmabuf_dio_unmap(map);
}

int main(int count, char **arguments)
{
	struct dmabuf_dio_options options = { .size = sizeof(options) };
	struct dmabuf_dio_buffer *buffer;
	struct dmabuf_dio_report *report;
	struct stat status;
	int device, file, dmabuf;

	if (count != 3) {
		fprintf(stderr, "usage: drm DEVICE FILE\n");
		return 2;
	}
	device = open(arguments[1], O_RDWR | O_CLOEXEC);
	must(device >= 0, arguments[1]);
	/* Who opens a display first becomes its master, which a compositor wants to be. */
	drmDropMaster(device);
	drmVersionPtr version = drmGetVersion(device);
	must(!!version, "ask the device for its driver");
	file = open(arguments[2], O_RDONLY | O_CLOEXEC);
	must(file >= 0 && !fstat(file, &status), arguments[2]);

	uint32_t handle = allocate(device, version->name, status.st_size);
	must(!drmPrimeHandleToFD(device, handle, O_RDWR | O_CLOEXEC, &dmabuf), "export the buffer");

	dio(dmabuf_dio_buffer_from_fd(dmabuf, &buffer), "take the dma-buf");
	options.length = status.st_size;
	dio(dmabuf_dio_load_into(buffer, 0, arguments[2], &options, &report), "load into it");
	printf("%s, buffer %u: %s\n", version->name, handle, dmabuf_dio_report_line(report));
	compare(buffer, file, status.st_size);
	puts("the buffer has every byte of the file");

	dmabuf_dio_report_free(report);
	dmabuf_dio_buffer_free(buffer);
	close(dmabuf);
	close(file);
	drmFreeVersion(version);
	close(device);
	return 0;
}
