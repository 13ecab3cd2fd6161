/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Calls that exchange the blocks of two files. They return 0 or -errno.
 */
#ifndef TESTS_SMALL_READS_MOVES_H
#define TESTS_SMALL_READS_MOVES_H

#include "lib.h"

/* ext4: the content stays, only the blocks are exchanged; returns the number moved. */
int64_t move_blocks(int fd, int donor, uint64_t first, uint64_t count);
/* ext4: with the boot loader's inode */
int swap_with_boot(int fd);
/* XFS: all of two files of @length */
int swap_files(int fd, int donor, uint64_t length);

/* XFS: the mapping is rebuilt from the known owners of the blocks. */
int rebuild_mapping(int fd);

/* XFS: like swap_files(), unless the file has been written since commit_begin() */
struct commit {
	int32_t donor;
	uint32_t pad;
	uint64_t donor_offset, file_offset, length, flags;
	uint64_t freshness[6];
};
int commit_begin(int fd, struct commit *commit);
int commit_files(int fd, int donor, struct commit *commit);

#endif
