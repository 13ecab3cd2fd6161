// SPDX-License-Identifier: GPL-2.0-only
/*
 * No memory for bios except the reserve of four: non-blocking reads get EAGAIN, others
 * wait, and all data read is correct. timeout=300
 */
#include <glob.h>
#include <linux/fs.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "small.h"

#define FAILSLAB	"/sys/kernel/debug/failslab/"
#define DEPTH	32
#define PARTS	8		/* more vectors than fit in a cached bio */

static unsigned char *memory;
static struct iovec vectors[DEPTH][PARTS];
static int file;

/* All bio sizes, because the short path's size is unknown here */
static void bios_fail(bool on)
{
	glob_t found;
	size_t i;

	proc_write(FAILSLAB "probability", on ? "100" : "0");
	proc_write(FAILSLAB "times", on ? "-1" : "0");
	check(!glob("/sys/kernel/slab/bio-*/failslab", 0, NULL, &found));
	for (i = 0; i < found.gl_pathc; i++)
		proc_write(found.gl_pathv[i], on ? "1" : "0");
	globfree(&found);
}

/* Returns the number of reads that were refused. */
static unsigned int many_aio(bool nowait)
{
	struct iocb iocbs[DEPTH], *list[DEPTH];
	struct io_event events[DEPTH];
	aio_context_t context = 0;
	unsigned int i, refused = 0, done = 0;

	check(!syscall(SYS_io_setup, DEPTH, &context));
	for (i = 0; i < DEPTH; i++) {
		list[i] = &iocbs[i];
		iocbs[i] = (struct iocb){
			.aio_lio_opcode = IOCB_CMD_PREADV, .aio_fildes = file, .aio_data = i,
			.aio_buf = (uintptr_t)vectors[i], .aio_nbytes = PARTS,
			.aio_offset = i * BLOCK, .aio_rw_flags = nowait ? RWF_NOWAIT : 0,
		};
	}
	memset(memory, 0, DEPTH * BLOCK);
	while (done < DEPTH) {
		long submitted = syscall(SYS_io_submit, context, DEPTH - done, list + done);

		check(submitted > 0);
		done += submitted;
	}
	aio_wait(context, done, events);
	for (i = 0; i < done; i++) {
		unsigned int n = events[i].data;

		if ((int64_t)events[i].res == -EAGAIN) {
			refused++;
			continue;
		}
		expect(events[i].res, BLOCK);
		pattern_check(memory + n * BLOCK, n * BLOCK, BLOCK, 1);
	}
	check(!syscall(SYS_io_destroy, context));
	return refused;
}

static void many_uring(void)
{
	struct io_uring ring;
	unsigned int i;

	memset(memory, 0, DEPTH * BLOCK);
	check(!io_uring_queue_init(DEPTH, &ring, 0));
	for (i = 0; i < DEPTH; i++)
		io_uring_prep_readv(io_uring_get_sqe(&ring), file, vectors[i], PARTS, i * BLOCK);
	expect(io_uring_submit(&ring), DEPTH);
	for (i = 0; i < DEPTH; i++)
		expect(ring_result(&ring, NULL), BLOCK);
	pattern_check(memory, 0, DEPTH * BLOCK, 1);
	io_uring_queue_exit(&ring);
}

int main(void)
{
	unsigned int i, refused;
	struct hits before;

	hits();
	test_fs();
	if (!proc_try_write(FAILSLAB "cache-filter", "Y"))
		skip("this kernel injects no faults");
	proc_write(FAILSLAB "verbose", "0");
	/* Non-blocking allocations too */
	proc_write(FAILSLAB "ignore-gfp-wait", "N");

	disk_begin();
	file_pattern("mnt/data", DEPTH * BLOCK, 1);
	file = file_open("mnt/data", O_RDONLY | O_DIRECT);
	memory = allocate(DEPTH * BLOCK);
	for (i = 0; i < DEPTH * PARTS; i++)
		vectors[i / PARTS][i % PARTS] = (struct iovec){
			memory + i * (BLOCK / PARTS), BLOCK / PARTS
		};
	disk_slow(100);

	bios_fail(true);
	before = hits();
	trying("aio that must not wait");
	refused = many_aio(true);
	printf("%u of %u refused\n", refused, DEPTH);
	/* 7.3 may refuse all. */
	check(refused && (refused < DEPTH || !small_has_switch()));
	expect_path(hits_since(before), SHORT, DEPTH);
	trying("aio that waits");
	expect(many_aio(false), 0);
	trying("io_uring");
	many_uring();
	expect(hits_since(before).ordinary, 0);
	bios_fail(false);

	trying("memory again");
	expect(many_aio(true), 0);
	disk_slow(0);
	close(file);
	disk_end();
	return 0;
}
