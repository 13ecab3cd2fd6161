// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process exits, and its file system is unmounted, while reads are in flight, successful
 * and failing ones. timeout=300
 */
#include <signal.h>
#include <sys/mount.h>

#include "dm.h"
#include "small.h"

#define DEPTH	32

/* Does not return; its reads are still in flight. */
static void leave_in_flight(int ready)
{
	int file = file_open("mnt/data", O_RDONLY | O_DIRECT);
	unsigned char *memory = allocate(DEPTH * BLOCK);
	struct io_uring ring;

	check(!io_uring_queue_init(DEPTH, &ring, 0));
	blocks_send(&ring, file, memory, DEPTH);
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

	file_pattern("mnt/data", DEPTH * BLOCK, 1);
	disk_slow(300);
	check(!pipe(ready));
	child = spawn();
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
	reap_killed(child);
	expect_path(hits_since(before), SHORT, DEPTH);
	disk_slow(0);

	/* The file system still works afterwards. */
	fs_mount(DM_PATH, test_fs(), NULL);
}

int main(void)
{
	int i;

	hits();
	disk_begin();
	for (i = 0; i < 6; i++) {
		trying("round %d", i);
		unmount_behind(i % 2);
	}
	disk_end();
	return 0;
}
