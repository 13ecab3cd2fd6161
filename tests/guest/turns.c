// SPDX-License-Identifier: GPL-2.0-only
/*
 * Transfers on a dma-buf are serialised, including READ by another context and, on kernels
 * that support it, copy_file_range(). Any signal ends the wait.
 */
#include <pthread.h>
#include <signal.h>

#include "dm.h"
#include "lib.h"

#define LENGTH	MIB(1)
#define CHUNK	(LENGTH / 2)

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

/* A page, to where the second request stores; 0 or -errno */
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

static void handler(int number)
{
	(void)number;
}

static void beside(struct buffer *buf, int (*transfer)(const struct buffer *buf, int file))
{
	struct sigaction action = { .sa_handler = handler };
	struct slow_read slow = { .dev = dio_context(buf) };
	int file = file_open("data", O_RDWR);
	sigset_t alarm_only, before;
	pthread_t thread, waker;

	buffer_pattern(buf, 2);
	check(!sigaction(SIGALRM, &action, NULL));
	sigemptyset(&alarm_only);
	sigaddset(&alarm_only, SIGALRM);
	/* This thread handles the signals. */
	check(!pthread_sigmask(SIG_BLOCK, &alarm_only, &before));
	check(!pthread_create(&thread, NULL, slow_read, &slow));
	check(!pthread_sigmask(SIG_SETMASK, &before, NULL));
	while (dio_moved(slow.dev) < CHUNK)
		sleep_ms(1);

	ualarm(100 * 1000, 0);
	expect(transfer(buf, file), -EINTR);
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

static void turns(struct buffer *buf)
{
	const char *kernel = getenv("DMABUF_DIO_KERNEL");

	trying("%s, READ", buffer_names[buf->kind]);
	beside(buf, by_read);
	if (!kernel || !strstr(kernel, "series"))
		return;
	trying("%s, copy_file_range", buffer_names[buf->kind]);
	beside(buf, by_copy);
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
