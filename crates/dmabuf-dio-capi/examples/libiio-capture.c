/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libiio-capture DEVICE FRAMES file PATH | tcp HOST PORT | usb FOLDER: captures with libiio 1.x. Its blocks are
 * dma-bufs, which go to a file, a TCP connection or a USB host (FOLDER: the mount point of functionfs), with no
 * copy by the CPU.
 */
#include <dmabuf_dio.h>

#include <errno.h>
#include <iio/iio.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS 8
#define BLOCK_FRAMES (1u << 16)

static void failed(const char *what, int status)
{
	fprintf(stderr, "libiio-capture: %s: %s\n", what, strerror(-status));
	exit(1);
}

static void ours(void)
{
	fprintf(stderr, "libiio-capture: %s\n  %s\n", dmabuf_dio_error_message(), dmabuf_dio_error_hint());
	exit(1);
}

static void check(const char *what, int status)
{
	if (status < 0)
		failed(what, status);
}

static int connected(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *address;
	int status = getaddrinfo(host, port, &hints, &address);

	if (status) {
		fprintf(stderr, "libiio-capture: %s: %s\n", host, gai_strerror(status));
		exit(1);
	}
	int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, address->ai_addr, address->ai_addrlen) < 0)
		failed(host, -errno);
	freeaddrinfo(address);
	return fd;
}

static struct dmabuf_dio_sink *open_sink(char **to, const int *fds, uint64_t size)
{
	struct dmabuf_dio_sink *sink;
	int status;

	if (!strcmp(to[0], "file")) {
		status = dmabuf_dio_sink_file(to[1], fds, BLOCKS, size, &sink);
	} else if (!strcmp(to[0], "usb")) {
		status = dmabuf_dio_sink_usb(to[1], fds, BLOCKS, size, &sink);
	} else {
		int fd = connected(to[1], to[2]);

		status = dmabuf_dio_sink_socket(fd, fds, BLOCKS, size, &sink);
		close(fd);
	}
	if (status < 0)
		ours();
	return sink;
}

/* Gives blocks that the sink has delivered back to the device, until it has fewer than half. Returns how many it has. */
static int recycle(struct dmabuf_dio_sink *sink, struct iio_block **blocks, int behind)
{
	for (;;) {
		int64_t block = dmabuf_dio_sink_wait(sink, behind < BLOCKS / 2 ? 0 : -1);

		if (block == -EAGAIN || block == -ENODATA)
			return behind;
		if (block < 0)
			ours();
		check("queue a block", iio_block_enqueue(blocks[block], 0, false));
		behind--;
	}
}

int main(int count, char **arguments)
{
	if (count < 5 || (!strcmp(arguments[3], "tcp") && count < 6))
		return fprintf(stderr, "usage: libiio-capture DEVICE FRAMES file PATH | tcp HOST PORT | usb FOLDER\n"), 2;
	uint64_t frames = strtoull(arguments[2], NULL, 0);

	struct iio_context *context = iio_create_context(NULL, "local:");
	check("libiio", iio_err(context));
	struct iio_device *device = iio_context_find_device(context, arguments[1]);
	struct iio_buffer *buffer = device ? iio_device_get_buffer(device, 0) : NULL;
	if (!buffer)
		failed(arguments[1], -ENODEV);
	struct iio_channels_mask *mask = iio_create_channels_mask(iio_device_get_channels_count(device));
	for (unsigned int i = 0; i < iio_buffer_get_scan_elements_count(buffer); i++)
		iio_channel_enable(iio_buffer_get_scan_element(buffer, i), mask);
	struct iio_buffer_stream *stream = iio_buffer_open(buffer, mask);
	check("open the buffer", iio_err(stream));
	size_t frame = iio_device_get_sample_size(device, mask), size = BLOCK_FRAMES * frame;

	struct iio_block *blocks[BLOCKS];
	int fds[BLOCKS];
	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = iio_buffer_stream_create_block(stream, size);
		check("make a block", iio_err(blocks[i]));
		fds[i] = iio_block_get_dmabuf_fd(blocks[i]);
		check("the device, or the kernel, has no dma-bufs", fds[i]);
		/* This program does not look at the samples. */
		check("leave the CPU out", iio_block_disable_cpu_access(blocks[i], true));
	}
	struct dmabuf_dio_sink *sink = open_sink(arguments + 3, fds, size);
	for (int i = 0; i < BLOCKS; i++)
		check("queue a block", iio_block_enqueue(blocks[i], 0, false));
	check("start", iio_buffer_stream_start(stream));

	uint64_t left = frames * frame;
	for (int i = 0, behind = 0; left; i = (i + 1) % BLOCKS) {
		uint64_t bytes = left < size ? left : size;

		behind = recycle(sink, blocks, behind);
		check("wait for the device", iio_block_dequeue(blocks[i], false));
		if (dmabuf_dio_sink_write(sink, i, bytes) < 0)
			ours();
		behind++;
		left -= bytes;
	}
	if (dmabuf_dio_sink_finish(sink) < 0)
		ours();
	printf("%llu bytes by %s\n", (unsigned long long)(frames * frame), dmabuf_dio_sink_how(sink));

	dmabuf_dio_sink_free(sink);
	iio_buffer_stream_stop(stream);
	for (int i = 0; i < BLOCKS; i++)
		iio_block_destroy(blocks[i]);
	iio_buffer_close(stream);
	iio_channels_mask_destroy(mask);
	iio_context_destroy(context);
	return 0;
}
