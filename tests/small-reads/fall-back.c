// SPDX-License-Identifier: GPL-2.0-only
/*
 * Everything but a small read of written data inside the file takes the ordinary path,
 * with the same result as without the short path. timeout=300
 */
#include <sys/mman.h>

#include "small.h"

#define LENGTH	(16 * BLOCK)
#define TAIL	1000		/* bytes after the file's last complete block */

#define HOLE		(4 * BLOCK)
#define UNWRITTEN	(8 * BLOCK)
#define SEAM		(12 * BLOCK)	/* the next block is elsewhere on the disk */

static unsigned char *content;

/* Two blocks of hole, two unwritten ones, a discontinuity, and an end inside a block */
static int create(void)
{
	int fd = file_open("data", O_RDWR | O_CREAT);

	fd_pattern_write(fd, 0, LENGTH + 2 * BLOCK, 1);
	check(!fsync(fd));
	fd_punch(fd, HOLE, 2 * BLOCK);
	fd_punch(fd, UNWRITTEN, 2 * BLOCK);
	check(!fallocate(fd, 0, UNWRITTEN, 2 * BLOCK));
	check(!fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, SEAM, BLOCK));
	check(!ftruncate(fd, LENGTH + TAIL));
	close(fd);
	file_settle("data");

	content = allocate(LENGTH + BLOCK);
	fd = file_open("data", O_RDONLY);
	fd_read(fd, content, LENGTH + TAIL, 0);
	close(fd);
	/* Verify that layout */
	zero_check(content + HOLE, 2 * BLOCK);
	zero_check(content + UNWRITTEN, 2 * BLOCK);
	pattern_check(content + SEAM - BLOCK, SEAM - BLOCK, BLOCK, 1);
	pattern_check(content + SEAM, SEAM + BLOCK, LENGTH + TAIL - SEAM, 1);
	file_settle("data");
	return file_open("data", O_RDWR | O_DIRECT);
}

#define reading(at, count, how, ...)					\
	read_all_ways(.fd = fd, .position = (at), .length = (count), .path = how,	\
		      .content = content + (at), __VA_ARGS__)

static void bad_memory(int fd)
{
	static const enum way ways[] = { SYNC, AIO, URING };
	char *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *half = memory + PAGE - BLOCK / 2;
	unsigned int i, on;

	check(memory != MAP_FAILED);
	memset(memory, 0, PAGE);
	check(!mprotect(memory + PAGE, PAGE, PROT_NONE));
	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		for (on = 0; on < 2; on++) {
			struct hits before = hits();

			trying("%s, no memory, switch %u", way_names[ways[i]], on);
			small_switch(on);
			expect(read_by(ways[i], fd, memory + PAGE, BLOCK, 0), -EFAULT);
			expect_path(hits_since(before), on ? FELL_BACK : LONG, 1);

			trying("%s, half the memory, switch %u", way_names[ways[i]], on);
			before = hits();
			memset(memory, 0, PAGE);
			expect(read_by(ways[i], fd, half, BLOCK, 0), -EFAULT);
			bytes_check(half, content, BLOCK / 2);
			expect_path(hits_since(before), on ? FELL_BACK : LONG, 1);
		}
	}
	munmap(memory, 2 * PAGE);
}

static void writes(int fd)
{
	char *memory = allocate(BLOCK);
	struct hits before = hits();
	int plain = file_open("data", O_RDONLY);

	trying("a write");
	pattern_fill(memory, 0, BLOCK, 2);
	expect(pwrite(fd, memory, BLOCK, BLOCK), BLOCK);
	expect_path(hits_since(before), LONG, 1);
	fd_pattern_check(plain, 0, BLOCK, 1);
	fd_read(plain, memory, BLOCK, BLOCK);
	pattern_check(memory, 0, BLOCK, 2);
	fd_pattern_check(plain, 2 * BLOCK, BLOCK, 1);
	memcpy(content + BLOCK, memory, BLOCK);
	reading(BLOCK, BLOCK, SHORT, .result = BLOCK);
	close(plain);
	free(memory);
}

int main(void)
{
	int fd;

	hits();
	test_fs();
	fd = create();

	/* Too large */
	reading(0, BLOCK + 512, LONG, .result = BLOCK + 512);
	reading(0, 2 * BLOCK, LONG, .result = 2 * BLOCK);
	reading(0, LENGTH, LONG, .result = LENGTH);

	/* Alignment that the device does not support: position, length, memory */
	reading(100, 512, FELL_BACK, .result = -EINVAL);
	reading(0, 100, FELL_BACK, .result = -EINVAL);
	reading(0, BLOCK, FELL_BACK, .shift = 1, .result = -EINVAL);

	/* No data, or not contiguous */
	reading(HOLE, BLOCK, FELL_BACK, .result = BLOCK);
	reading(HOLE - 512, 1024, FELL_BACK, .result = 1024);
	reading(HOLE + 2 * BLOCK - 512, 1024, FELL_BACK, .result = 1024);
	reading(UNWRITTEN, BLOCK, FELL_BACK, .result = BLOCK);
	reading(UNWRITTEN - 512, 1024, FELL_BACK, .result = 1024);
	reading(UNWRITTEN + 2 * BLOCK - 512, 1024, FELL_BACK, .result = 1024);
	reading(SEAM - 512, 1024, FELL_BACK, .result = 1024);

	/* The end of the file, and beyond it */
	reading(LENGTH - BLOCK, BLOCK, SHORT, .result = BLOCK);
	reading(LENGTH, 512, SHORT, .result = 512);
	reading(LENGTH, 1024, LONG, .result = TAIL);
	reading(LENGTH, BLOCK, LONG, .result = TAIL);
	reading(LENGTH + 512, 512, LONG, .result = TAIL - 512);
	reading(LENGTH + 1024, BLOCK, LONG, .result = 0);
	reading(LENGTH + BLOCK, BLOCK, LONG, .result = 0);
	reading(0, 0, BUFFERED, .result = 0);

	bad_memory(fd);
	writes(fd);
	close(fd);

	/* Without O_DIRECT */
	fd = file_open("data", O_RDONLY);
	reading(0, BLOCK, BUFFERED, .result = BLOCK);
	close(fd);
	return 0;
}
