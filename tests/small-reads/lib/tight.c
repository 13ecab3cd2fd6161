// SPDX-License-Identifier: GPL-2.0-only
/*
 * A small file system that is almost full, so that freed blocks are reused at once
 */
#include <sys/mount.h>
#include <sys/statvfs.h>

#include "tight.h"

static const struct {
	const char *type, *name, *command;
} variants[] = {
	{ "ext4", "ext4", "mkfs.ext4 -q -F %s 400M" },
	{ "ext4", "ext4, 1 KiB blocks", "mkfs.ext4 -q -F -b 1024 %s 400M" },
	{ "ext4", "ext4, no extents", "mkfs.ext4 -q -F -O ^extents,^64bit %s 80M" },
	{ "xfs", "xfs", "mkfs.xfs -q -f -m rmapbt=0,reflink=1 -d size=400m %s" },
	{ "xfs", "xfs, reverse mapping", "mkfs.xfs -q -f -m rmapbt=1,reflink=1 -d size=400m %s" },
	{ "f2fs", "f2fs", "mkfs.f2fs -q -f %s 819200" },
};

static int root;			/* the mounted directory */
static unsigned int others;		/* files of use_again() */

static void leave_little(void)
{
	struct statvfs st;
	uint64_t available;
	int fd = file_open("ballast", O_RDWR | O_CREAT);

	check(!fstatvfs(root, &st));
	available = (uint64_t)st.f_bavail * st.f_frsize;
	if (available > LEFT_FREE && fallocate(fd, 0, 0, available - LEFT_FREE)) {
		check(errno == EOPNOTSUPP);
		fd_pattern_write(fd, 0, available - LEFT_FREE, 1);
		check(!fsync(fd));
	}
	close(fd);
}

void in_tight_fs(bool all, void (*test)(const char *variant))
{
	const char *type = guest_fs(), *disk = raw_disk();
	unsigned int i, done = 0;

	for (i = 0; i < ARRAY_SIZE(variants); i++) {
		char command[256];

		if (strcmp(variants[i].type, type) || (done && !all))
			continue;
		snprintf(command, sizeof(command), variants[i].command, disk);
		trying("%s", variants[i].name);
		expect(run_command("%s >/dev/null 2>&1", command), 0);
		fs_mount(disk, type, NULL);
		check(!chdir("mnt"));
		root = file_open(".", O_RDONLY | O_DIRECTORY);
		leave_little();
		test(variants[i].name);
		check(!close(root));
		check(!chdir(".."));
		check(!umount("mnt"));
		done++;
	}
	if (!done)
		skip("nothing is known about %s", type);
}

void fs_sync(void)
{
	check(!syncfs(root));
}

void use_again(void)
{
	unsigned char *junk = allocate(MIB(1));
	size_t count = MIB(1);
	uint64_t at = 0;
	char path[32];
	int fd;

	memset(junk, 0xa5, MIB(1));
	fs_sync();
	snprintf(path, sizeof(path), "other-%u", others++);
	fd = file_open(path, O_RDWR | O_CREAT | O_DIRECT);
	while (count >= KIB(4) && at < 2 * LEFT_FREE) {
		ssize_t ret = pwrite(fd, junk, count, at);

		if (ret <= 0)
			count /= 16;
		else
			at += ret;
	}
	close(fd);
	free(junk);
}

void free_again(void)
{
	char path[32];

	while (others) {
		snprintf(path, sizeof(path), "other-%u", --others);
		unlink(path);
	}
	fs_sync();
}
