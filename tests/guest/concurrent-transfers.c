// SPDX-License-Identifier: GPL-2.0-only
/*
 * Other calls use the buffer while a READ waits for its disk. If a device that
 * needs synchronisation is attached, calls wait for earlier calls. On kernels
 * that support copy_file_range() for dma-bufs, calls and copies wait for each
 * other if they have a page in common. Any signal ends the wait.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>

#include "edu_importer/edu_importer.h"
#include "dm.h"
#include "lib.h"

#define LENGTH	MIB(1)
#define CHUNK	(LENGTH / 2)
#define DEVICE	"/dev/shadow_importer"

struct slow_read {
	int dev;
	volatile int ended;
};

/* Two requests, of which the second waits for the disk */
static void *slow_read(void *arg)
{
	struct slow_read *slow = arg;
	struct dmabuf_dio_rw rw = {
		.file_fd = file_open(DM_PATH, O_RDONLY | direct_flag(true)),
		.length = LENGTH, .chunk = CHUNK, .depth = 1,
	};

	expect(dio_read(slow->dev, &rw), 0);
	expect(rw.done, LENGTH);
	__atomic_store_n(&slow->ended, 1, __ATOMIC_RELEASE);
	close(rw.file_fd);
	return NULL;
}

/* Lets the second request go, some time later. */
static void *wake(void *arg)
{
	sleep_ms(300);
	dm_stop();
	dm_go_on();
	return arg;
}

/* Reads a page to where the second request stores; returns 0 or -errno. */
static int by_read(const struct buffer *buf, int file)
{
	struct dmabuf_dio_rw rw = { .file_fd = file, .buf_offset = CHUNK, .length = PAGE };
	int dev = dio_context(buf), ret = dio_read(dev, &rw);

	close(dev);
	return ret;
}

static int by_copy(const struct buffer *buf, int file)
{
	off_t from = 0, to = CHUNK;

	return copy_file_range(file, &from, buf->fd, &to, PAGE, 0) < 0 ? -errno : 0;
}

/* The call does not even wait for the lock. */
static void cancelled(const struct buffer *buf, int file)
{
	struct dmabuf_dio_rw rw = { .file_fd = file, .length = PAGE };
	int dev = dio_context(buf);

	expect(dio_call(dev, DMABUF_DIO_IOC_CANCEL, NULL), 0);
	expect(dio_read(dev, &rw), -ECANCELED);
	expect(dio_write(dev, &rw), -ECANCELED);
	close(dev);
}

static void start(pthread_t *thread, struct slow_read *slow)
{
	check(!pthread_create(thread, NULL, slow_read, slow));
	while (dio_moved(slow->dev) < CHUNK)
		sleep_ms(1);
}

static void waits(struct buffer *buf, int (*transfer)(const struct buffer *buf, int file))
{
	struct slow_read slow = { .dev = dio_context(buf) };
	int file = file_open("data", O_RDWR);
	sigset_t alarm_only, before;
	pthread_t thread, waker;

	buffer_pattern(buf, 2);
	signal_handled(SIGALRM, 0);
	sigemptyset(&alarm_only);
	sigaddset(&alarm_only, SIGALRM);
	/* This thread handles the signals. */
	check(!pthread_sigmask(SIG_BLOCK, &alarm_only, &before));
	start(&thread, &slow);
	check(!pthread_sigmask(SIG_SETMASK, &before, NULL));

	alarm_every(100);
	expect(transfer(buf, file), -EINTR);
	alarm_every(0);
	cancelled(buf, file);
	expect(__atomic_load_n(&slow.ended, __ATOMIC_ACQUIRE), 0);

	check(!pthread_create(&waker, NULL, wake, NULL));
	expect(transfer(buf, file), 0);
	check(!pthread_join(waker, NULL));
	check(!pthread_join(thread, NULL));
	/* The page was stored after the second request. */
	buffer_begin(buf);
	pattern_check(buf->map, 0, CHUNK, 1);
	pattern_check(buf->map + CHUNK, 0, PAGE, 7);
	pattern_check(buf->map + CHUNK + PAGE, CHUNK + PAGE, CHUNK - PAGE, 1);
	buffer_end(buf);
	close(slow.dev);
	close(file);
}

