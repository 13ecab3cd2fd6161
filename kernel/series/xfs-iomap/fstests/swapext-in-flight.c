// SPDX-License-Identifier: GPL-2.0
/*
 * Swaps the blocks of two files by XFS_IOC_SWAPEXT while a direct read of the first one is in
 * flight, and overwrites the second one afterwards. The read has to return what was in the first
 * file when it was submitted. For src/aio-dio-regress of fstests.
 *
 * swapext-in-flight FILE DONOR LENGTH: both files have LENGTH bytes of 'a', in one extent each,
 * on a device whose reads take long enough for the rest.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <libaio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <xfs/xfs.h>

static int open_file(const char *path, int flags)
{
	int fd = open(path, flags);

	if (fd < 0)
		err(1, "%s", path);
	return fd;
}

static void *allocate(size_t length, int byte)
{
	void *data;

	if (posix_memalign(&data, 65536, length))
		errx(1, "no memory");
	memset(data, byte, length);
	return data;
}

static void swap(int fd, int donor, size_t length)
{
	struct xfs_swapext swapext = {
		.sx_version = XFS_SX_VERSION,
		.sx_fdtarget = fd,
		.sx_fdtmp = donor,
		.sx_length = length,
	};
	struct xfs_fsop_bulkreq request = {
		.icount = 1,
		.ubuffer = &swapext.sx_stat,
	};
	struct stat status;
	__u64 inode;

	if (fstat(fd, &status))
		err(1, "fstat");
	inode = status.st_ino;
	request.lastip = &inode;
	if (ioctl(fd, XFS_IOC_FSBULKSTAT_SINGLE, &request))
		err(1, "XFS_IOC_FSBULKSTAT_SINGLE");
	if (ioctl(fd, XFS_IOC_SWAPEXT, &swapext))
		err(1, "XFS_IOC_SWAPEXT");
}

int main(int argc, char **argv)
{
	struct iocb read, *reads[] = { &read };
	io_context_t context = NULL;
	struct io_event event;
	char *data, *other;
	size_t length, i;
	int fd, direct, donor, ret;

	if (argc != 4)
		errx(1, "usage: swapext-in-flight FILE DONOR LENGTH");
	length = strtoul(argv[3], NULL, 0);
	fd = open_file(argv[1], O_RDWR);
	direct = open_file(argv[1], O_RDONLY | O_DIRECT);
	donor = open_file(argv[2], O_RDWR);
	data = allocate(length, 0);
	other = allocate(length, 'b');

	ret = io_setup(1, &context);
	if (ret)
		errx(1, "io_setup: %s", strerror(-ret));
	io_prep_pread(&read, direct, data, length, 0);
	ret = io_submit(context, 1, reads);
	if (ret != 1)
		errx(1, "io_submit: %s", strerror(-ret));

	swap(fd, donor, length);
	if (pwrite(donor, other, length, 0) != (ssize_t)length || fdatasync(donor))
		err(1, "%s", argv[2]);

	ret = io_getevents(context, 1, 1, &event, NULL);
	if (ret != 1)
		errx(1, "io_getevents: %s", strerror(-ret));
	if ((long)event.res != (long)length)
		errx(1, "the read returned %ld", (long)event.res);
	for (i = 0; i < length; i++)
		if (data[i] != 'a')
			errx(1, "byte %zu of the read is of the other file", i);
	puts("The read returned its own file.");
	return 0;
}
