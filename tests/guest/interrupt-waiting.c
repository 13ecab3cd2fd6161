// SPDX-License-Identifier: GPL-2.0-only
/*
 * A call that waits for another transfer on the dma-buf can be stopped, interrupted and killed
 * without delay. It runs when the other has ended. timeout=200
 */
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "edu_importer/edu_importer.h"
#include "slow.h"

#define DEVICE	"/dev/shadow_importer"

static struct slow slow;

/* Reads the first page by a second context. */
static int read_page(struct dmabuf_dio_rw *rw)
{
	int dev = dio_context(&slow.buf), ret;

	*rw = (struct dmabuf_dio_rw){ .file_fd = file_open("page", O_RDONLY), .length = PAGE };
	ret = dio_read(dev, rw);
	close(rw->file_fd);
	close(dev);
	return ret;
}

/* A signal every 100 ms; @flags decides whether the call is restarted. */
static int interrupted(int flags, struct dmabuf_dio_rw *rw)
{
	int ret;

	signal_handled(SIGALRM, flags);
	alarm_every(100);
	ret = read_page(rw);
	alarm_every(0);
	return ret;
}

static void child_waits(void)
{
	struct dmabuf_dio_rw rw;

	expect(read_page(&rw), 0);
	expect(rw.done, PAGE);
	exit(0);
}

/* The running transfer is not over yet, so the others really waited. */
static void still(uint64_t limit)
{
	if (dio_moved(slow.dev) < limit)
		return;
	if (slow.way == SLOW_DISK)
		fail("the turn was over too early");
	skip("this disk is too fast");
}

int main(void)
{
	struct dmabuf_dio_rw rw;
	pid_t holder, waiter, helper;
	uint64_t length;
	int status, device = -1;

	file_pattern("page", PAGE, 7);
	if (!slow_begin(&slow, SLOW_WRITE, SLOW_DISK))
		check(slow_begin(&slow, SLOW_WRITE,
				 direct_possible() ? SLOW_DIRECT : SLOW_BUFFERED));
	slow.depth = 1;
	length = slow.length - PAGE;
	/* Others wait for a page in common, or where a device needs synchronisation. */
	if (!guest_with_series()) {
		device = open(DEVICE, O_RDWR | O_CLOEXEC);
		if (device < 0)
			skip("no %s", DEVICE);
		check(!ioctl(device, EDU_IMPORT, slow.buf.fd));
	}
	holder = spawn();
	if (!holder) {
		slow_work(&slow);
		exit(0);
	}
	slow_wait(&slow);

	trying("a handler that does not restart");
	expect(interrupted(0, &rw), -EINTR);
	expect(rw.done, 0);
	still(length);

	trying("SIGKILL");
	waiter = spawn();
	if (!waiter)
		child_waits();
	sleep_ms(100);
	kill_child(waiter);
	still(length);

	trying("SIGSTOP");
	waiter = spawn();
	if (!waiter)
		child_waits();
	sleep_ms(100);
	check(!kill(waiter, SIGSTOP));
	wait_for_state(waiter, 'T');
	still(length);
	check(!kill(waiter, SIGCONT));
	check(!waitpid(waiter, &status, WNOHANG));
	still(length);

	trying("a handler that restarts");
	helper = spawn();
	if (!helper) {
		sleep_ms(500);
		if (slow.way == SLOW_DISK)
			still(length);
		slow_hurry(&slow);
		exit(0);
	}
	expect(interrupted(SA_RESTART, &rw), 0);
	expect(rw.done, PAGE);
	reap(helper);
	reap(waiter);
	reap(holder);
	if (device >= 0)
		close(device);
	pattern_check(slow.buf.map, 0, PAGE, 7);
	pattern_check(slow.buf.map + PAGE, PAGE, slow.length - PAGE, 2);
	slow_end(&slow);
	return 0;
}
