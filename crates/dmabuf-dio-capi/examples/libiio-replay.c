/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libiio-replay DEVICE FILE: outputs the samples of FILE with libiio 1.x. They are read from the disk into its
 * blocks, with no copy by the CPU.
 */
#include <dmabuf_dio.h>

#include <errno.h>
#include <fcntl.h>
#include <iio/iio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCKS 4
#define BLOCK_FRAMES (1u << 18)

static void check(const char *what, int status)
{
	if (status >= 0)
		return;
	fprintf(stderr, "libiio-replay: %s: %s\n", what, strerror(-status));
	exit(1);
}

static void ours(int status)
{
	if (status >= 0)
		return;
	fprintf(stderr, "libiio-replay: %s\n  %s\n", dmabuf_dio_error_message(), dmabuf_dio_error_hint());
	exit(1);
}

int main(int count, char **arguments)
{
	if (count != 3)
		return fprintf(stderr, "usage: libiio-replay DEVICE FILE\n"), 2;
	int file = open(arguments[2], O_RDONLY | O_CLOEXEC);
	struct stat stat;
	check(arguments[2], file < 0 || fstat(file, &stat) < 0 ? -errno : 0);

	struct iio_context *context = iio_create_context(NULL, "local:");
	check("libiio", iio_err(context));
	struct iio_device *device = iio_context_find_device(context, arguments[1]);
	struct iio_buffer *buffer = device ? iio_device_get_buffer(device, 0) : NULL;
	check(arguments[1], buffer ? 0 : -ENODEV);
	struct iio_channels_mask *mask = iio_create_channels_mask(iio_device_get_channels_count(device));
	for (unsigned int i = 0; i < iio_buffer_get_scan_elements_count(buffer); i++)
		iio_channel_enable(iio_buffer_get_scan_element(buffer, i), mask);
	struct iio_buffer_stream *stream = iio_buffer_open(buffer, mask);
	check("open the buffer", iio_err(stream));
	uint64_t size = (uint64_t)BLOCK_FRAMES * iio_device_get_sample_size(device, mask);

	/* The library's handles of libiio's blocks */
	struct iio_block *blocks[BLOCKS];
	struct dmabuf_dio_buffer *buffers[BLOCKS];
	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = iio_buffer_stream_create_block(stream, size);
		check("make a block", iio_err(blocks[i]));
		check("leave the CPU out", iio_block_disable_cpu_access(blocks[i], true));
		int fd = iio_block_get_dmabuf_fd(blocks[i]);
		check("the device, or the kernel, has no dma-bufs", fd);
		ours(dmabuf_dio_buffer_from_fd(fd, &buffers[i]));
	}

	struct dmabuf_dio_options options = { .size = sizeof(options) };
	for (int i = 0, round = 0; options.offset < (uint64_t)stat.st_size; i = (i + 1) % BLOCKS) {
		uint64_t left = stat.st_size - options.offset;

		if (round)
			check("wait for the device", iio_block_dequeue(blocks[i], false));
		options.length = left < size ? left : size;
		ours(dmabuf_dio_load_into_fd(buffers[i], 0, file, &options, NULL));
		check("queue a block", iio_block_enqueue(blocks[i], options.length, false));
		options.offset += options.length;
		if (!round && (i + 1 == BLOCKS || options.offset == (uint64_t)stat.st_size)) {
			check("start", iio_buffer_stream_start(stream));
			round++;
		}
	}
	/* Until the last sample is out; a block that was never queued has nothing to wait for. */
	for (int i = 0; i < BLOCKS; i++) {
		int status = iio_block_dequeue(blocks[i], false);

		check("wait for the device", status == -EPERM ? 0 : status);
	}
	printf("%llu bytes\n", (unsigned long long)stat.st_size);

	for (int i = 0; i < BLOCKS; i++) {
		dmabuf_dio_buffer_free(buffers[i]);
		iio_block_destroy(blocks[i]);
	}
	iio_buffer_stream_stop(stream);
	iio_buffer_close(stream);
	iio_channels_mask_destroy(mask);
	iio_context_destroy(context);
	close(file);
	return 0;
}
