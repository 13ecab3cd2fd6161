// SPDX-License-Identifier: GPL-2.0-only
/* A file system with iomap_dio_ops of its own, f2fs, never sees the short path. */
#include "small.h"

int main(void)
{
	unsigned char *content = allocate(4096);
	int fd;

	hits();
	test_fs();
	if (PAGE != BLOCK)
		skip("blocks of f2fs are as large as pages, and 4 KiB");
	pattern_fill(content, 4096, 4096, 1);
	check(fs_format(raw_disk(), "f2fs", ""));
	fs_mount(raw_disk(), "f2fs", NULL);
	file_pattern("mnt/data", KIB(64), 1);
	fd = file_open("mnt/data", O_RDONLY | O_DIRECT);
	read_all_ways(.fd = fd, .position = 4096, .length = 4096, .path = LONG,
		      .result = 4096, .content = content, .whole = true);
	close(fd);
	disk_unmount();
	return 0;
}
