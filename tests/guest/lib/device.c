// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls to the module
 */
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "lib.h"

/* 32-bit programs use the same layouts; kernel/module/main.c checks the kernel's. */
_Static_assert(sizeof(struct dmabuf_dio_info) == 48, "info");
_Static_assert(offsetof(struct dmabuf_dio_info, default_depth) == 40, "info");
_Static_assert(sizeof(struct dmabuf_dio_attach) == 24, "attach");
_Static_assert(offsetof(struct dmabuf_dio_attach, refusal) == 20, "attach");
_Static_assert(sizeof(struct dmabuf_dio_rw) == 72, "rw");
_Static_assert(offsetof(struct dmabuf_dio_rw, refusal) == 64, "rw");
_Static_assert(sizeof(struct dmabuf_dio_load) == 88, "load");
_Static_assert(offsetof(struct dmabuf_dio_load, align) == 80, "load");
_Static_assert(sizeof(struct dmabuf_dio_slot) == 24, "slot");
_Static_assert(offsetof(struct dmabuf_dio_slot, flags) == 20, "slot");
_Static_assert(sizeof(struct dmabuf_dio_join) == 24, "join");
_Static_assert(offsetof(struct dmabuf_dio_join, flags) == 16, "join");
_Static_assert(sizeof(struct dmabuf_dio_uring_cmd) == 16, "command");

int dio_open(void)
{
	int dev = open(DMABUF_DIO_DEVICE, O_RDWR | O_CLOEXEC);

	if (dev < 0)
		fail("%s cannot be opened: %s", DMABUF_DIO_DEVICE, strerror(errno));
	return dev;
}

int dio_call(int dev, unsigned long request, void *arg)
{
	return ioctl(dev, request, arg) ? -errno : 0;
}

int dio_attach(int dev, int dmabuf_fd)
{
	struct dmabuf_dio_attach attach = { .dmabuf_fd = dmabuf_fd };
	int ret = dio_call(dev, DMABUF_DIO_IOC_ATTACH, &attach);

	if (!ret)
		expect(attach.refusal, 0);
	return ret;
}

int dio_context(const struct buffer *buf)
{
	int dev = dio_open();

	expect(dio_attach(dev, buf->fd), 0);
	return dev;
}

int dio_read(int dev, struct dmabuf_dio_rw *rw)
{
	return dio_call(dev, DMABUF_DIO_IOC_READ, rw);
}

int dio_write(int dev, struct dmabuf_dio_rw *rw)
{
	return dio_call(dev, DMABUF_DIO_IOC_WRITE, rw);
}

int dio_load(int dev, struct dmabuf_dio_load *load)
{
	return dio_call(dev, DMABUF_DIO_IOC_LOAD, load);
}

uint64_t dio_fdinfo(int dev, const char *name)
{
	char path[64], text[1024], *line;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", dev);
	check(proc_read(path, text, sizeof(text)));
	line = strstr(text, name);
	check(line);
	return strtoull(line + strlen(name), NULL, 10);
}

uint64_t dio_moved(int dev)
{
	return dio_fdinfo(dev, "moved:");
}

bool dio_has_slots(void)
{
	struct dmabuf_dio_info info = {};
	int dev = dio_open();

	expect(dio_call(dev, DMABUF_DIO_IOC_INFO, &info), 0);
	close(dev);
	return info.features & DMABUF_DIO_FEATURE_SLOTS;
}

/* Linux 6.12's udmabuf maps large folios wrongly. 7.2 has no slots either, and maps them right. */
bool udmabuf_is_wrong(void)
{
	return !dio_has_slots() && strncmp(guest_kernel(), "7.2", 3);
}

int dio_load_fd(int dev, int file, uint64_t offset, uint64_t length)
{
	struct dmabuf_dio_load load = {
		.file_fd = file,
		.fd_flags = O_RDWR | O_CLOEXEC,
		.file_offset = offset,
		.length = length,
	};

	expect(dio_load(dev, &load), 0);
	expect(load.done, length);
	expect(load.buf_length, (length + PAGE - 1) & -PAGE);
	check(load.dmabuf_fd >= 0);
	return load.dmabuf_fd;
}

unsigned char *map_dmabuf(int fd, size_t length, int prot)
{
	void *map = mmap(NULL, length, prot, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED)
		fail("mmap of the dma-buf: %s", strerror(errno));
	return map;
}

void unmap(void *map, size_t length)
{
	if (map)
		check(!munmap(map, length));
}
