// SPDX-License-Identifier: GPL-2.0-only
/* READ and WRITE wait for the fences that devices have put on the buffer. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include <linux/dma-buf.h>

#include "fence.h"

#define LENGTH	MIB(1)

static int dev;

struct job {
	struct dmabuf_dio_rw rw;
	bool write;
	volatile int ended;
	int ret;
};

static void *run(void *arg)
{
	struct job *job = arg;

	job->ret = job->write ? dio_write(dev, &job->rw) : dio_read(dev, &job->rw);
	if (job->ret)
		job->ret = -errno;
	__atomic_store_n(&job->ended, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void waits(struct buffer *buf, bool write, unsigned int flags, bool expected)
{
	struct job job = { .write = write, .rw = { .length = LENGTH } };
	pthread_t thread;

	trying("%s, %s, %s fence", buffer_names[buf->kind], write ? "WRITE" : "READ",
	       flags == DMA_BUF_SYNC_WRITE ? "write" : "read");
	job.rw.file_fd = file_open("data", O_RDWR);
	memset(buf->map, 0x11, LENGTH);
	fence_add(buf, flags);
	check(!pthread_create(&thread, NULL, run, &job));
	if (expected) {
		sleep_ms(400);
		expect(__atomic_load_n(&job.ended, __ATOMIC_ACQUIRE), false);
	} else {
		check(!pthread_join(thread, NULL));
	}
	if (expected && !write)
		check(buf->map[0] == 0x11 && buf->map[LENGTH - 1] == 0x11);
	if (expected && write) {
		/* WRITE writes the content at the time the fence signals. */
		pattern_fill(buf->map, 0, LENGTH, 3);
	}
	fence_signal();
	if (expected)
		check(!pthread_join(thread, NULL));
	expect(job.ret, 0);
	expect(job.rw.done, LENGTH);
	if (write && expected)
		fd_pattern_check(job.rw.file_fd, 0, LENGTH, 3);
	if (!write)
		pattern_check(buf->map, 0, LENGTH, 1);
	close(job.rw.file_fd);
	file_pattern("data", LENGTH, 1);
}

/* A WRITE runs while a READ waits for a fence, which the WRITE may cause to be signalled. */
static void leaves_turn(struct buffer *buf)
{
	struct job reader = { .rw = { .length = LENGTH } };
	struct job writer = { .write = true, .rw = { .length = LENGTH } };
	pthread_t threads[2];

	trying("%s, WRITE beside a READ that waits", buffer_names[buf->kind]);
	reader.rw.file_fd = file_open("data", O_RDONLY);
	writer.rw.file_fd = file_open("copy", O_RDWR | O_CREAT | O_TRUNC);
	pattern_fill(buf->map, 0, LENGTH, 4);
	fence_add(buf, DMA_BUF_SYNC_READ);
	check(!pthread_create(&threads[0], NULL, run, &reader));
	sleep_ms(200);
	check(!pthread_create(&threads[1], NULL, run, &writer));
	check(!pthread_join(threads[1], NULL));
	expect(writer.ret, 0);
	expect(__atomic_load_n(&reader.ended, __ATOMIC_ACQUIRE), 0);
	fence_signal();
	check(!pthread_join(threads[0], NULL));
	expect(reader.ret, 0);
	fd_pattern_check(writer.rw.file_fd, 0, LENGTH, 4);
	pattern_check(buf->map, 0, LENGTH, 1);
	close(reader.rw.file_fd);
	close(writer.rw.file_fd);
}

/* A device adds each fence before it signals the previous one. */
static void queue(struct buffer *buf)
{
	struct job reader = { .rw = { .length = LENGTH } };
	unsigned int rounds;
	pthread_t thread;
	bool ended;

	/* With CONFIG_DEBUG_MUTEXES each fence makes a new list, and the kernel's wait restarts. */
	if (strstr(guest_kernel(), "debug"))
		return;
	trying("%s, READ beside fences that never end", buffer_names[buf->kind]);
	reader.rw.file_fd = file_open("data", O_RDONLY);
	fence_add(buf, DMA_BUF_SYNC_WRITE);
	check(!pthread_create(&thread, NULL, run, &reader));
	for (rounds = 0; rounds < 5000; rounds++) {
		ended = __atomic_load_n(&reader.ended, __ATOMIC_ACQUIRE);
		if (ended)
			break;
		fence_add(buf, DMA_BUF_SYNC_WRITE);
		fence_signal();
		sleep_ms(1);
	}
	fence_signal();
	check(!pthread_join(thread, NULL));
	check(ended);
	expect(reader.ret, 0);
	close(reader.rw.file_fd);
}

static void interrupted(struct buffer *buf)
{
	struct dmabuf_dio_rw rw = { .length = LENGTH };
	pid_t pid;

	trying("%s, interrupted", buffer_names[buf->kind]);
	fence_add(buf, DMA_BUF_SYNC_WRITE);
	pid = spawn();
	if (!pid) {
		signal_handled(SIGALRM, 0);
		rw.file_fd = file_open("data", O_RDONLY);
		alarm_every(1000);
		expect(dio_read(dev, &rw), -EINTR);
		alarm_every(0);
		expect(rw.done, 0);
		exit(0);
	}
	reap(pid);
	pid = spawn();
	if (!pid) {
		rw.file_fd = file_open("data", O_RDONLY);
		dio_read(dev, &rw);
		exit(0);
	}
	sleep_ms(300);
	kill_child(pid);
	fence_signal();
	rw.file_fd = file_open("data", O_RDONLY);
	expect(dio_read(dev, &rw), 0);
	pattern_check(buf->map, 0, LENGTH, 1);
	close(rw.file_fd);
}

static void fences(struct buffer *buf)
{
	dev = dio_context(buf);
	waits(buf, false, DMA_BUF_SYNC_WRITE, true);
	waits(buf, false, DMA_BUF_SYNC_READ, true);
	waits(buf, true, DMA_BUF_SYNC_WRITE, true);
	/* Others may read concurrently with WRITE. */
	waits(buf, true, DMA_BUF_SYNC_READ, false);
	leaves_turn(buf);
	queue(buf);
	interrupted(buf);
	close(dev);
}

int main(void)
{
	fence_prepare();
	file_pattern("data", LENGTH, 1);
	for_each_kind(LENGTH, fences);
	return 0;
}
