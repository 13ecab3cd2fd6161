// SPDX-License-Identifier: GPL-2.0-only
/*
 * A capture driver's buffers: pages from dma_alloc_coherent() may have a count of 0, and a file
 * system frees them when it drops its reference.
 */
#include <sys/ioctl.h>

#include <linux/videodev2.h>

#include "odd.h"

static bool is_vivid(int fd)
{
	struct v4l2_capability capability;

	return !ioctl(fd, VIDIOC_QUERYCAP, &capability) &&
	       !strcmp((char *)capability.driver, "vivid") &&
	       capability.device_caps & V4L2_CAP_VIDEO_CAPTURE;
}

/* A buffer that frames are captured into */
static int video_buffer(void)
{
	struct v4l2_requestbuffers request = {
		.count = 1, .type = V4L2_BUF_TYPE_VIDEO_CAPTURE, .memory = V4L2_MEMORY_MMAP,
	};
	struct v4l2_exportbuffer export = {
		.type = V4L2_BUF_TYPE_VIDEO_CAPTURE, .flags = O_RDWR | O_CLOEXEC,
	};
	int fd = open_numbered("/dev/video", 16, is_vivid);

	if (fd < 0)
		fail("no capture device of vivid");
	check(!ioctl(fd, VIDIOC_REQBUFS, &request));
	check(!ioctl(fd, VIDIOC_EXPBUF, &export));
	/* The dma-buf keeps the memory alive. */
	close(fd);
	return export.fd;
}

static void uncounted(void)
{
	int fd = video_buffer();

	expect_refused(fd, PAGES);
	close(fd);
}

static void driver(const char *parameters, void (*test)(void))
{
	trying("vivid %s", parameters);
	if (run_command("modprobe -q vivid no_error_inj=1 n_devs=1 %s 2>/dev/null", parameters)) {
		/* Debian's kernels have vivid. */
		check(!guest_of_debian());
		skip("no vivid");
	}
	test();
	check(!run_command("modprobe -r vivid"));
}

static void refused(void)
{
	int fd = video_buffer();

	expect_refused(fd, EXPORTER);
	close(fd);
	/* With a CMA region the memory comes from there, and its pages are counted. */
	if (!memory_of_cma())
		with_exporters("videobuf2_dma_contig", uncounted);
}

static void refused_vmalloc(void)
{
	int fd = video_buffer();

	expect_refused(fd, EXPORTER);
	close(fd);
}

int main(void)
{
	driver("allocators=1", refused);
	driver("allocators=0", refused_vmalloc);
	return 0;
}
