// SPDX-License-Identifier: GPL-2.0-only
/*
 * The target memory is a mapping of another file, which is written back while the read is in
 * flight: the data still reaches that file.
 */
#include <sys/mman.h>

#include "small.h"

#define DEPTH	8
#define LENGTH	(DEPTH * BLOCK)

int main(void)
{
	unsigned char *map, *got = allocate(LENGTH);
	struct io_uring ring;
	struct hits before;
	int source, fd;
	unsigned int i;

	hits();
	disk_begin();
	file_pattern("mnt/data", LENGTH, 1);
	source = file_open("mnt/data", O_RDONLY | O_DIRECT);

	file_pattern("memory", LENGTH, 2);
	fd = file_open("memory", O_RDWR);
	map = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(map != MAP_FAILED);

	disk_slow(500);
	before = hits();
	check(!io_uring_queue_init(DEPTH, &ring, 0));
	blocks_send(&ring, source, map, DEPTH);
	check(!fsync(fd));
	expect(io_uring_cq_ready(&ring), 0);
	for (i = 0; i < DEPTH; i++)
		expect(ring_result(&ring, NULL), BLOCK);
	expect_path(hits_since(before), SHORT, DEPTH);
	pattern_check(map, 0, LENGTH, 1);
	io_uring_queue_exit(&ring);
	munmap(map, LENGTH);

	/* From the disk, not from the page cache */
	sleep_ms(500);
	check(!fsync(fd));
	close(fd);
	file_settle("memory");
	fd = file_open("memory", O_RDONLY | O_DIRECT);
	fd_read(fd, got, LENGTH, 0);
	pattern_check(got, 0, LENGTH, 1);
	close(fd);
	close(source);
	disk_slow(0);
	disk_end();
	return 0;
}
