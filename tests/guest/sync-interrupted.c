// SPDX-License-Identifier: GPL-2.0-only
/*
 * With the series the heaps and udmabuf lock the reservation to begin and to end CPU access. While somebody else
 * holds that lock, a signal ends the wait of the begin, and of udmabuf's end; the end of the heaps waits.
 * timeout=120
 */
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include <linux/dma-buf.h>

#include "odd.h"

#define LENGTH	KIB(64)

/* Locks the reservation in another process, until unlock(). */
static pid_t lock(int fd)
{
	pid_t pid = spawn();

	if (!pid) {
		signal_handled(SIGUSR1, 0);
		odd_lock(fd);
		exit(0);
	}
	wait_for_state(pid, 'S');
	return pid;
}

static void unlock(pid_t pid)
{
	check(!kill(pid, SIGUSR1));
	reap(pid);
}

/* One attempt with a signal every 300 ms; 0 or -errno */
static int sync_alarmed(int fd, uint64_t flags)
{
	struct dma_buf_sync sync = { .flags = flags | DMA_BUF_SYNC_RW };
	int ret;

	alarm_every(300);
	ret = ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync) ? -errno : 0;
	alarm_every(0);
	return ret;
}

static void begin(int fd)
{
	pid_t holder = lock(fd);

	expect(sync_alarmed(fd, DMA_BUF_SYNC_START), -EINTR);
	expect(waitpid(holder, NULL, WNOHANG), 0);
	unlock(holder);
	expect(sync_alarmed(fd, DMA_BUF_SYNC_START), 0);
	expect(sync_alarmed(fd, DMA_BUF_SYNC_END), 0);
}

static void killed(int fd)
{
	pid_t holder = lock(fd), pid = spawn();

	if (!pid) {
		buffer_sync(fd, DMA_BUF_SYNC_START | DMA_BUF_SYNC_RW);
		exit(0);
	}
	wait_for_state(pid, 'S');
	kill_child(pid);
	expect(waitpid(holder, NULL, WNOHANG), 0);
	unlock(holder);
}

/* Data would be lost if the access were not ended again: the heaps wait, udmabuf returns an error. */
static void end(int fd, bool waits)
{
	pid_t holder, pid;

	expect(sync_alarmed(fd, DMA_BUF_SYNC_START), 0);
	holder = lock(fd);
	if (!waits) {
		expect(sync_alarmed(fd, DMA_BUF_SYNC_END), -EINTR);
		unlock(holder);
		expect(sync_alarmed(fd, DMA_BUF_SYNC_END), 0);
		return;
	}
	pid = spawn();
	if (!pid) {
		expect(sync_alarmed(fd, DMA_BUF_SYNC_END), 0);
		exit(0);
	}
	wait_for_state(pid, 'D');
	sleep_ms(700);		/* signals came meanwhile */
	expect(waitpid(pid, NULL, WNOHANG), 0);
	unlock(holder);
	reap(pid);
}

int main(void)
{
	static const enum buffer_kind kinds[] = { BUFFER_HEAP, BUFFER_CMA, BUFFER_UDMABUF };
	unsigned int i, tested = 0;
	struct buffer buf;

	if (!guest_with_series())
		skip("this kernel's heaps do not lock the reservation");
	signal_handled(SIGALRM, 0);
	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (buffer_try(&buf, kinds[i], LENGTH))
			continue;
		trying("%s, begin", buffer_names[buf.kind]);
		begin(buf.fd);
		trying("%s, killed", buffer_names[buf.kind]);
		killed(buf.fd);
		trying("%s, end", buffer_names[buf.kind]);
		end(buf.fd, buf.kind != BUFFER_UDMABUF);
		buffer_destroy(&buf);
		tested++;
	}
	check(tested);
	return 0;
}