/* READ and WRITE work in the part that the slow READ has stored and in the other. */
static void goes_on(struct buffer *buf)
{
	struct slow_read slow = { .dev = dio_context(buf) };
	int file = file_open("data", O_RDWR), copy = file_open("copy", O_RDWR | O_CREAT | O_TRUNC);
	struct dmabuf_dio_rw rw = { .file_fd = copy, .length = CHUNK };
	int dev = dio_context(buf);
	pthread_t thread, waker;

	trying("%s, beside a READ that does not end", buffer_names[buf->kind]);
	buffer_pattern(buf, 2);
	start(&thread, &slow);
	expect(by_read(buf, file), 0);
	expect(dio_write(dev, &rw), 0);
	expect(rw.done, CHUNK);
	fd_pattern_check(copy, 0, CHUNK, 1);
	pattern_check(buf->map + CHUNK, 0, PAGE, 7);
	expect(__atomic_load_n(&slow.ended, __ATOMIC_ACQUIRE), 0);

	check(!pthread_create(&waker, NULL, wake, NULL));
	check(!pthread_join(waker, NULL));
	check(!pthread_join(thread, NULL));
	pattern_check(buf->map, 0, LENGTH, 1);
	close(slow.dev);
	close(dev);
	close(copy);
	close(file);
}

static int import(const struct buffer *buf)
{
	int device = open(DEVICE, O_RDWR | O_CLOEXEC);

	check(device >= 0 && !ioctl(device, EDU_IMPORT, buf->fd));
	return device;
}

static void *read_page(void *arg)
{
	int file = file_open("data", O_RDONLY);

	expect(by_read(arg, file), 0);
	close(file);
	return arg;
}

/* A call that waits because of a device continues when the device is detached. */
static void device_goes(struct buffer *buf)
{
	struct slow_read slow = { .dev = dio_context(buf) };
	pthread_t thread, waker, waiter;
	int device = import(buf);

	trying("%s, the device goes", buffer_names[buf->kind]);
	start(&thread, &slow);
	check(!pthread_create(&waiter, NULL, read_page, buf));
	sleep_ms(300);
	close(device);
	check(!pthread_join(waiter, NULL));
	expect(__atomic_load_n(&slow.ended, __ATOMIC_ACQUIRE), 0);

	check(!pthread_create(&waker, NULL, wake, NULL));
	check(!pthread_join(waker, NULL));
	check(!pthread_join(thread, NULL));
	close(slow.dev);
}

static void turns(struct buffer *buf)
{
	int device;

	if (guest_with_series() && buffer_synced(buf)) {
		trying("%s, READ", buffer_names[buf->kind]);
		waits(buf, by_read);
		trying("%s, copy_file_range", buffer_names[buf->kind]);
		waits(buf, by_copy);
		return;
	}
	goes_on(buf);
	/* READ is refused where such a device is not synchronised. */
	if (access(DEVICE, F_OK) || !buffer_synced(buf))
		return;
	trying("%s, with a device that is not coherent", buffer_names[buf->kind]);
	device = import(buf);
	waits(buf, by_read);
	close(device);
	device_goes(buf);
}

int main(void)
{
	const struct dm_part parts[] = { { .from = 0 }, { .from = CHUNK, .ms = 100000 } };

	if (!dm_delays())
		skip("no delayed disks");
	file_pattern("data", PAGE, 7);
	file_pattern(raw_disk(), LENGTH, 1);
	dm_create(LENGTH);
	dm_delay(parts, ARRAY_SIZE(parts));
	for_each_kind(LENGTH, turns);
	dm_remove();
	return 0;
}
