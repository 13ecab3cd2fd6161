// SPDX-License-Identifier: GPL-2.0-only
/*
 * LOAD leaves the reserve to others, counts loads that run or are paused together, and says in
 * fdinfo what they hold.
 */
#include <signal.h>
#include <sys/wait.h>

#include "lib.h"

#define PARAMETER	"/sys/module/dmabuf_dio/parameters/reserve"

static uint64_t reserve(void)
{
	char text[32];

	check(proc_read(PARAMETER, text, sizeof(text)));
	return strtoull(text, NULL, 10);
}

static void set_reserve(uint64_t bytes)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
	proc_write(PARAMETER, text);
}

/* The parameter's documented default */
static uint64_t sane(void)
{
	uint64_t total = memory_total(), bytes = total / 16;

	bytes = bytes < MIB(128) ? MIB(128) : bytes > GIB(1) ? GIB(1) : bytes;
	return bytes < total / 4 ? bytes : total / 4;
}

static int load(int dev, int file, uint64_t length, int *fd)
{
	struct dmabuf_dio_load load = { .file_fd = file, .fd_flags = O_RDWR, .length = length };
	int ret = dio_load(dev, &load);

	*fd = load.dmabuf_fd;
	return ret;
}

/* Leaves a LOAD interrupted after it has allocated something. */
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
		ms += ms < 80 ? ms : 0;
	} while (!dio_fdinfo(dev, "held:"));
}

/* Sets the reserve so that LOADs may use @bytes. */
static void leave(uint64_t bytes)
{
	set_reserve(memory_estimated() - bytes);
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

/* Other programs use up the memory promised to a load: it ends, and frees its pages. */
static void meanwhile(int dev, int file)
{
	uint64_t before = memory_available();
	int fd;

	trying("a load goes on while half of the reserve is left");
	leave(MIB(192));
	pause_load(dev, file, MIB(128));
	set_reserve(memory_estimated());
	expect(load(dev, file, MIB(128), &fd), 0);
	close(fd);

	trying("and ends when less is left");
	leave(MIB(192));
	pause_load(dev, file, MIB(128));
	set_reserve(2 * memory_estimated() + MIB(128));
	/* The reserve is looked at before each 4 MiB. */
	check(dio_fdinfo(dev, "held:") <= MIB(124));
	expect(load(dev, file, MIB(128), &fd), -ENOMEM);
	expect(dio_fdinfo(dev, "loading:"), 0);
	expect(dio_fdinfo(dev, "held:"), 0);
	expect_memory_back(before, MIB(16));
}

static void all(void)
{
	int dev = dio_open(), file;

	signal_handled(SIGALRM, 0);
	file_sparse("large", MIB(256));
	file = file_open("large", O_RDONLY | direct_flag(direct_possible()));
	leaves_room(dev, file);
	together(dev, file);
	meanwhile(dev, file);
	close(file);
	close(dev);
}

/* The steps run in a child, so that the parameter is restored in any case. */
int main(void)
{
	uint64_t before = reserve();
	int status;
	pid_t pid;

	need_memory(MIB(512));
	expect(before, sane());
	pid = spawn();
	if (!pid) {
		all();
		exit(0);
	}
	check(waitpid(pid, &status, 0) == pid);
	set_reserve(before);
	check(WIFEXITED(status));
	return WEXITSTATUS(status);
}
