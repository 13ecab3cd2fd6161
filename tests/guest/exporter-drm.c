// SPDX-License-Identifier: GPL-2.0-only
/*
 * Buffers of DRM drivers whose objects are shared memory are lent: pinned while
 * they are attached, and never mapped if they are refused. kernel/sim/gem_driver
 * has a device for each rule.
 */
#include "drm.h"

#define LENGTH		MIB(3)
#define PARAMETER(name)	"/sys/module/gem_driver/parameters/" name

static int number(const char *path)
{
	char text[32];

	check(proc_read(path, text, sizeof(text)));
	return atoi(text);
}

/* A dma-buf of a device with the name of this driver */
static int buffer_of(const char *driver)
{
	int card = drm_open(driver), fd;
	__u32 handle;

	if (card < 0)
		skip("no device of %s", driver);
	fd = drm_buffer(card, LENGTH, &handle);
	check(fd >= 0);
	close(card);
	return fd;
}

/* The CPU sees through the driver's mapping what was read, and the file gets what it stores there. */
static void both_ways(int dev, int fd)
{
	struct dmabuf_dio_rw rw = { .length = LENGTH };
	unsigned char *map = map_dmabuf(fd, LENGTH, 3);
	bool direct;

	for (direct = false;; direct = true) {
		pattern_fill(map, 0, LENGTH, 5);
		rw.file_fd = file_open("data", O_RDONLY | direct_flag(direct));
		expect(dio_read(dev, &rw), 0);
		expect(rw.direct, direct ? LENGTH : 0);
		pattern_check(map, 0, LENGTH, 7);
		close(rw.file_fd);

		pattern_fill(map, 0, LENGTH, 9 + direct);
		rw.file_fd = file_open("copy", O_RDWR | O_CREAT | O_TRUNC | direct_flag(direct));
		expect(dio_write(dev, &rw), 0);
		expect(rw.done, LENGTH);
		close(rw.file_fd);
		rw.file_fd = file_open("copy", O_RDONLY);
		fd_pattern_check(rw.file_fd, 0, LENGTH, 9 + direct);
		close(rw.file_fd);
		if (direct || !direct_possible())
			break;
	}
	unmap(map, LENGTH);
}

static void expect_lent(const char *driver)
{
	int fd = buffer_of(driver), dev = dio_open();
	int pins = number(PARAMETER("pins")), vmaps = number(PARAMETER("vmaps"));
	unsigned char *map;

	trying("%s", driver);
	expect(dio_attach(dev, fd), 0);
	expect(number(PARAMETER("pins")), pins + 1);
	both_ways(dev, fd);
	close(dev);
	expect(number(PARAMETER("pins")), pins);
	expect(number(PARAMETER("vmaps")), vmaps + 1);
	map = map_dmabuf(fd, LENGTH, 1);
	pattern_check(map, 0, LENGTH, 9 + direct_possible());
	unmap(map, LENGTH);
	close(fd);
}

/* The GPU of virtual machines, whose memory QEMU reads when it shows it */
static void virtio(void)
{
	int fd, dev;

	/* Linux 6.12's console on it warns when the machine is switched off. */
	run_command("modprobe -q drm_kms_helper 2>/dev/null");
	proc_try_write("/sys/module/drm_kms_helper/parameters/fbdev_emulation", "N");
	run_command("modprobe -q virtio-gpu 2>/dev/null");
	if (drm_open("virtio_gpu") < 0) {
		check(!guest_of_debian());
		return;
	}
	trying("virtio_gpu");
	fd = buffer_of("virtio_gpu");
	dev = dio_open();
	expect(dio_attach(dev, fd), 0);
	both_ways(dev, fd);
	close(dev);
	close(fd);
}

/* Reclaim drops pages that are not dirty, and with them what DMA has stored. */
static void stored_is_dirty(void)
{
	struct dmabuf_dio_rw rw = { .length = LENGTH };
	int fd = buffer_of("vkms"), dev = dio_open();

	trying("dirty pages");
	expect(dio_attach(dev, fd), 0);
	rw.file_fd = file_open("data", O_RDONLY | direct_flag(direct_possible()));
	expect(dio_read(dev, &rw), 0);
	close(rw.file_fd);
	close(dev);
	expect(number(PARAMETER("dirty")), LENGTH / PAGE);
	close(fd);
}

