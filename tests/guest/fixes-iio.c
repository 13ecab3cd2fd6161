// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fixes of industrialio in kernel/series/iio: what write() tells, where read() begins, blocks that
 * the driver refuses, read() and write() while dma-bufs are in use. timeout=60
 *
 * fixes-iio [STEP]: one step only. Skipped on other kernels: one step oopses.
 */
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/time.h>

#include <linux/dma-buf.h>
#include <linux/sync_file.h>

#include "iio.h"

/* The core has two blocks for read() and write(). */
#define FRAMES	500
#define LENGTH	(FRAMES * IIO_FRAME)

#define DEQUEUE	"/sys/module/iio_stream/parameters/reset_dequeue"

static uint64_t frames[3 * FRAMES];

static void alarm_in(unsigned int ms, int flags)
{
	struct itimerval timer = { .it_value = { ms / 1000, ms % 1000 * 1000 } };

	signal_handled(SIGALRM, flags);
	check(!setitimer(ITIMER_REAL, &timer, NULL));
}

static int64_t result(ssize_t ret)
{
	return ret < 0 ? -errno : ret;
}

static void nonblocking(const struct iio *iio, bool on)
{
	check(!fcntl(iio->buffer, F_SETFL, on ? O_NONBLOCK : 0));
}

static void opened(struct iio *iio, const char *name, uint64_t rate)
{
	iio_open(iio, name);
	iio_set(iio, "buffer0/length", 2 * FRAMES);
	iio_set(iio, "sampling_frequency", rate);
}

/* Two blocks fit; for the third the call waits two seconds. */
static void partly_written(void)
{
	struct iio dac;
	size_t done;
	int i;

	opened(&dac, "stream-dac-fileio", FRAMES / 2);
	frames_fill(frames, sizeof(frames), 0);

	trying("a write() that a signal interrupts half-way");
	iio_enable(&dac, true);
	alarm_in(500, SA_RESTART);
	expect(result(write(dac.buffer, frames, sizeof(frames))), 2 * LENGTH);
	alarm_in(0, 0);
	for (done = 2 * LENGTH; done < sizeof(frames); done += LENGTH)
		expect(result(write(dac.buffer, (char *)frames + done, LENGTH)), LENGTH);
	for (i = 0; i < 1000 && iio_get(&dac, "moved_frames") < ARRAY_SIZE(frames); i++)
		sleep_ms(10);
	expect(iio_get(&dac, "moved_frames"), ARRAY_SIZE(frames));
	expect(iio_get(&dac, "wrong_frames"), 0);
	iio_enable(&dac, false);

	trying("a write() that does not end with a frame");
	iio_enable(&dac, true);
	expect(result(write(dac.buffer, frames, 2 * IIO_FRAME + 3)), 2 * IIO_FRAME);
	expect(result(write(dac.buffer, frames, 3)), -EINVAL);
	iio_enable(&dac, false);
	iio_close(&dac);
}

static void first_block(void)
{
	struct iio adc;
	uint64_t next = 0;
	int i;

	opened(&adc, "stream-adc-fileio", 0);
	trying("read() after an odd number of blocks");
	proc_write(DEQUEUE, "0");
	iio_enable(&adc, true);
	expect(result(read(adc.buffer, frames, LENGTH)), LENGTH);
	frames_check(frames, LENGTH, 0);
	iio_enable(&adc, false);
	iio_enable(&adc, true);
	for (i = 0; i < 5; i++) {
		expect(result(read(adc.buffer, frames, LENGTH)), LENGTH);
		expect(frames[0], next);
		next = frames_check(frames, LENGTH, next);
	}
	iio_enable(&adc, false);
	proc_write(DEQUEUE, "1");
	iio_close(&adc);
}

/* The status of a fence, once it is signalled */
static int status(int sync_file)
{
	struct pollfd poller = { .fd = sync_file, .events = POLLIN };
	struct sync_file_info info = { 0 };

	expect(poll(&poller, 1, 10000), 1);
	check(!ioctl(sync_file, SYNC_IOC_FILE_INFO, &info));
	return info.status;
}

