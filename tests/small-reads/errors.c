// SPDX-License-Identifier: GPL-2.0-only
/*
 * An unreadable sector: every interface returns EIO, as on the ordinary path; asynchronous reads
 * complete through a work queue; concurrent reads are not affected. timeout=300
 */
#include <sys/syscall.h>

#include "dm.h"
#include "small.h"

#define BLOCKS	64
#define LENGTH	(BLOCKS * BLOCK)
#define BROKEN	21		/* this block, and the one before it */

static int file;

static bool is_broken(unsigned int block)
{
	return block / 2 == BROKEN / 2;
}

static void one_by_one(void)
{
	unsigned char *memory = allocate(BLOCK);
	enum way way;
	int on;

	for (way = 0; way < WAYS; way++) {
		for (on = 0; on < 2; on++) {
			bool deferred = on && way >= AIO;
			struct hits before = hits();

			small_switch(on);
			trying("%s, switch %d", way_names[way], on);
			expect(read_by(way, file, memory, BLOCK, BROKEN * BLOCK), -EIO);
			expect_path(hits_since(before), on ? SHORT : LONG, 1);
			expect_deferred(hits_since(before), deferred);
			before = hits();
			expect(read_by(way, file, memory, BLOCK, (BROKEN + 1) * BLOCK), BLOCK);
			pattern_check(memory, (BROKEN + 1) * BLOCK, BLOCK, 1);
			expect_path(hits_since(before), on ? SHORT : LONG, 1);
			expect_deferred(hits_since(before), 0);
		}
	}
	free(memory);
}

static void check_one(unsigned int block, ssize_t result, const unsigned char *memory)
{
	if (is_broken(block)) {
		expect(result, -EIO);
	} else {
		expect(result, BLOCK);
		pattern_check(memory + block * BLOCK, block * BLOCK, BLOCK, 1);
	}
}

static void many_uring(unsigned char *memory)
{
	struct io_uring ring;
	unsigned int i;

	trying("io_uring, %u at once", BLOCKS);
	check(!io_uring_queue_init(BLOCKS, &ring, 0));
	blocks_send(&ring, file, memory, BLOCKS);
	for (i = 0; i < BLOCKS; i++) {
		uint64_t block;
		int result = ring_result(&ring, &block);

		check_one(block, result, memory);
	}
	io_uring_queue_exit(&ring);
}

static void many_aio(unsigned char *memory)
{
	struct iocb iocbs[BLOCKS], *list[BLOCKS];
	struct io_event events[BLOCKS];
	aio_context_t context = 0;
	unsigned int i;

	trying("aio, %u at once", BLOCKS);
	check(!syscall(SYS_io_setup, BLOCKS, &context));
	for (i = 0; i < BLOCKS; i++) {
		list[i] = &iocbs[i];
		iocbs[i] = (struct iocb){
			.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = file, .aio_data = i,
			.aio_buf = (uintptr_t)memory + i * BLOCK, .aio_nbytes = BLOCK,
			.aio_offset = i * BLOCK,
		};
	}
	expect(syscall(SYS_io_submit, context, BLOCKS, list), BLOCKS);
	aio_wait(context, BLOCKS, events);
	for (i = 0; i < BLOCKS; i++)
		check_one(events[i].data, events[i].res, memory);
	check(!syscall(SYS_io_destroy, context));
}

static void many(void (*read)(unsigned char *memory))
{
	unsigned char *memory = allocate(LENGTH);
	struct hits before;

	small_switch(true);
	before = hits();
	read(memory);
	expect_path(hits_since(before), SHORT, BLOCKS);
	expect_deferred(hits_since(before), 2);
	free(memory);
}

static void nothing_readable(void)
{
	unsigned char *memory = allocate(BLOCK);
	enum way way;

	for (way = 0; way < WAYS; way++) {
		trying("%s, nothing can be read", way_names[way]);
		expect(read_by(way, file, memory, BLOCK, 0), -EIO);
	}
	free(memory);
}

int main(void)
{
	unsigned char *content = allocate(BLOCK);

	hits();
	disk_begin();
	file_pattern("mnt/data", LENGTH, 1);
	file = file_open("mnt/data", O_RDONLY | O_DIRECT);

	dm_break(disk_position("mnt/data", (BROKEN & ~1) * BLOCK, 2 * BLOCK), 2 * BLOCK);
	one_by_one();
	many(many_uring);
	many(many_aio);
	disk_fail_reads();
	nothing_readable();

	trying("healed");
	dm_break(0, 0);
	pattern_fill(content, BROKEN * BLOCK, BLOCK, 1);
	read_all_ways(.fd = file, .position = BROKEN * BLOCK, .length = BLOCK, .path = SHORT,
		      .result = BLOCK, .content = content);
	close(file);
	disk_end();
	free(content);
	return 0;
}
