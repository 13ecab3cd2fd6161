// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fixes in kernel/series/ext4: FALLOC_FL_ZERO_RANGE beyond the end of a file leaves no old data in the page cache.
 *
 * fixes-ext4 [STEP]: one step only. Skipped on other kernels.
 */
#include <sys/mman.h>

#include <linux/falloc.h>

#include "lib.h"

#define NAME	"fixes-ext4.data"
/* Ends within a block */
#define LENGTH	(18 * PAGE + 837)

static int new_file(void)
{
	int fd;

	unlink(NAME);
	fd = file_open(NAME, O_RDWR | O_CREAT);
	fd_pattern_write(fd, 0, LENGTH, 1);
	check(!fsync(fd));
	return fd;
}

/* By the page cache, then from the disk: @kept bytes of the file, and zeroes up to @end. */
static void compare(int fd, uint64_t kept, uint64_t end)
{
	unsigned char *bytes = malloc(end);
	int pass;

	check(bytes && lseek(fd, 0, SEEK_END) == (off_t)end);
	for (pass = 0; pass < 2; pass++) {
		fd_read(fd, bytes, end, 0);
		pattern_check(bytes, 0, kept, 1);
		zero_check(bytes + kept, end - kept);
		check(!fsync(fd) && !posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	}
	free(bytes);
	close(fd);
	unlink(NAME);
}

static void zero_range(void)
{
	uint64_t start = 8 * PAGE, length = 16 * PAGE;
	int fd = new_file();

	trying("a range around the end of the file");
	check(!fallocate(fd, FALLOC_FL_ZERO_RANGE, start, length));
	compare(fd, start, start + length);

	trying("the same, not aligned to blocks");
	fd = new_file();
	check(!fallocate(fd, FALLOC_FL_ZERO_RANGE, start + 7, length));
	compare(fd, start + 7, start + 7 + length);
}

/* Writes behind the end of the file into its last page, which only a mapping can. */
static void write_behind(int fd)
{
	uint64_t page = LENGTH / PAGE * PAGE;
	unsigned char *map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, page);

	check(map != MAP_FAILED);
	memset(map + LENGTH - page, 0xa5, page + PAGE - LENGTH);
	unmap(map, PAGE);
}

static void extended(int mode, uint64_t start, uint64_t length)
{
	int fd = new_file();

	write_behind(fd);
	check(!fallocate(fd, mode, start, length));
	compare(fd, LENGTH, start + length);
}

static void behind_the_end(void)
{
	trying("what was written behind the end of the file");
	extended(0, 0, 32 * PAGE);
	extended(0, 20 * PAGE, PAGE);
	extended(FALLOC_FL_ZERO_RANGE, 20 * PAGE, PAGE);
	extended(FALLOC_FL_ZERO_RANGE, 20 * PAGE + 7, 100);
}

int main(int argc, char **argv)
{
	static void (* const steps[])(void) = { zero_range, behind_the_end };

	run_steps(argc, argv, steps, ARRAY_SIZE(steps));
	return 0;
}
