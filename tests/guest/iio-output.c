// SPDX-License-Identifier: GPL-2.0-only
/*
 * Output of dma-bufs by a DAC, which checks the order of the samples; cyclic blocks;
 * and blocks that are queued when the buffer is closed.
 */
#include <poll.h>

#include "iio.h"

#define BLOCKS	3
#define LENGTH	KIB(64)

static struct iio dac;
static struct buffer blocks[BLOCKS];

static void put(unsigned int i, uint64_t first, uint32_t flags)
{
	check(iio_wait(blocks[i].fd, POLLOUT, 10000));
	buffer_begin(&blocks[i]);
	frames_fill(blocks[i].map, LENGTH, first);
	buffer_end(&blocks[i]);
	expect(iio_enqueue(&dac, blocks[i].fd, LENGTH, flags), 0);
}

static void wait_for(const char *attribute, uint64_t least)
{
	int i;

	for (i = 0; i < 1000 && iio_get(&dac, attribute) < least; i++)
		sleep_ms(10);
	check(iio_get(&dac, attribute) >= least);
}

static void in_order(void)
{
	uint64_t first = 0;
	unsigned int n;

	trying("blocks in order");
	iio_set(&dac, "sampling_frequency", 0);
	iio_enable(&dac, true);
	for (n = 0; n < 10 * BLOCKS; n++, first += LENGTH / IIO_FRAME)
		put(n % BLOCKS, first, 0);
	wait_for("moved_frames", first);
	expect(iio_get(&dac, "moved_frames"), first);
	expect(iio_get(&dac, "wrong_frames"), 0);

	trying("a block out of order");
	put(0, first + 7, 0);
	wait_for("moved_frames", first + LENGTH / IIO_FRAME);
	expect(iio_get(&dac, "wrong_frames"), 1);
	iio_enable(&dac, false);
}

static void cyclic(void)
{
	uint64_t frames = LENGTH / IIO_FRAME;

	trying("a cyclic block");
	iio_set(&dac, "sampling_frequency", 1000000);
	iio_enable(&dac, true);
	put(0, 0, IIO_BUFFER_DMABUF_CYCLIC);
	wait_for("moved_frames", 3 * frames);
	check(!iio_wait(blocks[0].fd, POLLOUT, 0));
	/* Samples are out of order only where the device restarts. */
	check(iio_get(&dac, "wrong_frames") >= 2);

	trying("the block after a cyclic one");
	put(1, frames, 0);
	check(iio_wait(blocks[1].fd, POLLOUT, 10000));
	check(iio_wait(blocks[0].fd, POLLOUT, 0));
	iio_enable(&dac, false);
}

int main(void)
{
	unsigned int i;

	iio_open(&dac, "stream-dac");
	for (i = 0; i < BLOCKS; i++) {
		buffer_create(&blocks[i], BUFFER_HEAP, LENGTH);
		expect(iio_attach(&dac, blocks[i].fd), 0);
	}
	in_order();
	cyclic();

	trying("a buffer that is closed with a block in it");
	put(2, 0, 0);
	iio_close(&dac);
	for (i = 0; i < BLOCKS; i++)
		buffer_destroy(&blocks[i]);
	sleep_ms(200);
	expect(module_remove("iio_stream"), 0);
	return 0;
}
