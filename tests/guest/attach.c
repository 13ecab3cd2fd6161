// SPDX-License-Identifier: GPL-2.0-only
/* ATTACH takes dma-bufs of every kind, once per context, and keeps them. */
#include <sys/eventfd.h>

#include "lib.h"

#define LENGTH	MIB(6)

static void attach_kind(struct buffer *buf)
{
	struct dmabuf_dio_attach attach = { .dmabuf_fd = buf->fd };
	struct dmabuf_dio_rw rw = { .length = LENGTH };
	int dev = dio_open(), other;
	char path[64], text[512];

	rw.file_fd = file_open("data", O_RDONLY);
	expect(dio_read(dev, &rw), -ENOTCONN);

	expect(dio_call(dev, DMABUF_DIO_IOC_ATTACH, &attach), 0);
	expect(attach.length, buf->length);
	check(attach.segments >= 1);
	check(attach.segments <= buf->length / PAGE);
	if (buf->kind == BUFFER_HUGE)
		check(attach.segments <= buf->length / huge_page());
	expect(dio_attach(dev, buf->fd), -EBUSY);

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", dev);
	check(proc_read(path, text, sizeof(text)));
	check(strstr(text, "moved:\t0\n"));
	check(strstr(text, "size:\t"));

	/* A second context on the same buffer */
	other = dio_context(buf);
	close(other);

	/* The context keeps the buffer alive; so does the mapping that is checked here. */
	buffer_pattern(buf, 1);
	close(buf->fd);
	buf->fd = -1;
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, LENGTH);
	pattern_check(buf->map, 0, LENGTH, 7);
	pattern_check(buf->map + LENGTH, LENGTH, buf->length - LENGTH, 1);

	close(rw.file_fd);
	close(dev);
}

static void refused(void)
{
	struct buffer buf;
	int dev = dio_open();
	int pair[2], fd;

	expect(dio_attach(dev, -1), -EBADF);
	expect(dio_attach(dev, 1000000), -EBADF);
	expect(dio_attach(dev, dev), -EINVAL);

	fd = file_open("data", O_RDWR);
	expect(dio_attach(dev, fd), -EINVAL);
	close(fd);
	expect(dio_attach(dev, fd), -EBADF);

	fd = file_open("data", O_PATH);
	expect(dio_attach(dev, fd), -EBADF);
	close(fd);
	fd = eventfd(0, EFD_CLOEXEC);
	expect(dio_attach(dev, fd), -EINVAL);
	close(fd);
	check(!pipe(pair));
	expect(dio_attach(dev, pair[0]), -EINVAL);
	close(pair[0]);
	close(pair[1]);

	/* The context still works after the failures. */
	buffer_create(&buf, BUFFER_LOAD, PAGE);
	expect(dio_attach(dev, buf.fd), 0);
	buffer_destroy(&buf);
	close(dev);
}

/* Attaching and closing many times leaks nothing. */
static void repeated(struct buffer *buf)
{
	uint64_t before = memory_available();
	unsigned int fds = count_fds(), i;

	for (i = 0; i < 200; i++)
		close(dio_context(buf));
	expect(count_fds(), fds);
	expect_memory_back(before, MIB(24));
}

int main(void)
{
	file_pattern("data", LENGTH, 7);
	for_each_kind(LENGTH, attach_kind);
	refused();
	for_each_kind(MIB(32), repeated);
	return 0;
}
