// SPDX-License-Identifier: GPL-2.0-only
/* Each kind of unusable file gets its own error, and no data is transferred. */
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

#include "lib.h"

static struct buffer buf;
static int dev;

static void refused(const char *what, int file, int read_error, int write_error)
{
	struct dmabuf_dio_rw rw = { .file_fd = file, .length = PAGE };
	struct dmabuf_dio_load load = { .file_fd = file, .length = PAGE, .dmabuf_fd = -1 };

	trying("%s", what);
	expect(dio_read(dev, &rw), read_error);
	expect(dio_load(dev, &load), read_error);
	if (!read_error)
		close(load.dmabuf_fd);
	else
		expect(rw.done, 0);
	expect(dio_write(dev, &rw), write_error);
	if (write_error)
		expect(rw.done, 0);
}

int main(void)
{
	uint64_t value = 5, got = 0;
	struct buffer other;
	int fd, pair[2];
	char byte = 'x';

	buffer_create(&buf, BUFFER_LOAD, MIB(1));
	dev = dio_context(&buf);
	buffer_pattern(&buf, 1);
	file_pattern("data", MIB(1), 2);

	refused("no fd", -1, -EBADF, -EBADF);
	refused("no such fd", 999, -EBADF, -EBADF);
	fd = file_open(".", O_RDONLY | O_DIRECTORY);
	refused("directory", fd, -EISDIR, -EISDIR);
	close(fd);
	refused("closed fd", fd, -EBADF, -EBADF);
	fd = file_open("data", O_PATH);
	refused("O_PATH", fd, -EBADF, -EBADF);
	close(fd);

	check(!pipe(pair));
	check(write(pair[1], &byte, 1) == 1);
	refused("pipe, reading end", pair[0], -EINVAL, -EINVAL);
	refused("pipe, writing end", pair[1], -EINVAL, -EINVAL);
	close(pair[0]);
	close(pair[1]);
	check(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	refused("socket", pair[0], -EINVAL, -EINVAL);
	close(pair[0]);
	close(pair[1]);
	check(!mkfifo("fifo", 0600));
	fd = file_open("fifo", O_RDWR);
	refused("fifo", fd, -EINVAL, -EINVAL);
	close(fd);
	fd = file_open("/dev/zero", O_RDWR);
	refused("character device", fd, -EINVAL, -EINVAL);
	close(fd);
	fd = file_open("/dev/null", O_RDWR);
	refused("null device", fd, -EINVAL, -EINVAL);
	close(fd);
	refused("the device itself", dev, -EINVAL, -EINVAL);

	/* Anonymous inodes may look like regular files, but have no content. */
	fd = eventfd(0, EFD_CLOEXEC);
	refused("eventfd", fd, -EINVAL, -EINVAL);
	check(write(fd, &value, 8) == 8);
	refused("eventfd with a value", fd, -EINVAL, -EINVAL);
	check(read(fd, &got, 8) == 8);
	expect(got, value);
	close(fd);
	fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	refused("timerfd", fd, -EINVAL, -EINVAL);
	close(fd);

	refused("the attached dma-buf", buf.fd, -EINVAL, -EINVAL);
	if (!buffer_try(&other, BUFFER_HEAP, MIB(1))) {
		refused("another dma-buf", other.fd, -EINVAL, -EINVAL);
		buffer_destroy(&other);
	}

	fd = file_open("data", O_RDONLY);
	refused("read-only", fd, 0, -EBADF);
	close(fd);
	fd = file_open("data", O_RDONLY | O_DIRECT);
	refused("read-only, direct", fd, 0, -EBADF);
	close(fd);
	fd = file_open("data", O_WRONLY);
	refused("write-only", fd, -EBADF, 0);
	close(fd);
	fd = file_open("data", O_RDWR | O_APPEND);
	refused("appending", fd, 0, -EBADF);
	expect(lseek(fd, 0, SEEK_END), MIB(1));
	close(fd);

	/* Memory files work like any other file. */
	fd = memfd_create("data", MFD_CLOEXEC);
	fd_pattern_write(fd, 0, MIB(1), 2);
	refused("memfd", fd, 0, 0);
	close(fd);
	/* Files without a size are read or refused; the call does not hang. */
	fd = file_open("/proc/self/status", O_RDONLY);
	{
		struct dmabuf_dio_rw rw = { .file_fd = fd, .length = PAGE };
		int ret = dio_read(dev, &rw);

		trying("proc file");
		check(!ret || ret == -EINVAL);
		expect(dio_write(dev, &rw), -EBADF);
	}
	close(fd);

	/* A memfd sealed against writing */
	fd = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	check(!ftruncate(fd, MIB(1)));
	check(!fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
	refused("sealed memfd", fd, 0, -EPERM);
	close(fd);

	/* A file system mounted read-only */
	check(!mkdir("mnt", 0700));
	if (!mount("none", "mnt", "tmpfs", 0, "size=4m")) {
		file_pattern("mnt/data", MIB(1), 2);
		check(!mount("none", "mnt", NULL, MS_REMOUNT | MS_RDONLY, NULL));
		fd = file_open("mnt/data", O_RDONLY);
		refused("read-only file system", fd, 0, -EBADF);
		close(fd);
		check(!umount("mnt"));
	}
	return 0;
}
