// SPDX-License-Identifier: GPL-2.0-only
/*
 * Direct reads return the file's content, never the previous content of its blocks or
 * data that another file has written there since. Tests every operation that moves or
 * frees blocks, on a small file system that reuses freed blocks at once. timeout=300
 */
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <linux/falloc.h>
#include <linux/fs.h>

#include "model.h"
#include "moves.h"
#include "tight.h"

static bool unsupported(int ret)
{
	if (!ret)
		return false;
	if (errno == EOPNOTSUPP || errno == ENOTTY || errno == ENOSYS)
		return true;
	fail("%s", strerror(errno));
}

/* The functions below move or free blocks. They return false if that is not supported. */
static bool zero_by(struct file *f, int mode, uint64_t position, uint64_t length)
{
	if (unsupported(fallocate(f->fd, mode, position, length)))
		return false;
	memset(f->model + position, 0, length);
	return true;
}

#define PUNCH	(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

static bool punch(struct file *f)
{
	return zero_by(f, PUNCH, f->length / 4, f->length / 2) &&
	       zero_by(f, PUNCH, BLOCK, BLOCK);
}

static bool zero_range(struct file *f)
{
	return zero_by(f, FALLOC_FL_ZERO_RANGE, f->length / 4, f->length / 2);
}

static bool truncate_extend(struct file *f)
{
	check(!ftruncate(f->fd, f->length / 2));
	check(!ftruncate(f->fd, f->length));
	memset(f->model + f->length / 2, 0, f->length / 2);
	return true;
}

static bool truncate_rewrite(struct file *f)
{
	check(!ftruncate(f->fd, 0));
	/* This order makes different blocks likely. */
	file_put(f, f->length / 2, f->length / 2, BUFFERED);
	check(!fsync(f->fd));
	file_put(f, 0, f->length / 2, DIRECT);
	return true;
}

static bool collapse(struct file *f)
{
	uint64_t position = f->length / 4, length = 2 * BLOCK, end = f->length - length;

	if (unsupported(fallocate(f->fd, FALLOC_FL_COLLAPSE_RANGE, position, length)))
		return false;
	check(!ftruncate(f->fd, f->length));
	memmove(f->model + position, f->model + position + length, end - position);
	memset(f->model + end, 0, length);
	return true;
}

static bool insert(struct file *f)
{
	uint64_t position = f->length / 4, length = 3 * BLOCK;

	if (unsupported(fallocate(f->fd, FALLOC_FL_INSERT_RANGE, position, length)))
		return false;
	check(!ftruncate(f->fd, f->length));
	memmove(f->model + position + length, f->model + position,
		f->length - position - length);
	memset(f->model + position, 0, length);
	return true;
}

static bool fill_hole(struct file *f, enum how how)
{
	zero_by(f, PUNCH, f->length / 4, f->length / 2);
	file_prime(f);
	file_put(f, f->length / 4 + BLOCK, f->length / 4, how);
	return true;
}

static bool fill_hole_buffered(struct file *f) { return fill_hole(f, BUFFERED); }
static bool fill_hole_synced(struct file *f) { return fill_hole(f, SYNCED); }
static bool fill_hole_direct(struct file *f) { return fill_hole(f, DIRECT); }

static bool fill_unwritten(struct file *f)
{
	unsigned int how;

	zero_by(f, PUNCH, f->length / 4, f->length / 2);
	if (unsupported(fallocate(f->fd, 0, f->length / 4, f->length / 2)))
		return false;
	file_prime(f);
	for (how = 0; how < HOWS; how++) {
		file_put(f, f->length / 4 + how * 2 * BLOCK, BLOCK, how);
		file_check(f, "a part written");
	}
	return true;
}

static bool overwrite(struct file *f)
{
	unsigned int how;

	for (how = 0; how < HOWS; how++) {
		file_put(f, how * BLOCK * 2, f->length / 4, how);
		file_check(f, "a part overwritten");
	}
	return true;
}

/* A clone shares the blocks; the first write gets new ones. */
static bool share_write(struct file *f, enum how how)
{
	struct file g;

	file_empty(&g, "clone", 0);
	if (unsupported(ioctl(g.fd, FICLONE, f->fd))) {
		file_remove(&g);
		return false;
	}
	g.length = f->length;
	memcpy(g.model, f->model, LARGE);
	file_prime(f);
	file_prime(&g);
	file_put(f, f->length / 4, BLOCK, how);
	file_check(f, "a block overwritten");
	file_put(f, f->length / 2, f->length / 4, how);
	file_check(f, "a quarter overwritten");
	file_check(&g, "the clone's source overwritten");
	file_put(&g, f->length / 4, f->length / 2, how);
	file_check(&g, "the clone overwritten");
	file_check(f, "its clone overwritten");
	file_remove(&g);
	return true;
}

static bool clone_buffered(struct file *f) { return share_write(f, BUFFERED); }
static bool clone_synced(struct file *f) { return share_write(f, SYNCED); }
static bool clone_direct(struct file *f) { return share_write(f, DIRECT); }

/* The file's blocks are freed, and it gets another file's. */
static bool clone_over(struct file *f)
{
	struct file_clone_range range = {
		.src_offset = SMALL / 2, .src_length = SMALL / 4, .dest_offset = SMALL / 4,
	};
	struct file g;
	bool can;

	file_create(&g, "source", false);
	range.src_fd = g.fd;
	can = !unsupported(ioctl(f->fd, FICLONERANGE, &range));
	if (can)
		memcpy(f->model + range.dest_offset, g.model + range.src_offset,
		       range.src_length);
	file_remove(&g);
	return can;
}