static void expect_refused(const char *driver, __u32 why)
{
	struct dmabuf_dio_attach attach = { .dmabuf_fd = buffer_of(driver) };
	int pins = number(PARAMETER("pins")), vmaps = number(PARAMETER("vmaps"));
	int dev = dio_open();

	trying("%s", driver);
	expect(dio_call(dev, DMABUF_DIO_IOC_ATTACH, &attach), -EOPNOTSUPP);
	expect(attach.refusal, why);
	expect(number(PARAMETER("pins")), pins);
	expect(number(PARAMETER("vmaps")), vmaps);
	close(dev);
	close(attach.dmabuf_fd);
}

static void write_combined(void)
{
	proc_write(PARAMETER("write_combined"), "1");
#ifdef __x86_64__
	expect_lent("vkms");
#else
	expect_refused("vkms", DMABUF_DIO_REFUSED_UNSYNCED);
#endif
	expect_lent("panthor");
	proc_write(PARAMETER("write_combined"), "0");
}

/* The exporter's own device is no attachment of the dma-buf. */
static void own_device_bounces(void)
{
	struct dmabuf_dio_rw rw = { .length = LENGTH };
	int fd = buffer_of("powervr"), dev = dio_open();
	unsigned char *map = map_dmabuf(fd, LENGTH, 3);

	trying("bounce buffers of its own device");
	expect(dio_attach(dev, fd), 0);
	if (!proc_try_write(PARAMETER("bounces"), "1")) {
		printf("this kernel does not tell when a device begins to use bounce buffers\n");
	} else {
		pattern_fill(map, 0, LENGTH, 11);
		rw.file_fd = file_open("data", O_RDONLY);
		expect(dio_read(dev, &rw), -EBUSY);
		expect(rw.refusal, DMABUF_DIO_REFUSED_UNSYNCED);
		expect(rw.done, 0);
		pattern_check(map, 0, LENGTH, 11);
		close(rw.file_fd);
		expect_refused("powervr", DMABUF_DIO_REFUSED_UNSYNCED);
		proc_write(PARAMETER("bounces"), "0");
	}
	unmap(map, LENGTH);
	close(dev);
	close(fd);
}

static void begins_and_ends(void)
{
	int begun = number(PARAMETER("begun")), ended = number(PARAMETER("ended"));

	expect_lent("panthor");
	check(number(PARAMETER("begun")) > begun);
	expect(number(PARAMETER("ended")) - ended, number(PARAMETER("begun")) - begun);
}

/* On arm64 a device is not coherent unless the device tree says so. Where the kernel checks DMA, each one counts. */
static bool own_device_needs_sync(void)
{
#ifdef __x86_64__
	return !access("/sys/kernel/debug/dma-api", F_OK);
#else
	return true;
#endif
}

static void own_device(void)
{
	if (own_device_needs_sync()) {
		expect_refused("powervr", DMABUF_DIO_REFUSED_UNSYNCED);
		expect_refused("panfrost", DMABUF_DIO_REFUSED_UNSYNCED);
		return;
	}
	expect_lent("powervr");
	own_device_bounces();
	expect_lent("powervr");
	expect_refused("panfrost", DMABUF_DIO_REFUSED_EXPORTER);
}

int main(void)
{
	if (access("/sys/module/gem_driver", F_OK))
		skip("no kernel/sim/gem_driver");
	file_pattern("data", LENGTH, 7);
	virtio();

	/* A module that is not the kernel's may have any name. */
	expect_refused("vkms", DMABUF_DIO_REFUSED_EXPORTER);
	proc_write(PARAMETER("foreign"), "0");
	expect_lent("vkms");
	stored_is_dirty();
	write_combined();
	begins_and_ends();
	own_device();
	expect_refused("gem_driver", DMABUF_DIO_REFUSED_EXPORTER);
	expect_refused("gud", DMABUF_DIO_REFUSED_EXPORTER);
	expect_refused("rocket", DMABUF_DIO_REFUSED_UNSYNCED);
	expect_refused("hyperv_drm", DMABUF_DIO_REFUSED_UNSYNCED);
	proc_write(PARAMETER("foreign"), "1");
	expect_refused("vkms", DMABUF_DIO_REFUSED_EXPORTER);
	return 0;
}
