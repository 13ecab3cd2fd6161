// SPDX-License-Identifier: GPL-2.0-only
/*
 * LOAD leaves the reserve to others, counts loads that run or are paused together, and says in
 * fdinfo what they hold.
 */
#include <signal.h>

#include "lib.h"

#define PARAMETER	"/sys/module/dmabuf_dio/parameters/reserve"

static uint64_t reserve(void)
{
	char text[32];

	check(proc_read(PARAMETER, text, sizeof(text)));
	return strtoull(text, NULL, 10);
}

static int load(int dev, int file, uint64_t length, int *fd)
{
	struct dmabuf_dio_load load = { .file_fd = file, .fd_flags = O_RDWR, .length = length };
	int ret = dio_load(dev, &load);

	*fd = load.dmabuf_fd;
	return ret;
}

static void handler(int number)
{
	(void)number;
}

/* Interrupted after it has allocated something */
static void pause_load(int dev, int file, uint64_t length)
{
	struct dmabuf_dio_load load = {
		.file_fd = file, .fd_flags = O_RDWR, .length = length, .chunk = PAGE, .depth = 1,
	};
	int ms = 10;

	do {
		alarm_every(ms);
		expect(dio_load(dev, &load), -EINTR);
		alarm_every(0);
		ms += ms < 500 ? ms : 0;
	} while (!dio_fdinfo(dev, "held:"));
}

/* So that all but @bytes belong to others */
static void leave(uint64_t bytes)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu",
		 (unsigned long long)(memory_estimated() - bytes));
	proc_write(PARAMETER, text);
}

static void leaves_room(int dev, int file)
{
	int fd;

	trying("LOAD leaves the reserve");
	leave(MIB(192));
	expect(load(dev, file, MIB(256), &fd), -ENOMEM);
	expect(load(dev, file, MIB(128), &fd), 0);
	close(fd);
}

static void together(int dev, int file)
{
	uint64_t length = MIB(128);
	int other = dio_open(), fd;
	char path[64], text[1024];

	trying("a paused load counts");
	leave(MIB(192));
	pause_load(other, file, length);
	expect(dio_fdinfo(other, "loading:"), length);
	check(dio_fdinfo(other, "held:") <= length);
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", other);
	check(proc_read(path, text, sizeof(text)));
	check(strstr(text, "paused:") && strstr(text, "/large\n"));
	expect(load(dev, file, length, &fd), -ENOMEM);

	trying("and does no more when it is cancelled");
	expect(dio_call(other, DMABUF_DIO_IOC_CANCEL, NULL), 0);
	expect(dio_fdinfo(other, "loading:"), 0);
	expect(dio_fdinfo(other, "held:"), 0);
	expect(load(dev, file, length, &fd), 0);
	expect(dio_fdinfo(dev, "loading:"), 0);
	expect(dio_fdinfo(dev, "held:"), 0);
	close(fd);
	close(other);

	trying("or when its context is closed");
	other = dio_open();
	pause_load(other, file, length);
	close(other);
	expect(load(dev, file, length, &fd), 0);
	close(fd);
}

int main(void)
{
	struct sigaction action = { .sa_handler = handler };
	int dev = dio_open(), file;
	char before[32];

	check(!sigaction(SIGALRM, &action, NULL));
	check(reserve() >= MIB(64) && reserve() <= GIB(1));
	snprintf(before, sizeof(before), "%llu", (unsigned long long)reserve());
	file_sparse("large", MIB(256));
	file = file_open("large", O_RDONLY | direct_flag(direct_possible()));
	leaves_room(dev, file);
	together(dev, file);
	proc_write(PARAMETER, before);
	close(file);
	close(dev);
	return 0;
}
