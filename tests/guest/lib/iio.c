// SPDX-License-Identifier: GPL-2.0-only
/*
 * An IIO device with DMABUF buffers
 */
#include <poll.h>
#include <sys/ioctl.h>

#include "iio.h"

#define MODULE	"iio_stream"

static void find(struct iio *iio, const char *name)
{
	char path[128], text[64];
	int i;

	for (i = 0; i < 16; i++) {
		snprintf(iio->folder, sizeof(iio->folder), "/sys/bus/iio/devices/iio:device%d", i);
		snprintf(path, sizeof(path), "%s/name", iio->folder);
		if (!proc_read(path, text, sizeof(text)))
			continue;
		text[strcspn(text, "\n")] = 0;
		if (strcmp(text, name))
			continue;
		snprintf(path, sizeof(path), "/dev/iio:device%d", i);
		iio->device = open(path, O_RDWR | O_CLOEXEC);
		check(iio->device >= 0);
		return;
	}
	fail("there is no IIO device %s", name);
}

void iio_open(struct iio *iio, const char *name)
{
	static const char * const directions[] = { "in", "out" };
	char path[192];
	unsigned int i, direction;

	if (access("/sys/module/" MODULE, F_OK)) {
		snprintf(path, sizeof(path), "%s/" MODULE ".ko", getenv("DMABUF_DIO_MODULE_DIR"));
		if (access(path, F_OK))
			skip("this kernel has no IIO buffers for DMA, and so no " MODULE);
		expect(module_insert(MODULE, ""), 0);
	}
	find(iio, name);
	iio->buffer = 0;
	check(!ioctl(iio->device, IIO_BUFFER_GET_FD_IOCTL, &iio->buffer));
	for (direction = 0; direction < 2; direction++) {
		for (i = 0; i < 4; i++) {
			snprintf(path, sizeof(path), "%s/buffer0/%s_voltage%u_en",
				 iio->folder, directions[direction], i);
			if (!access(path, F_OK))
				proc_write(path, "1");
		}
	}
}

void iio_close(struct iio *iio)
{
	close(iio->buffer);
	close(iio->device);
}

void iio_set(const struct iio *iio, const char *attribute, uint64_t value)
{
	char path[192], text[32];

	snprintf(path, sizeof(path), "%s/%s", iio->folder, attribute);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	proc_write(path, text);
}

uint64_t iio_get(const struct iio *iio, const char *attribute)
{
	char path[192], text[32];

	snprintf(path, sizeof(path), "%s/%s", iio->folder, attribute);
	check(proc_read(path, text, sizeof(text)));
	return strtoull(text, NULL, 10);
}

void iio_enable(const struct iio *iio, bool enable)
{
	iio_set(iio, "buffer0/enable", enable);
}

static int call(int fd, unsigned long request, void *argument)
{
	return ioctl(fd, request, argument) ? -errno : 0;
}

int iio_attach(const struct iio *iio, int dmabuf)
{
	return call(iio->buffer, IIO_BUFFER_DMABUF_ATTACH_IOCTL, &dmabuf);
}

int iio_detach(const struct iio *iio, int dmabuf)
{
	return call(iio->buffer, IIO_BUFFER_DMABUF_DETACH_IOCTL, &dmabuf);
}

int iio_enqueue(const struct iio *iio, int dmabuf, uint64_t bytes, uint32_t flags)
{
	struct iio_dmabuf block = { .fd = dmabuf, .flags = flags, .bytes_used = bytes };

	return call(iio->buffer, IIO_BUFFER_DMABUF_ENQUEUE_IOCTL, &block);
}

bool iio_wait(int dmabuf, short events, int ms)
{
	struct pollfd poller = { .fd = dmabuf, .events = events };
	int ret = poll(&poller, 1, ms);

	check(ret >= 0);
	return ret && poller.revents & events;
}

uint64_t frames_check(const void *data, size_t length, uint64_t first)
{
	const uint64_t *frames = data;
	size_t i;

	for (i = 0; i < length / IIO_FRAME; i++)
		if (frames[i] != first + i)
			fail("frame %zu is number %llu and not %llu", i,
			     (unsigned long long)frames[i],
			     (unsigned long long)(first + i));
	return first + i;
}

void frames_fill(void *data, size_t length, uint64_t first)
{
	uint64_t *frames = data;
	size_t i;

	for (i = 0; i < length / IIO_FRAME; i++)
		frames[i] = first + i;
}
