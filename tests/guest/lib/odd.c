// SPDX-License-Identifier: GPL-2.0-only
/*
 * Buffers of kernel/sim/odd_exporter, and the module's response to them
 */
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "odd.h"

static int odd_device(void)
{
	static int dev;

	if (!dev)
		dev = open(ODD_DEVICE, O_RDWR | O_CLOEXEC);
	if (dev < 0)
		skip("no %s", ODD_DEVICE);
	return dev;
}

static int odd_call(unsigned long request, unsigned long arg)
{
	int ret = ioctl(odd_device(), request, arg);

	if (ret < 0)
		fail("%s: %s", ODD_DEVICE, strerror(errno));
	return ret;
}

int odd_buffer(size_t length, unsigned int oddities)
{
	struct odd_create create = { .pages = length / PAGE, .oddities = oddities };

	return odd_call(ODD_CREATE, (uintptr_t)&create);
}

int odd_try(size_t length, unsigned int oddities)
{
	struct odd_create create = { .pages = length / PAGE, .oddities = oddities };
	int ret = ioctl(odd_device(), ODD_CREATE, &create);

	return ret < 0 ? -errno : ret;
}

void odd_hold(int fd)
{
	odd_call(ODD_HOLD, fd);
}

int odd_let_go(void)
{
	return odd_call(ODD_LET_GO, 0);
}

void odd_lock(int fd)
{
	odd_call(ODD_LOCK, fd);
}

unsigned int odd_vmaps(int fd)
{
	return odd_call(ODD_VMAPS, fd);
}

int odd_touched(int fd)
{
	int odd = open(ODD_DEVICE, O_RDWR | O_CLOEXEC), ret = ioctl(odd, ODD_TOUCHED, fd);

	if (ret < 0)
		expect(errno, EOPNOTSUPP);
	close(odd);
	return ret;
}

void odd_move(int fd)
{
	odd_call(ODD_MOVE, fd);
}

void odd_free(int fd)
{
	odd_call(ODD_FREE, fd);
}

void expect_refused_at(const char *file, int line, int fd, unsigned int reason)
{
	struct dmabuf_dio_attach attach = { .dmabuf_fd = fd };
	struct dmabuf_dio_rw rw = { .file_fd = fd, .length = PAGE };
	int dev = dio_open();

	expect_at(file, line, "ATTACH", dio_call(dev, DMABUF_DIO_IOC_ATTACH, &attach), -EOPNOTSUPP);
	expect_at(file, line, "refusal", attach.refusal, reason);
	expect_at(file, line, "READ", dio_read(dev, &rw), -ENOTCONN);
	close(dev);
}

static void reload(const char *parameters)
{
	expect(module_remove("dmabuf_dio"), 0);
	expect(module_insert("dmabuf_dio", parameters), 0);
}

void with_exporters(const char *names, void (*test)(void))
{
	char parameters[256], text[256];
	int status;
	pid_t pid;

	snprintf(parameters, sizeof(parameters), "exporters=%s", names);
	reload(parameters);
	/* In a child, so that the module is restored however the test ends. */
	pid = spawn();
	if (!pid) {
		trying("%s", parameters);
		check(proc_read("/sys/module/dmabuf_dio/parameters/exporters", text, sizeof(text)));
		check(!strncmp(text, names, strlen(names)) && !strcmp(text + strlen(names), "\n"));
		test();
		exit(0);
	}
	check(waitpid(pid, &status, 0) == pid);
	reload("");
	if (status)
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}
