/* SPDX-License-Identifier: GPL-2.0-only */
/* An IIO device with DMABUF buffers, as Documentation/iio/iio_dmabuf_api.rst has it */
#ifndef TESTS_GUEST_IIO_H
#define TESTS_GUEST_IIO_H

#include <linux/ioctl.h>

#include "lib.h"

/* From linux/iio/buffer.h; distributions ship it without these */
struct iio_dmabuf {
	uint32_t fd;
	uint32_t flags;
	uint64_t bytes_used;
};

#define IIO_BUFFER_DMABUF_CYCLIC	(1 << 0)
#define IIO_BUFFER_GET_FD_IOCTL		_IOWR('i', 0x91, int)
#define IIO_BUFFER_DMABUF_ATTACH_IOCTL	_IOW('i', 0x92, int)
#define IIO_BUFFER_DMABUF_DETACH_IOCTL	_IOW('i', 0x93, int)
#define IIO_BUFFER_DMABUF_ENQUEUE_IOCTL	_IOW('i', 0x94, struct iio_dmabuf)

/* All four channels: a frame contains its own number. */
#define IIO_FRAME	8

struct iio {
	char folder[64];		/* in sysfs */
	int device;
	int buffer;
};

/* Opens the buffer of the device of this name with all channels enabled, or skips. */
void iio_open(struct iio *iio, const char *name);
void iio_close(struct iio *iio);
void iio_set(const struct iio *iio, const char *attribute, uint64_t value);
uint64_t iio_get(const struct iio *iio, const char *attribute);
void iio_enable(const struct iio *iio, bool enable);
/* 0 or -errno */
int iio_attach(const struct iio *iio, int dmabuf);
int iio_detach(const struct iio *iio, int dmabuf);
int iio_enqueue(const struct iio *iio, int dmabuf, uint64_t bytes, uint32_t flags);
/* Whether the device has finished with the block, after at most @ms. @events: POLLIN for input. */
bool iio_wait(int dmabuf, short events, int ms);

/* Checks that frames count up from @first; returns the next expected number. */
uint64_t frames_check(const void *data, size_t length, uint64_t first);
void frames_fill(void *data, size_t length, uint64_t first);

#endif
