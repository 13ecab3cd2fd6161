// SPDX-License-Identifier: GPL-2.0-only
/*
 * Samples of an ADC into dma-bufs: the sequence from the kernel documentation, every
 * frame accounted for, deliberate losses in the right place, and rejected requests.
 */
#include <poll.h>

#include "iio.h"

#define BLOCKS	4

static struct iio adc;
static struct buffer blocks[BLOCKS];

static void queue_all(size_t length)
{
	unsigned int i;

	for (i = 0; i < BLOCKS; i++)
		expect(iio_enqueue(&adc, blocks[i].fd, length, 0), 0);
}

/* Takes the next block, which must exist; returns the number of its first frame. */
static uint64_t take(unsigned int i, size_t length)
{
	uint64_t first;

	check(iio_wait(blocks[i].fd, POLLIN, 10000));
	buffer_begin(&blocks[i]);
	first = *(uint64_t *)blocks[i].map;
	frames_check(blocks[i].map, length, first);
	buffer_end(&blocks[i]);
	return first;
}

/* At full speed no frame is lost, whatever the block size. */
static void unpaced(size_t length)
{
	uint64_t expected = 0;
	unsigned int n;

	trying("blocks of %zu bytes", length);
	iio_set(&adc, "sampling_frequency", 0);
	queue_all(length);
	check(!iio_wait(blocks[0].fd, POLLIN, 20));
	iio_enable(&adc, true);
	for (n = 0; n < 5 * BLOCKS; n++) {
		expect(take(n % BLOCKS, length), expected);
		expected += length / IIO_FRAME;
		expect(iio_enqueue(&adc, blocks[n % BLOCKS].fd, length, 0), 0);
	}
	expect(iio_get(&adc, "lost_frames"), 0);
	iio_enable(&adc, false);
	/* Queued blocks come back. */
	for (n = 0; n < BLOCKS; n++)
		check(iio_wait(blocks[n].fd, POLLIN, 1000));
}

/* At a fixed rate: frames without a block are lost, and the numbers show where. */
static void paced(size_t length)
{
	uint64_t first, expected = 0, lost = 0;
	unsigned int n;

	trying("a gap");
	iio_set(&adc, "sampling_frequency", 1000000);
	queue_all(length);
	iio_enable(&adc, true);
	for (n = 0; n < BLOCKS; n++)
		check(iio_wait(blocks[n].fd, POLLIN, 10000));
	sleep_ms(50);
	for (n = 0; n < 2 * BLOCKS; n++) {
		first = take(n % BLOCKS, length);
		check(first >= expected);
		lost += first - expected;
		expected = first + length / IIO_FRAME;
		if (n < BLOCKS)
			expect(iio_enqueue(&adc, blocks[n].fd, length, 0), 0);
	}
	check(lost >= 20000);
	check(iio_get(&adc, "lost_frames") >= lost);
	iio_enable(&adc, false);

	trying("a gap that was asked for");
	iio_set(&adc, "sampling_frequency", 0);
	iio_set(&adc, "inject_loss", 12345);
	queue_all(length);
	iio_enable(&adc, true);
	expect(take(0, length), 12345);
	expect(take(1, length), 12345 + length / IIO_FRAME);
	expect(iio_get(&adc, "lost_frames"), 12345);
	for (n = 0; n < BLOCKS; n++)
		check(iio_wait(blocks[n].fd, POLLIN, 1000));
	iio_enable(&adc, false);
}

static void refused(size_t length)
{
	struct buffer other;
	int file;

	trying("what is refused");
	file_pattern("file", length, 1);
	file = file_open("file", O_RDWR);
	expect(iio_attach(&adc, blocks[0].fd), -EBUSY);
	expect(iio_attach(&adc, file), -EINVAL);
	expect(iio_enqueue(&adc, blocks[0].fd, 0, 0), -EINVAL);
	expect(iio_enqueue(&adc, blocks[0].fd, blocks[0].length + 1, 0), -EINVAL);
	expect(iio_enqueue(&adc, blocks[0].fd, length, IIO_BUFFER_DMABUF_CYCLIC), -EINVAL);
	expect(iio_enqueue(&adc, blocks[0].fd, length, 1 << 7), -EINVAL);
	buffer_create(&other, BUFFER_HEAP, length);
	expect(iio_enqueue(&adc, other.fd, length, 0), -EPERM);
	expect(iio_detach(&adc, other.fd), -EPERM);
	buffer_destroy(&other);
	close(file);
}

int main(void)
{
	static const size_t lengths[] = { KIB(16), MIB(1), KIB(16) - 24, IIO_FRAME };
	unsigned int i;

	iio_open(&adc, "stream-adc");
	for (i = 0; i < BLOCKS; i++) {
		/* The device stores through the kernel mapping that the exporter makes. */
		buffer_create(&blocks[i], i % 2 ? BUFFER_LOAD : BUFFER_HEAP, MIB(1));
		expect(iio_attach(&adc, blocks[i].fd), 0);
	}
	for (i = 0; i < ARRAY_SIZE(lengths); i++)
		unpaced(lengths[i]);
	paced(KIB(16));
	refused(KIB(16));
	for (i = 0; i < BLOCKS; i++) {
		expect(iio_detach(&adc, blocks[i].fd), 0);
		buffer_destroy(&blocks[i]);
	}
	iio_close(&adc);
	return 0;
}
