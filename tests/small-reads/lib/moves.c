// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls that exchange the blocks of two files; they are not in the uapi headers.
 */
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "moves.h"

struct move_extent {
	uint32_t reserved;
	uint32_t donor_fd;
	uint64_t orig_start, donor_start, len, moved_len;
};

#define EXT4_IOC_MOVE_EXT	_IOWR('f', 15, struct move_extent)
#define EXT4_IOC_SWAP_BOOT	_IO('f', 17)

struct xfs_time { long tv_sec; int tv_nsec; };

struct swapext {
	int64_t version, target, donor, offset, length;
	char pad[16];
	struct {
		uint64_t ino;
		uint16_t mode, nlink;
		uint32_t uid, gid, rdev;
		int32_t blksize;
		int64_t size;
		struct xfs_time atime, mtime, ctime;
		int64_t blocks;
		uint32_t xflags;
		int32_t extsize, extents;
		uint32_t gen;
		uint16_t projid_lo, forkoff, projid_hi, sick, checked;
		unsigned char zero[2];
		uint32_t cowextsize, dmevmask;
		uint16_t dmstate, aextents;
	} stat;
};

struct scrub {
	uint32_t type, flags;
	uint64_t ino;
	uint32_t gen, agno;
	uint64_t reserved[5];
};

#define DATA_FORK		12
#define REPAIR			1
#define FORCE_REBUILD		(1 << 8)

#define XFS_IOC_SCRUB_METADATA	_IOWR('X', 60, struct scrub)
#define XFS_IOC_SWAPEXT		_IOWR('X', 109, struct swapext)
#define XFS_IOC_START_COMMIT	_IOR('X', 130, struct commit)
#define XFS_IOC_COMMIT_RANGE	_IOW('X', 131, struct commit)
#define TO_EOF			1

int64_t move_blocks(int fd, int donor, uint64_t first, uint64_t count)
{
	struct move_extent move = {
		.donor_fd = donor, .orig_start = first, .donor_start = first, .len = count,
	};

	return ioctl(fd, EXT4_IOC_MOVE_EXT, &move) ? -errno : (int64_t)move.moved_len;
}

int swap_with_boot(int fd)
{
	return ioctl(fd, EXT4_IOC_SWAP_BOOT) ? -errno : 0;
}

int swap_files(int fd, int donor, uint64_t length)
{
	struct swapext swap = { .target = fd, .donor = donor, .length = length };
	struct stat st;

	check(!fstat(fd, &st));
	swap.stat.ino = st.st_ino;
	swap.stat.mtime = (struct xfs_time){ st.st_mtim.tv_sec, st.st_mtim.tv_nsec };
	swap.stat.ctime = (struct xfs_time){ st.st_ctim.tv_sec, st.st_ctim.tv_nsec };
	return ioctl(fd, XFS_IOC_SWAPEXT, &swap) ? -errno : 0;
}

int rebuild_mapping(int fd)
{
	struct scrub scrub = { .type = DATA_FORK, .flags = REPAIR | FORCE_REBUILD };

	return ioctl(fd, XFS_IOC_SCRUB_METADATA, &scrub) ? -errno : 0;
}

int commit_begin(int fd, struct commit *commit)
{
	memset(commit, 0, sizeof(*commit));
	return ioctl(fd, XFS_IOC_START_COMMIT, commit) ? -errno : 0;
}

int commit_files(int fd, int donor, struct commit *commit)
{
	commit->donor = donor;
	commit->flags = TO_EOF;
	return ioctl(fd, XFS_IOC_COMMIT_RANGE, commit) ? -errno : 0;
}
