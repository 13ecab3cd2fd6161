// SPDX-License-Identifier: GPL-2.0-only
/*
 * The second disk through the device mapper, and file systems on it
 */
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "small.h"

static uint64_t size;

static void load(const char *command, const char *table)
{
	expect(run_command("dmsetup --noudevsync %s dio-test <<'END'\n%sEND\n", command, table), 0);
}

static void reload(const char *table)
{
	load("reload", table);
	/* Without flushing: what is in flight may fail, too. */
	expect(run_command("dmsetup --noudevsync --nolockfs resume dio-test"), 0);
}

void disk_create(uint64_t bytes)
{
	char table[128];

	if (run_command("dmsetup version >/dev/null 2>&1"))
		skip("no device mapper");
	run_command("dmsetup --noudevsync remove dio-test 2>/dev/null");
	size = bytes / 512;
	snprintf(table, sizeof(table), "0 %llu linear %s 0\n", (unsigned long long)size, raw_disk());
	load("create", table);
	expect(run_command("dmsetup mknodes dio-test >/dev/null"), 0);
	check(!access(DISK_PATH, F_OK));
}

void disk_break(uint64_t start, uint64_t length)
{
	unsigned long long from = start / 512, sectors = length / 512, end = from + sectors;
	const char *disk = raw_disk();
	char table[512];
	int n = 0;

	if (from)
		n += snprintf(table + n, sizeof(table) - n, "0 %llu linear %s 0\n", from, disk);
	if (sectors)
		n += snprintf(table + n, sizeof(table) - n, "%llu %llu error\n", from, sectors);
	if (end < size)
		snprintf(table + n, sizeof(table) - n, "%llu %llu linear %s %llu\n", end,
			 (unsigned long long)size - end, disk, end);
	reload(table);
}

void disk_fail_reads(void)
{
	char table[128];

	snprintf(table, sizeof(table), "0 %llu flakey %s 0 0 3600 1 error_reads\n",
		 (unsigned long long)size, raw_disk());
	reload(table);
}

void disk_slow(unsigned int ms)
{
	const char *disk = raw_disk();
	char table[256];

	if (ms)
		snprintf(table, sizeof(table), "0 %llu delay %s 0 %u %s 0 0\n",
			 (unsigned long long)size, disk, ms, disk);
	else
		snprintf(table, sizeof(table), "0 %llu linear %s 0\n", (unsigned long long)size, disk);
	reload(table);
}

void disk_remove(void)
{
	int i;

	for (i = 0; i < 50; i++) {
		if (!run_command("dmsetup --noudevsync remove dio-test 2>/dev/null"))
			return;
		sleep_ms(100);
	}
	fail("the mapped device cannot be removed");
}

bool disk_format(const char *device, const char *type, const char *options)
{
	return !run_command("mkfs.%s -q %s %s %s >/dev/null 2>&1", type,
			    !strcmp(type, "ext4") ? "-F" : "-f", options, device);
}

void disk_mount(const char *device, const char *type, const char *options)
{
	mkdir("mnt", 0700);
	if (mount(device, "mnt", type, 0, options))
		fail("%s cannot be mounted as %s: %s", device, type, strerror(errno));
}

void disk_unmount(void)
{
	int i;

	/* What io_uring had registered is let go a little after its ring. */
	for (i = 0; i < 50; i++) {
		if (!umount("mnt"))
			return;
		sleep_ms(100);
	}
	fail("the file system is still in use");
}

const char *test_fs(void)
{
	const char *type = getenv("DMABUF_DIO_FS");

	if (!type || (strcmp(type, "ext4") && strcmp(type, "xfs")))
		skip("about ext4 and XFS");
	return type;
}

uint64_t disk_position(const char *path, uint64_t position)
{
	struct {
		struct fiemap map;
		struct fiemap_extent extent;
	} query = {
		.map = {
			.fm_start = position, .fm_length = 1,
			.fm_flags = FIEMAP_FLAG_SYNC, .fm_extent_count = 1,
		},
	};
	int fd = file_open(path, O_RDONLY);

	check(!ioctl(fd, FS_IOC_FIEMAP, &query));
	close(fd);
	check(query.map.fm_mapped_extents == 1);
	return query.extent.fe_physical + position - query.extent.fe_logical;
}
