// SPDX-License-Identifier: GPL-2.0-only
/*
 * A second disk that is slow or fails, with a file system on it
 */
#include <sys/mount.h>

#include "dm.h"
#include "small.h"

void disk_fail_reads(void)
{
	dm_reload("flakey %s 0 0 3600 1 error_reads", raw_disk());
}

void disk_slow(unsigned int ms)
{
	const char *disk = raw_disk();

	if (ms)
		dm_reload("delay %s 0 %u %s 0 0", disk, ms, disk);
	else
		dm_break(0, 0);
}

const char *test_fs(void)
{
	const char *type = guest_fs();

	if (strcmp(type, "ext4") && strcmp(type, "xfs"))
		skip("about ext4 and XFS");
	return type;
}

void disk_unmount(void)
{
	int i;

	/* io_uring releases registered resources shortly after the ring is closed. */
	for (i = 0; i < 50; i++) {
		if (!umount("mnt"))
			return;
		sleep_ms(100);
	}
	fail("the file system is still in use");
}

void disk_begin(void)
{
	const char *type = test_fs();

	dm_create(MIB(512));
	check(fs_format(DM_PATH, type, ""));
	fs_mount(DM_PATH, type, NULL);
}

void disk_end(void)
{
	disk_unmount();
	dm_remove();
}