static void refused(void)
{
	struct dma_buf_export_sync_file export = { .flags = DMA_BUF_SYNC_READ };
	struct buffer block;
	struct iio adc;

	opened(&adc, "stream-adc", 0);
	buffer_create(&block, BUFFER_HEAP, LENGTH);
	expect(iio_attach(&adc, block.fd), 0);

	trying("a block that the driver refuses");
	iio_enable(&adc, true);
	expect(iio_enqueue(&adc, block.fd, 12, 0), -EINVAL);
	expect(iio_enqueue(&adc, block.fd, LENGTH, 0), 0);
	check(iio_wait(block.fd, POLLIN, 10000));
	frames_check(block.map, LENGTH, 0);
	iio_enable(&adc, false);

	trying("a block that the driver refuses when it starts");
	expect(iio_enqueue(&adc, block.fd, 12, 0), 0);
	check(!ioctl(block.fd, DMA_BUF_IOCTL_EXPORT_SYNC_FILE, &export));
	iio_enable(&adc, true);
	expect(status(export.fd), -EINVAL);
	expect(iio_enqueue(&adc, block.fd, LENGTH, 0), 0);
	check(iio_wait(block.fd, POLLIN, 10000));
	frames_check(block.map, LENGTH, 0);
	iio_enable(&adc, false);

	close(export.fd);
	iio_close(&adc);
	buffer_destroy(&block);
}

/* read() or write() of a frame, which nothing but the alarm ends if it waits */
static int64_t transfer(const struct iio *iio, bool input)
{
	int64_t ret;

	alarm_in(5000, 0);
	if (input)
		ret = result(read(iio->buffer, frames, IIO_FRAME));
	else
		ret = result(write(iio->buffer, frames, IIO_FRAME));
	alarm_in(0, 0);
	return ret;
}

/* On debug kernels without a copy: lockdep reports one on a buffer that also has dma-bufs. */
static void transfer_frame(const struct iio *iio, bool input)
{
	iio_enable(iio, true);
	if (!strstr(guest_kernel(), "debug"))
		expect(transfer(iio, input), IIO_FRAME);
	iio_enable(iio, false);
}

static void in_use(const char *name, bool input)
{
	struct buffer block;
	struct iio iio;
	pid_t sleeper;

	opened(&iio, name, 0);
	/* Attachments of an earlier step are released in the background. */
	sleep_ms(500);
	trying("%s, before any dma-buf", name);
	transfer_frame(&iio, input);

	trying("%s, stopped, with a dma-buf", name);
	buffer_create(&block, BUFFER_HEAP, LENGTH);
	expect(iio_attach(&iio, block.fd), 0);
	nonblocking(&iio, true);
	expect(transfer(&iio, input), -EAGAIN);
	nonblocking(&iio, false);

	trying("%s, started meanwhile", name);
	sleeper = spawn();
	if (!sleeper) {
		expect(transfer(&iio, input), -EBUSY);
		exit(0);
	}
	sleep_ms(100);
	iio_set(&iio, "sampling_frequency", 100);
	iio_enable(&iio, true);
	reap(sleeper);

	trying("%s, running, with a dma-buf", name);
	expect(transfer(&iio, input), -EBUSY);
	nonblocking(&iio, true);
	expect(transfer(&iio, input), -EBUSY);
	nonblocking(&iio, false);

	trying("%s, with a dma-buf that is being detached", name);
	expect(iio_enqueue(&iio, block.fd, LENGTH, 0), 0);
	expect(iio_detach(&iio, block.fd), 0);
	expect(transfer(&iio, input), -EBUSY);
	iio_enable(&iio, false);

	trying("%s, after the last dma-buf", name);
	check(iio_wait(block.fd, input ? POLLIN : POLLOUT, 10000));
	sleep_ms(500);
	iio_set(&iio, "sampling_frequency", 0);
	transfer_frame(&iio, input);
	iio_close(&iio);
	buffer_destroy(&block);
}

static void adc_in_use(void)
{
	in_use("stream-adc", true);
}

static void dac_in_use(void)
{
	in_use("stream-dac", false);
}

int main(int argc, char **argv)
{
	static void (* const steps[])(void) = { partly_written, first_block, refused, adc_in_use, dac_in_use };

	run_steps(argc, argv, steps, ARRAY_SIZE(steps));
	return 0;
}
