// SPDX-License-Identifier: GPL-2.0-only
/*
 * CANCEL arrives after a signal has ended a LOAD and before the call has returned: the LOAD
 * cannot be continued, and its memory is freed although the context stays open.
 */
#include <pthread.h>
#include <signal.h>

#include "dm.h"
#include "lib.h"

#define CHUNK	MIB(1)
#define LENGTH	(64 * CHUNK)

static pthread_t loader;
static int dev;

static void wait_moved(uint64_t bytes)
{
	while (dio_moved(dev) < bytes)
		sleep_ms(1);
}

/*
 * The signal is seen while the second request runs, and not before the third is in flight, which
 * a slow machine may submit after the first has ended. The third then waits until the device is
 * suspended.
 */
static void *signal_and_cancel(void *arg)
{
	wait_moved(CHUNK);
	sleep_ms(1000);
	check(!pthread_kill(loader, SIGUSR1));
	wait_moved(2 * CHUNK);
	sleep_ms(100);
	expect(dio_call(dev, DMABUF_DIO_IOC_CANCEL, NULL), 0);
	dm_stop();
	dm_go_on();
	return arg;
}

int main(void)
{
	const struct dm_part parts[] = {
		{ .from = 0, .ms = 0 }, { .from = CHUNK, .ms = 3000 },
		{ .from = 2 * CHUNK, .ms = 100000 },
	};
	/* All memory is allocated before the first request. */
	struct dmabuf_dio_load load = {
		.fd_flags = O_RDWR, .length = LENGTH, .gather = LENGTH, .chunk = CHUNK, .depth = 4,
	};
	pthread_t thread;
	uint64_t before;

	if (!dm_delays())
		skip("no delayed disks");
	dm_create(LENGTH);
	dm_delay(parts, 3);
	load.file_fd = file_open(DM_PATH, O_RDONLY | O_DIRECT);
	dev = dio_open();
	loader = pthread_self();
	signal_handled(SIGUSR1, 0);
	before = memory_available();
	check(!pthread_create(&thread, NULL, signal_and_cancel, NULL));
	expect(dio_load(dev, &load), -ECANCELED);
	check(!pthread_join(thread, NULL));
	check(load.done >= 2 * CHUNK && load.done < LENGTH);
	expect_memory_back(before, LENGTH / 4);
	close(load.file_fd);
	dm_remove();
	close(dev);
	return 0;
}
