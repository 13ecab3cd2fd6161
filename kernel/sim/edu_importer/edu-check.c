// SPDX-License-Identifier: GPL-2.0-only
/*
 * The importing device's view of a dma-buf, from user space
 *
 *   edu-check cat        writes what the device reads from the dma-buf in
 *                        DMABUF_DIO_FD, DMABUF_DIO_LEN bytes of it, to stdout
 *   edu-check sync DIR   imports a buffer before the I/O, and checks that the
 *                        device sees what READ wrote and WRITE sees what the
 *                        device wrote; exits 0, 1 or 77 (no device)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/dma-heap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../../module/include/uapi/linux/dmabuf_dio.h"
#include "edu_importer.h"

#define DEVICE	"/dev/edu_importer"
#define LENGTH	(64 * 1024)

#define check(ok, what)							\
	do {								\
		if (!(ok)) {						\
			fprintf(stderr, "edu-check: %s:%d: %s: %s\n",	\
				__FILE__, __LINE__, what, strerror(errno)); \
			exit(1);					\
		}							\
	} while (0)

static int import(int dmabuf)
{
	int edu = open(DEVICE, O_RDWR);

	if (edu < 0 && errno == ENOENT) {
		printf("skipped: no %s\n", DEVICE);
		exit(77);
	}
	check(edu >= 0, DEVICE);
	check(!ioctl(edu, EDU_IMPORT, dmabuf), "import");
	return edu;
}

static unsigned long env_number(const char *name)
{
	const char *value = getenv(name);

	errno = EINVAL;
	check(value, name);
	return strtoul(value, NULL, 10);
}

static int cat(void)
{
	int edu = import(env_number("DMABUF_DIO_FD"));
	unsigned long left = env_number("DMABUF_DIO_LEN");
	static char block[1 << 16];

	while (left) {
		ssize_t n = read(edu, block, left < sizeof(block) ? left : sizeof(block));

		check(n > 0, "device read");
		check(fwrite(block, 1, n, stdout) == (size_t)n, "stdout");
		left -= n;
	}
	check(!fflush(stdout), "stdout");
	return 0;
}

static void fill(unsigned char *data, unsigned int seed)
{
	unsigned int i;

	for (i = 0; i < LENGTH; i++)
		data[i] = (seed = seed * 1664525 + 1013904223) >> 24;
}

/* The kinds of buffer: by our own exporter, and by the system heap. */
static int allocate(int context, int file, int own)
{
	struct dma_heap_allocation_data heap = { .len = LENGTH, .fd_flags = O_RDWR };
	struct dmabuf_dio_load load = {
		.file_fd = file, .fd_flags = O_RDWR, .length = LENGTH,
	};
	int fd;

	if (own) {
		check(!ioctl(context, DMABUF_DIO_IOC_LOAD, &load), "LOAD");
		return load.dmabuf_fd;
	}
	fd = open("/dev/dma_heap/system", O_RDONLY);
	check(fd >= 0, "/dev/dma_heap/system");
	check(!ioctl(fd, DMA_HEAP_IOCTL_ALLOC, &heap), "heap");
	close(fd);
	return heap.fd;
}

static void sync_one(const char *dir, int own)
{
	static unsigned char want[LENGTH], got[LENGTH];
	int context = open(DMABUF_DIO_DEVICE, O_RDWR);
	struct dmabuf_dio_attach attach = {};
	struct dmabuf_dio_rw rw = { .length = LENGTH };
	int file, edu, dmabuf;
	char path[4096];
	unsigned int i;

	check(context >= 0, DMABUF_DIO_DEVICE);
	snprintf(path, sizeof(path), "%s/edu-check.data", dir);
	file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	check(file >= 0, path);
	fill(want, 1);
	check(pwrite(file, want, LENGTH, 0) == LENGTH, path);
	check(!fsync(file), path);
	close(file);
	file = open(path, O_RDWR | O_DIRECT);
	check(file >= 0, path);

	dmabuf = allocate(context, file, own);
	edu = import(dmabuf);
	attach.dmabuf_fd = dmabuf;
	check(!ioctl(context, DMABUF_DIO_IOC_ATTACH, &attach), "ATTACH");

	/* New content in the file, read into a buffer that is mapped already */
	fill(want, 2);
	check(pwrite(open(path, O_WRONLY), want, LENGTH, 0) == LENGTH, path);
	rw.file_fd = file;
	check(!ioctl(context, DMABUF_DIO_IOC_READ, &rw) && rw.done == LENGTH, "READ");
	for (i = 0; i < LENGTH; i += 4096)
		check(read(edu, got + i, 4096) == 4096, "device read");
	errno = 0;
	check(!memcmp(want, got, LENGTH), "the device does not see what READ wrote");

	/* The device writes, WRITE takes it to the file */
	fill(want, 3);
	check(lseek(edu, 0, SEEK_SET) == 0, "seek");
	check(write(edu, want, LENGTH) == LENGTH, "device write");
	check(!ioctl(context, DMABUF_DIO_IOC_WRITE, &rw) && rw.done == LENGTH, "WRITE");
	check(pread(open(path, O_RDONLY), got, LENGTH, 0) == LENGTH, path);
	errno = 0;
	check(!memcmp(want, got, LENGTH), "WRITE does not see what the device wrote");

	/* READ of one page must keep what the device wrote around it */
	check(lseek(edu, 0, SEEK_SET) == 0, "seek");
	fill(want, 4);
	check(write(edu, want, LENGTH) == LENGTH, "device write");
	rw.file_offset = 8192;
	rw.buf_offset = 8192;
	rw.length = 4096;
	check(!ioctl(context, DMABUF_DIO_IOC_READ, &rw) && rw.done == 4096, "READ");
	fill(got, 3);
	memcpy(want + 8192, got + 8192, 4096);
	check(lseek(edu, 0, SEEK_SET) == 0, "seek");
	check(read(edu, got, LENGTH) == LENGTH, "device read");
	errno = 0;
	check(!memcmp(want, got, LENGTH), "READ of a page changed others");

	close(edu);
	close(dmabuf);
	close(context);
	close(file);
	unlink(path);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "cat"))
		return cat();
	if (argc == 3 && !strcmp(argv[1], "sync")) {
		sync_one(argv[2], 0);
		sync_one(argv[2], 1);
		return 0;
	}
	fprintf(stderr, "usage: edu-check cat | edu-check sync DIR\n");
	return 2;
}
