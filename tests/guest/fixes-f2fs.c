// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fixes in kernel/series/f2fs: the disk is flushed after direct writes that were asynchronous.
 *
 * fixes-f2fs [STEP]: one step only. Skipped on other kernels, and on disks without a cache.
 */
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include <linux/aio_abi.h>

#include "lib.h"

#define NAME	"fixes-f2fs.data"
#define LENGTH	(16 * PAGE)
#define PART	(2 * PAGE)

static unsigned char *bytes;
static aio_context_t aio;

static unsigned long long flushes(void)
{
	unsigned long long values[17] = { 0 };
	unsigned int count = 0;
	struct stat st;
	char path[64];
	FILE *file;

	check(!stat(".", &st));
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/stat", major(st.st_dev), minor(st.st_dev));
	file = fopen(path, "re");
	if (!file)
		skip("this file system has no disk");
	while (count < ARRAY_SIZE(values) && fscanf(file, "%llu", &values[count]) == 1)
		count++;
	fclose(file);
	return values[15];
}

static int new_file(int flags)
{
	int fd;

	unlink(NAME);
	fd = file_open(NAME, O_RDWR | O_CREAT | O_DIRECT | flags);
	check(pwrite(fd, bytes, LENGTH, 0) == (ssize_t)LENGTH && !fsync(fd));
	sync();
	return fd;
}

static void write_async(int fd)
{
	struct iocb request = {
		.aio_fildes = fd,
		.aio_lio_opcode = IOCB_CMD_PWRITE,
		.aio_buf = (uintptr_t)bytes,
		.aio_nbytes = PART,
		.aio_offset = PART,
	};
	struct iocb *requests = &request;
	struct io_event event;

	check(syscall(SYS_io_submit, aio, 1, &requests) == 1);
	check(syscall(SYS_io_getevents, aio, 1, 1, &event, NULL) == 1);
	check(event.res == (ssize_t)PART);
}

static void expect_flush(unsigned long long before)
{
	if (flushes() == before)
		fail("no flush was sent to the disk");
}

static void synchronised(void)
{
	unsigned long long before;
	int fd = new_file(0);

	before = flushes();
	check(pwrite(fd, bytes, PART, PART) == (ssize_t)PART && !fdatasync(fd));
	if (flushes() == before)
		skip("this disk has no cache");

	trying("fdatasync() after an asynchronous write");
	write_async(fd);
	before = flushes();
	check(!fdatasync(fd));
	expect_flush(before);
	close(fd);
	unlink(NAME);
}

int main(int argc, char **argv)
{
	static void (* const steps[])(void) = { synchronised };

	check(!posix_memalign((void **)&bytes, PAGE, LENGTH));
	memset(bytes, 1, LENGTH);
	check(!syscall(SYS_io_setup, 1, &aio));
	run_steps(argc, argv, steps, ARRAY_SIZE(steps));
	return 0;
}
