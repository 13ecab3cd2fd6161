// SPDX-License-Identifier: GPL-2.0-only
/*
 * LOAD leaves the reserve to others, counts loads that run or are paused together, and says in
 * fdinfo what they hold. timeout=300
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>

#include "lib.h"

static uint64_t reserve(void)
{
	char text[32];

	check(proc_read("/sys/module/dmabuf_dio/parameters/reserve", text, sizeof(text)));
	return strtoull(text, NULL, 10);
}

static uint64_t in_fdinfo(int dev, const char *name)
{
	char path[64], text[1024], *at;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", dev);
	check(proc_read(path, text, sizeof(text)));
	at = strstr(text, name);
	return at ? strtoull(at + strlen(name), NULL, 10) : 0;
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
	struct itimerval timer = {};
	struct dmabuf_dio_load load = {
		.file_fd = file, .fd_flags = O_RDWR, .length = length, .chunk = PAGE, .depth = 1,
	};
	int ms = 10;

	do {
		timer.it_value.tv_usec = ms * 1000;
		check(!setitimer(ITIMER_REAL, &timer, NULL));
		expect(dio_load(dev, &load), -EINTR);
		ms += ms < 500 ? ms : 0;
	} while (!in_fdinfo(dev, "held:\t"));
}

/* LOAD takes nearly all that it may; whoever grows by less than the reserve is not killed. */
static void leaves_room(int dev, int file)
{
	uint64_t available = memory_estimated(), grow = reserve() / 2;
	uint64_t length = (available - reserve() - MIB(32)) & -PAGE;
	char *map;
	pid_t pid;
	int fd;

	trying("%llu of %llu MiB", (unsigned long long)(length >> 20),
	       (unsigned long long)(available >> 20));
	expect(load(dev, file, available - reserve() / 4, &fd), -ENOMEM);
	expect(load(dev, file, length, &fd), 0);
	pid = spawn();
	if (!pid) {
		map = mmap(NULL, grow, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		check(map != MAP_FAILED);
		memset(map, 1, grow);
		exit(0);
	}
	reap(pid);
	close(fd);
}

static void together(int dev, int file)
{
	uint64_t length = (memory_estimated() - reserve()) / 10 * 7 & -PAGE;
	int other = dio_open(), fd;
	char path[64], text[1024];

	trying("a paused load counts");
	check(length > MIB(16));
	pause_load(other, file, length);
	expect(in_fdinfo(other, "loading:\t"), length);
	check(in_fdinfo(other, "held:\t") <= length);
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", other);
	check(proc_read(path, text, sizeof(text)));
	check(strstr(text, "paused:\t") && strstr(text, "/large\n"));
	expect(load(dev, file, length, &fd), -ENOMEM);

	trying("and does no more when it is cancelled");
	expect(dio_call(other, DMABUF_DIO_IOC_CANCEL, NULL), 0);
	expect(in_fdinfo(other, "loading:\t"), 0);
	expect(in_fdinfo(other, "held:\t"), 0);
	expect(load(dev, file, length, &fd), 0);
	expect(in_fdinfo(dev, "loading:\t"), 0);
	expect(in_fdinfo(dev, "held:\t"), 0);
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

	check(!sigaction(SIGALRM, &action, NULL));
	check(reserve() >= MIB(64) && reserve() <= GIB(1));
	file_sparse("large", memory_total());
	file = file_open("large", O_RDONLY | direct_flag(direct_possible()));
	leaves_room(dev, file);
	together(dev, file);
	close(file);
	close(dev);
	return 0;
}
