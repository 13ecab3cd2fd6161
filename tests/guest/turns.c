// SPDX-License-Identifier: GPL-2.0-only
/*
 * Transfers on a dma-buf are serialised, including READ by another context and, on kernels
 * that support it, copy_file_range(). Any signal ends the wait. timeout=300
 */
#include <pthread.h>
#include <signal.h>

#include "lib.h"

#define LENGTH	MIB(8)

struct slow_read {
	const struct buffer *buf;
	volatile int begun;
	volatile int ended;
};

/* A page at a time */
static void *slow_read(void *arg)
{
	struct slow_read *slow = arg;
	struct dmabuf_dio_rw rw = {
		.file_fd = file_open("data", O_RDONLY | direct_flag(direct_possible())),
		.length = LENGTH, .chunk = PAGE, .depth = 1,
	};
	int dev = dio_context(slow->buf), ret;

	__atomic_store_n(&slow->begun, 1, __ATOMIC_RELEASE);
	/* The other thread handles the signals. */
	do {
		ret = dio_read(dev, &rw);
		rw.file_offset += rw.done;
		rw.buf_offset += rw.done;
		rw.length -= rw.done;
	} while (ret == -EINTR);
	__atomic_store_n(&slow->ended, 1, __ATOMIC_RELEASE);
	expect(ret, 0);
	close(dev);
	close(rw.file_fd);
	return NULL;
}

/* Another transfer of a page; 0 or -errno */
static int by_read(const struct buffer *buf, int file)
{
	struct dmabuf_dio_rw rw = { .file_fd = file, .length = PAGE };
	int dev = dio_context(buf), ret = dio_read(dev, &rw);

	close(dev);
	return ret;
}

static int by_copy(const struct buffer *buf, int file)
{
	off_t from = 0, to = 0;

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
	struct slow_read slow = { .buf = buf };
	int file = file_open("data", O_RDWR);
	sigset_t alarm_only, before;
	pthread_t thread;

	check(!sigaction(SIGALRM, &action, NULL));
	sigemptyset(&alarm_only);
	sigaddset(&alarm_only, SIGALRM);
	check(!pthread_sigmask(SIG_BLOCK, &alarm_only, &before));
	check(!pthread_create(&thread, NULL, slow_read, &slow));
	check(!pthread_sigmask(SIG_SETMASK, &before, NULL));
	while (!__atomic_load_n(&slow.begun, __ATOMIC_ACQUIRE))
		sleep_ms(1);
	sleep_ms(50);

	ualarm(100 * 1000, 0);
	expect(transfer(buf, file), -EINTR);
	cancelled(buf, file);
	expect(__atomic_load_n(&slow.ended, __ATOMIC_ACQUIRE), 0);

	expect(transfer(buf, file), 0);
	/* The other call was over, but its thread may not have run since. */
	sleep_ms(50);
	expect(__atomic_load_n(&slow.ended, __ATOMIC_ACQUIRE), 1);
	check(!pthread_join(thread, NULL));
	pattern_check(buf->map, 0, LENGTH, 1);
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
	file_pattern("data", LENGTH, 1);
	for_each_kind(LENGTH, turns);
	return 0;
}
