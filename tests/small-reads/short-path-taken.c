// SPDX-License-Identifier: GPL-2.0-only
/*
 * A read of at most one block, at any sector and into any memory that the disk can
 * address, takes the short path, for any block size. timeout=300
 */
#include <sys/statvfs.h>

#include "small.h"

#define LENGTH	KIB(256)

static void small_reads(const char *path)
{
	unsigned char *content = allocate(LENGTH);
	int fd = file_open(path, O_RDONLY | O_DIRECT);
	static const size_t shifts[] = { 0, 3584 };
	struct statvfs about;
	size_t length, i;

	pattern_fill(content, 0, LENGTH, 1);
	check(!fstatvfs(fd, &about));
	for (length = 512; length <= about.f_bsize; length *= 2) {
		for (i = 0; i < ARRAY_SIZE(shifts); i++) {
			uint64_t positions[] = { 0, 7 * 512, LENGTH - length };
			unsigned int n;

			for (n = 0; n < ARRAY_SIZE(positions); n++)
				read_all_ways(.fd = fd, .position = positions[n], .length = length,
					      .shift = shifts[i], .path = SHORT, .result = length,
					      .content = content + positions[n]);
		}
	}
	close(fd);
	free(content);
}

/* read() continues where the previous one ended. */
static void file_position(const char *path)
{
	char *memory = allocate(PAGE);
	int fd = file_open(path, O_RDONLY | O_DIRECT);
	struct hits before = hits();
	uint64_t at;

	for (at = 0; at < LENGTH; at += 512) {
		expect(read(fd, memory, 512), 512);
		expect(lseek(fd, 0, SEEK_CUR), at + 512);
		pattern_check(memory, at, 512, 1);
	}
	expect_path(hits_since(before), SHORT, LENGTH / 512);
	expect(read(fd, memory, 512), 0);
	close(fd);
	free(memory);
}

int main(void)
{
	static const char * const options[] = { "-b 1024", "-b 2048", "-b 4096" };
	static const char * const xfs[] = { "-b size=1024", "-b size=2048", "-b size=4096" };
	const char *type = test_fs();
	unsigned int i;

	hits();
	file_pattern("data", LENGTH, 1);
	small_reads("data");
	file_position("data");

	for (i = 0; i < ARRAY_SIZE(options); i++) {
		const char *option = strcmp(type, "xfs") ? options[i] : xfs[i];

		trying("%s %s", type, option);
		check(fs_format(raw_disk(), type, option));
		fs_mount(raw_disk(), type, NULL);
		file_pattern("mnt/data", LENGTH, 1);
		small_reads("mnt/data");
		disk_unmount();
	}
	return 0;
}
