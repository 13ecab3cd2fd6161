// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process that goes, and its file system after it, while reads are in flight: good
 * ones, and such as fail. timeout=300
 */
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "small.h"

#define SIZE	MIB(512)
#define BLOCK	4096
#define DEPTH	32

/* Never returns; the reads it started are still to come back. */
static void leave_in_flight(int ready)
{
	int file = file_open("mnt/data", O_RDONLY | O_DIRECT);
	unsigned char *memory = allocate(DEPTH * BLOCK);
	struct io_uring ring;
	unsigned int i;

	check(!io_uring_queue_init(DEPTH, &ring, 0));
	for (i = 0; i < DEPTH; i++)
		io_uring_prep_read(io_uring_get_sqe(&ring), file, memory + i * BLOCK, BLOCK,
				   i * BLOCK);
	expect(io_uring_submit(&ring), DEPTH);
	check(write(ready, "", 1) == 1);
	for (;;)
		pause();
}

static void unmount_behind(bool fail_them)
{
	struct hits before = hits();
	double begin;
	int ready[2];
	pid_t child;
	char byte;

	disk_mount(DISK_PATH, test_fs(), NULL);
	file_pattern("mnt/data", DEPTH * BLOCK, 1);
	disk_slow(300);
	check(!pipe(ready));
	child = fork();
	check(child >= 0);
	if (!child)
		leave_in_flight(ready[1]);
	check(read(ready[0], &byte, 1) == 1);
	close(ready[0]);
	close(ready[1]);
	if (fail_them)
		disk_fail_reads();
	check(!kill(child, SIGKILL));
	begin = seconds();
	while (umount("mnt")) {
		check(errno == EBUSY);
		check(seconds() - begin < 20);
	}
	check(waitpid(child, NULL, 0) == child);
	expect_path(hits_since(before), SHORT, DEPTH);
	disk_slow(0);
}

int main(void)
{
	int i;

	hits();
	test_fs();
	disk_create(SIZE);
	check(disk_format(DISK_PATH, test_fs(), ""));
	for (i = 0; i < 6; i++) {
		trying("round %d", i);
		unmount_behind(i % 2);
	}

	/* What the file system had to say afterwards, it could. */
	disk_mount(DISK_PATH, test_fs(), NULL);
	disk_unmount();
	disk_remove();
	return 0;
}
