// SPDX-License-Identifier: GPL-2.0-only
/*
 * Blocks are not freed while they are being read: truncate and hole punching return after the
 * reads in flight have completed with the old data. timeout=300
 */
#include "small.h"

#define DEPTH	32
#define LENGTH	(DEPTH * BLOCK)

static void take_away(bool punch)
{
	int file = file_open("mnt/data", O_RDONLY | O_DIRECT);
	int writable = file_open("mnt/data", O_RDWR);
	unsigned char *memory = allocate(LENGTH);
	struct hits before = hits();
	struct io_uring ring;
	unsigned int i;

	check(!io_uring_queue_init(DEPTH, &ring, 0));
	blocks_send(&ring, file, memory, DEPTH);
	expect(io_uring_cq_ready(&ring), 0);
	if (punch)
		fd_punch(writable, 0, LENGTH);
	else
		check(!ftruncate(writable, 0));
	expect(io_uring_cq_ready(&ring), DEPTH);
	expect_path(hits_since(before), SHORT, DEPTH);

	for (i = 0; i < DEPTH; i++)
		expect(ring_result(&ring, NULL), BLOCK);
	pattern_check(memory, 0, LENGTH, 1);

	/* The blocks are freed now. */
	expect(read_by(SYNC, file, memory, BLOCK, 0), punch ? BLOCK : 0);
	if (punch)
		zero_check(memory, BLOCK);
	io_uring_queue_exit(&ring);
	close(writable);
	close(file);
	free(memory);
}

int main(void)
{
	int punch;

	hits();
	disk_begin();
	for (punch = 0; punch < 2; punch++) {
		trying("%s", punch ? "hole" : "truncate");
		file_pattern("mnt/data", LENGTH, 1);
		disk_slow(500);
		take_away(punch);
		disk_slow(0);
	}
	disk_end();
	return 0;
}
