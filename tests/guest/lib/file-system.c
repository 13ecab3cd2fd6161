// SPDX-License-Identifier: GPL-2.0-only
/*
 * File systems on other disks
 */
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "lib.h"

const char *guest_fs(void)
{
	return getenv("DMABUF_DIO_FS") ?: "ext4";
}

bool fs_format(const char *device, const char *type, const char *options)
{
	return !run_command("mkfs.%s -q %s %s %s >/dev/null 2>&1", type,
			    !strcmp(type, "ext4") ? "-F" : "-f", options, device);
}

void fs_mount(const char *device, const char *type, const char *options)
{
	mkdir("mnt", 0700);
	if (mount(device, "mnt", type, 0, options))
		fail("%s cannot be mounted as %s: %s", device, type, strerror(errno));
}

uint64_t disk_position(const char *path, uint64_t position, uint64_t length)
{
	struct {
		struct fiemap map;
		struct fiemap_extent extent;
	} query = {
		.map = {
			.fm_start = position, .fm_length = length,
			.fm_flags = FIEMAP_FLAG_SYNC, .fm_extent_count = 1,
		},
	};
	int fd = file_open(path, O_RDONLY);

	check(!ioctl(fd, FS_IOC_FIEMAP, &query));
	close(fd);
	check(query.map.fm_mapped_extents == 1);
	check(query.extent.fe_logical + query.extent.fe_length >= position + length);
	return query.extent.fe_physical + position - query.extent.fe_logical;
}
