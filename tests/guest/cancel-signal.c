// SPDX-License-Identifier: GPL-2.0-only
/*
 * A signal ends a LOAD, and CANCEL comes before it has returned: nobody can go on with it,
 * and its memory is free, though the context lives.
 */
#include <pthread.h>
#include <signal.h>

#include "dm.h"
#include "lib.h"

#define LENGTH	MIB(64)

static pthread_t loader;
static int dev;

static void nothing(int number)
{
	(void)number;
}

/* While the requests that the signal finds in flight take a second each */
static void *signal_and_cancel(void *arg)
{
	sleep_ms(200);
	check(!pthread_kill(loader, SIGUSR1));
	sleep_ms(200);
	expect(dio_call(dev, DMABUF_DIO_IOC_CANCEL, NULL), 0);
	return arg;
}

int main(void)
{
	struct sigaction action = { .sa_handler = nothing };
	/* All memory is allocated before the first request. */
	struct dmabuf_dio_load load = {
		.fd_flags = O_RDWR, .length = LENGTH, .gather = LENGTH, .chunk = MIB(1), .depth = 4,
	};
	pthread_t thread;
	uint64_t before;

	if (!dm_delays())
		skip("no delayed disks");
	dm_create(LENGTH);
	dm_reload("delay %s 0 1000", raw_disk());
	load.file_fd = file_open(DM_PATH, O_RDONLY | O_DIRECT);
	dev = dio_open();
	loader = pthread_self();
	check(!sigaction(SIGUSR1, &action, NULL));
	before = memory_available();
	check(!pthread_create(&thread, NULL, signal_and_cancel, NULL));
	expect(dio_load(dev, &load), -ECANCELED);
	check(!pthread_join(thread, NULL));
	check(load.done < LENGTH);
	expect_memory_back(before, LENGTH / 4);
	close(load.file_fd);
	dm_remove();
	close(dev);
	return 0;
}
