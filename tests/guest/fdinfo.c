// SPDX-License-Identifier: GPL-2.0-only
/* A LOADed dma-buf describes itself in its fdinfo and accepts a name. */
#include <sys/ioctl.h>

#include <linux/dma-buf.h>

#include "lib.h"

int main(void)
{
	struct dmabuf_dio_load load = { .fd_flags = O_RDWR, .length = 12345 };
	struct dmabuf_dio_rw rw = { .length = 12345 };
	char path[64], text[1024], size[32];
	int dev = dio_open();

	snprintf(size, sizeof(size), "size:\t%llu\n",
		 (unsigned long long)((12345 + PAGE - 1) & -PAGE));
	file_pattern("data", 12345, 1);
	rw.file_fd = load.file_fd = file_open("data", O_RDONLY);
	expect(dio_load(dev, &load), 0);
	check(!ioctl(load.dmabuf_fd, DMA_BUF_SET_NAME_B, (uintptr_t)"weights"));

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", load.dmabuf_fd);
	check(proc_read(path, text, sizeof(text)));
	check(strstr(text, size));
	check(strstr(text, "exp_name:\tdmabuf_dio\n"));
	check(strstr(text, "name:\tweights\n"));

	/* The context counts the bytes it has transferred. */
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", dev);
	check(proc_read(path, text, sizeof(text)));
	check(strstr(text, "moved:\t12345\n"));
	check(!strstr(text, "exp_name"));

	expect(dio_attach(dev, load.dmabuf_fd), 0);
	expect(dio_read(dev, &rw), 0);
	check(proc_read(path, text, sizeof(text)));
	check(strstr(text, "moved:\t24690\n"));
	check(strstr(text, size));
	check(strstr(text, "exp_name:\tdmabuf_dio\n"));
	check(strstr(text, "segments:\t"));
	return 0;
}