static bool remove_create(struct file *f)
{
	const char *path = f->path;
	bool many = f->length == LARGE;

	file_remove(f);
	fs_sync();
	/* Likely the same inode and the same blocks */
	file_create(f, path, many);
	return true;
}

static bool move_extent(struct file *f)
{
	struct stat st;
	int64_t moved;
	int donor;

	if (strcmp(guest_fs(), "ext4"))
		return false;
	check(!fstat(f->fd, &st));
	donor = file_open("donor", O_RDWR | O_CREAT | O_TRUNC);
	check(!ftruncate(donor, f->length));
	if (fallocate(donor, 0, 0, f->length)) {
		fd_pattern_write(donor, 0, f->length, 7);
		check(!fsync(donor));
	}
	moved = move_blocks(f->fd, donor, 0, f->length / st.st_blksize);
	check(moved);
	/* Linux 6.12 stops at a hole. */
	if (moved < 0 && moved != -ENODATA && moved != -EOPNOTSUPP && moved != -EINVAL)
		fail("EXT4_IOC_MOVE_EXT: %s", strerror(-moved));
	/* The donor now has the blocks. */
	fd_pattern_write(donor, 0, f->length, 8);
	check(!fsync(donor));
	close(donor);
	unlink("donor");
	return moved > 0 || moved == -ENODATA;
}

static bool swap_boot(struct file *f)
{
	unsigned char *old = allocate(LARGE);

	if (strcmp(guest_fs(), "ext4") || swap_with_boot(f->fd)) {
		free(old);
		return false;
	}
	memcpy(old, f->model, LARGE);
	check(!ftruncate(f->fd, f->length));
	file_put(f, 0, f->length, DIRECT);
	file_prime(f);
	expect(swap_with_boot(f->fd), 0);
	memcpy(f->model, old, LARGE);
	free(old);
	return true;
}

static bool swap_extents(struct file *f)
{
	struct file donor;
	int ret;

	if (strcmp(guest_fs(), "xfs"))
		return false;
	file_empty(&donor, "donor", f->length);
	file_put(&donor, 0, f->length, DIRECT);
	check(!fsync(donor.fd));
	file_prime(&donor);

	ret = swap_files(f->fd, donor.fd, f->length);
	if (ret) {
		printf("XFS_IOC_SWAPEXT: %s\n", strerror(-ret));
	} else {
		unsigned char *model = f->model;

		f->model = donor.model;
		donor.model = model;
		file_check(&donor, "the donor");
		/* The change counters that were swapped in continue. */
		file_put(&donor, 0, f->length / 2, BUFFERED);
		check(!ftruncate(donor.fd, f->length / 2));
	}
	file_remove(&donor);
	return !ret;
}

static const struct {
	const char *name;
	bool (*change)(struct file *f);
} changes[] = {
	{ "punch", punch },
	{ "zero range", zero_range },
	{ "truncate and extend", truncate_extend },
	{ "truncate and rewrite", truncate_rewrite },
	{ "collapse", collapse },
	{ "insert", insert },
	{ "buffered write into a hole", fill_hole_buffered },
	{ "buffered write into a hole, synced", fill_hole_synced },
	{ "direct write into a hole", fill_hole_direct },
	{ "write into unwritten blocks", fill_unwritten },
	{ "overwrite", overwrite },
	{ "clone, buffered write", clone_buffered },
	{ "clone, buffered write, synced", clone_synced },
	{ "clone, direct write", clone_direct },
	{ "clone over", clone_over },
	{ "remove and create", remove_create },
	{ "move extent", move_extent },
	{ "boot loader swap", swap_boot },
	{ "swap extents", swap_extents },
};

static void change_each(const char *variant)
{
	unsigned int i, many, done = 0;
	struct file f;

	for (i = 0; i < ARRAY_SIZE(changes); i++)
		for (many = 0; many < 2; many++) {
			trying("%s: %s, %s", variant, changes[i].name,
			       many ? "many extents" : "one extent");
			file_create(&f, "data", many);
			file_prime(&f);
			if (changes[i].change(&f)) {
				file_check(&f, "at once");
				use_again();
				file_check(&f, "blocks used again");
				done++;
			}
			file_remove(&f);
			free_again();
		}
	printf("%s: %u changes\n", variant, done);
}

/* On the same file */
static void change_in_a_row(const char *variant)
{
	unsigned int i, many;
	struct file f;

	for (many = 0; many < 2; many++) {
		uint64_t state = 0x1234567;

		file_create(&f, "data", many);
		for (i = 0; i < 32; i++) {
			unsigned int which = random_below(&state, ARRAY_SIZE(changes));

			trying("%s: step %u, %s, %s", variant, i, changes[which].name,
			       many ? "many extents" : "one extent");
			changes[which].change(&f);
			file_check(&f, "at once");
			if (i % 8 == 7) {
				use_again();
				file_check(&f, "blocks used again");
				free_again();
			}
			/* The file does not change for some reads. */
			if (i % 2)
				file_prime(&f);
		}
		file_remove(&f);
	}
}

int main(void)
{
	/* On a debug kernel one of them takes minutes. */
	bool patient = !getenv("TESTS_GUEST_SLOW");

	in_tight_fs(patient, change_each);
	if (patient)
		in_tight_fs(false, change_in_a_row);
	return 0;
}
