// SPDX-License-Identifier: GPL-2.0-only
/*
 * A file system may take references on the caller's pages and drop them when it is done. This
 * must neither free pages in use nor keep pages that are not. timeout=900
 */
#include <sys/mman.h>

#include "lib.h"

#define LENGTH	MIB(2)
#define OTHER	MIB(4)
#define ROUNDS	3

static bool direct;

/* A new allocation would get pages that were freed by mistake. */
static void others_need_memory(struct buffer *buf, uint64_t seed)
{
	unsigned char *other = mmap(NULL, OTHER, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(other != MAP_FAILED);
	memset(other, 0x99, OTHER);
	buffer_begin(buf);
	pattern_check(buf->map, 0, LENGTH, seed);
	pattern_fill(buf->map, 0, LENGTH, seed + 1);
	buffer_end(buf);
	check(other[0] == 0x99 && !memcmp(other, other + 1, OTHER - 1));
	munmap(other, OTHER);
	buffer_check(buf, 0, 0, LENGTH, seed + 1);
}

static void rounds(struct buffer *buf)
{
	int file = file_open("data", O_RDONLY | direct_flag(direct));
	int copy = file_open("copy", O_RDWR | O_CREAT | O_TRUNC | direct_flag(direct));
	int dev = dio_context(buf);
	unsigned int i;

	for (i = 0; i < ROUNDS; i++) {
		struct dmabuf_dio_rw rw = { .file_fd = file, .length = LENGTH, .chunk = KIB(256) };

		trying("%s, %s, round %u", buffer_names[buf->kind],
		       direct ? "direct" : "buffered", i);
		expect(dio_read(dev, &rw), 0);
		expect(rw.done, LENGTH);
		others_need_memory(buf, 1);
		rw.file_fd = copy;
		expect(dio_write(dev, &rw), 0);
		expect(rw.done, LENGTH);
		fd_pattern_check(copy, 0, LENGTH, 2);
		others_need_memory(buf, 2);
	}
	close(dev);
	close(copy);
	close(file);
}

int main(void)
{
	uint64_t before;

	file_pattern("data", LENGTH, 1);
	/* Run once before memory is counted, because of one-time allocations */
	for_each_kind_and_way(LENGTH, &direct, rounds);
	before = memory_available();
	for_each_kind_and_way(LENGTH, &direct, rounds);
	for_each_kind_and_way(LENGTH, &direct, rounds);
	/* The file system's server has a varying number of threads. */
	expect_memory_back(before, 3 * LENGTH);
	return 0;
}
