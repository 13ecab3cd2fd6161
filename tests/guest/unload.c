// SPDX-License-Identifier: GPL-2.0-only
/* The module cannot be unloaded while in use, can be otherwise, and accepts parameters. */
#include "lib.h"

#define NAME	"dmabuf_dio"

static void reload(const char *parameters)
{
	int i, ret;

	for (i = 0; i < 100 && module_users(NAME); i++)
		sleep_ms(50);
	expect(module_users(NAME), 0);
	ret = module_remove(NAME);
	expect(ret, 0);
	check(access(DMABUF_DIO_DEVICE, F_OK));
	expect(module_insert(NAME, parameters), 0);
}

static struct dmabuf_dio_info info(void)
{
	struct dmabuf_dio_info info = {};
	int dev = dio_open();

	expect(dio_call(dev, DMABUF_DIO_IOC_INFO, &info), 0);
	close(dev);
	return info;
}

/* Both calls with the default parameters */
static void works(int error)
{
	struct dmabuf_dio_rw rw = { .length = MIB(2) };
	struct dmabuf_dio_load load = { .fd_flags = O_RDWR, .length = MIB(2) };
	int dev = dio_open();

	load.file_fd = rw.file_fd = file_open("data", O_RDONLY);
	expect(dio_load(dev, &load), error);
	if (!error) {
		unsigned char *map = map_dmabuf(load.dmabuf_fd, MIB(2), 1);

		pattern_check(map, 0, MIB(2), 1);
		expect(dio_attach(dev, load.dmabuf_fd), 0);
		expect(dio_read(dev, &rw), 0);
		expect(rw.done, MIB(2));
		pattern_check(map, 0, MIB(2), 1);
		unmap(map, MIB(2));
		close(load.dmabuf_fd);
	} else {
		/* Explicit arguments override the parameters. */
		load.chunk = PAGE;
		load.depth = 2;
		expect(dio_load(dev, &load), 0);
		close(load.dmabuf_fd);
	}
	close(rw.file_fd);
	close(dev);
}

int main(void)
{
	struct buffer buf;
	int dev, file, fd;
	char page[24];

	file_pattern("data", MIB(2), 1);

	trying("an open context");
	dev = dio_open();
	expect(module_users(NAME), 1);
	expect(module_remove(NAME), -EAGAIN);
	close(dev);

	trying("a LOADed dma-buf");
	dev = dio_open();
	file = file_open("data", O_RDONLY);
	fd = dio_load_fd(dev, file, 0, MIB(2));
	close(dev);
	expect(module_users(NAME), 1);
	expect(module_remove(NAME), -EAGAIN);
	{
		unsigned char *map = map_dmabuf(fd, MIB(2), 1);

		close(fd);
		expect(module_remove(NAME), -EAGAIN);
		pattern_check(map, 0, MIB(2), 1);
		unmap(map, MIB(2));
	}
	close(file);

	trying("a foreign dma-buf after the context has gone");
	if (!buffer_try(&buf, BUFFER_HEAP, MIB(1))) {
		close(dio_context(&buf));
		reload("");
		buffer_pattern(&buf, 3);
		pattern_check(buf.map, 0, MIB(1), 3);
		close(dio_context(&buf));
		buffer_destroy(&buf);
	}

	trying("parameters");
	reload("chunk=65536 depth=7 gather=131072");
	expect(info().default_chunk, 65536);
	expect(info().default_depth, 7);
	expect(info().default_gather, 131072);
	works(0);

	trying("parameters changed later");
	snprintf(page, sizeof(page), "%llu", (unsigned long long)PAGE);
	proc_write("/sys/module/dmabuf_dio/parameters/chunk", page);
	proc_write("/sys/module/dmabuf_dio/parameters/depth", "64");
	proc_write("/sys/module/dmabuf_dio/parameters/gather", "0");
	expect(info().default_chunk, PAGE);
	works(0);

	trying("bad parameters");
	proc_write("/sys/module/dmabuf_dio/parameters/depth", "65");
	works(-EINVAL);
	proc_write("/sys/module/dmabuf_dio/parameters/depth", "0");
	works(-EINVAL);
	reload("chunk=5");
	works(-EINVAL);
	reload("chunk=0");
	works(-EINVAL);
	reload("chunk=18446744073709547520");
	works(-EINVAL);
	reload("gather=18446744073709551615");
	works(0);
	expect(module_insert(NAME, ""), -EEXIST);
	for (fd = 0; fd < 10; fd++)
		reload("");
	works(0);
	return 0;
}
