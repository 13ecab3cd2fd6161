// SPDX-License-Identifier: GPL-2.0-only
/*
 * Direct reads bring what a file holds, and never what its blocks held before or
 * what another file wrote there since: after every way in which a file's blocks
 * change or go away, on a small file system that uses freed blocks again at once.
 * The reads before that give a kernel that remembers where blocks are something
 * to remember. timeout=300
 */
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#include <linux/aio_abi.h>
#include <linux/falloc.h>
#include <linux/fs.h>

#include "lib.h"

#define BLOCK		KIB(4)
#define SMALL		KIB(256)	/* written at once: one extent or a few */
#define LARGE		KIB(2816)	/* every other block: 352 extents */
#define DEPTH		32
#define LEFT_FREE	MIB(24)		/* of the file system, beside one huge file */
#define RACE_SECONDS	10

static int root;			/* the mounted directory */
static const char *type;
static uint64_t seeds = 1;

/*
 * Reading
 */
enum method { SYNC, AIO, RING, RING_FIXED, METHODS };

static const char * const method_names[METHODS] = {
	"sync", "libaio", "io_uring", "io_uring fixed",
};

/* All methods with both sizes */
#define WAYS		(2 * METHODS)
#define way_method(way)	((way) / 2)
#define way_piece(way)	((way) % 2 ? KIB(64) : KIB(4))

struct reader {
	unsigned char *data;
	int results[LARGE / BLOCK];
	aio_context_t aio;
	struct io_uring ring;
	bool has_ring;
};

static void reader_create(struct reader *r)
{
	struct iovec vec = { .iov_len = LARGE };

	memset(r, 0, sizeof(*r));
	r->data = allocate(LARGE);
	vec.iov_base = r->data;
	check(!syscall(SYS_io_setup, DEPTH, &r->aio));
	r->has_ring = !io_uring_queue_init(DEPTH, &r->ring, 0);
	if (r->has_ring)
		expect(io_uring_register_buffers(&r->ring, &vec, 1), 0);
}

static void reader_destroy(struct reader *r)
{
	syscall(SYS_io_destroy, r->aio);
	if (r->has_ring)
		io_uring_queue_exit(&r->ring);
	free(r->data);
}

static void read_aio(struct reader *r, int fd, uint64_t position, size_t piece,
		     unsigned int first, unsigned int count)
{
	struct iocb iocbs[DEPTH], *pointers[DEPTH];
	struct io_event events[DEPTH];
	unsigned int i, sent = 0, got = 0;
	long ret;

	for (i = 0; i < count; i++) {
		pointers[i] = &iocbs[i];
		iocbs[i] = (struct iocb){
			.aio_data = first + i,
			.aio_lio_opcode = IOCB_CMD_PREAD,
			.aio_fildes = fd,
			.aio_buf = (uintptr_t)r->data + (first + i) * piece,
			.aio_nbytes = piece,
			.aio_offset = position + (first + i) * piece,
		};
	}
	while (got < count) {
		if (sent < count) {
			ret = syscall(SYS_io_submit, r->aio, count - sent, pointers + sent);
			if (ret < 0)
				fail("io_submit: %s", strerror(errno));
			sent += ret;
		}
		ret = syscall(SYS_io_getevents, r->aio, 1, DEPTH, events, NULL);
		if (ret < 0 && errno == EINTR)
			continue;
		check(ret > 0);
		for (i = 0; i < ret; i++)
			r->results[events[i].data] = events[i].res;
		got += ret;
	}
}

static void read_ring(struct reader *r, bool fixed, int fd, uint64_t position,
		      size_t piece, unsigned int first, unsigned int count)
{
	struct io_uring_cqe *cqe;
	unsigned int i;
	int ret;

	for (i = first; i < first + count; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);

		check(sqe);
		io_uring_prep_rw(fixed ? IORING_OP_READ_FIXED : IORING_OP_READ, sqe, fd,
				 r->data + i * piece, piece, position + i * piece);
		sqe->user_data = i;
	}
	expect(io_uring_submit(&r->ring), count);
	for (i = 0; i < count; i++) {
		do {
			ret = io_uring_wait_cqe(&r->ring, &cqe);
		} while (ret == -EINTR);
		expect(ret, 0);
		r->results[cqe->user_data] = cqe->res;
		io_uring_cqe_seen(&r->ring, cqe);
	}
}

/* To r->data, zeros behind the end of the file; returns what there is of it. */
static uint64_t read_direct(struct reader *r, unsigned int way, int fd,
			    uint64_t position, uint64_t length)
{
	enum method method = way_method(way);
	size_t piece = way_piece(way);
	unsigned int i, pieces = length / piece;
	uint64_t done = 0;

	if (method >= RING && !r->has_ring)
		method = AIO;
	memset(r->data, 0, length);
	for (i = 0; i < pieces; i += DEPTH) {
		unsigned int j, count = pieces - i < DEPTH ? pieces - i : DEPTH;

		if (method == AIO)
			read_aio(r, fd, position, piece, i, count);
		else if (method >= RING)
			read_ring(r, method == RING_FIXED, fd, position, piece, i, count);
		else
			for (j = i; j < i + count; j++) {
				ssize_t ret = pread(fd, r->data + j * piece, piece,
						    position + j * piece);

				r->results[j] = ret < 0 ? -errno : ret;
			}
	}
	for (i = 0; i < pieces; i++) {
		/* io_uring of older kernels does not always try again itself. */
		if (r->results[i] == -EAGAIN)
			r->results[i] = pread(fd, r->data + i * piece, piece,
					      position + i * piece);
		if (r->results[i] < 0)
			fail("read of %zu at %llu, %s: %s", piece,
			     (unsigned long long)(position + i * piece),
			     method_names[method], strerror(-r->results[i]));
		done += r->results[i];
	}
	return done;
}

/*
 * Files with a model of what they hold
 */
struct file {
	const char *path;
	int fd, direct;
	uint64_t length;		/* a multiple of 64 KiB */
	unsigned char *model;
};

static struct reader reader;
static unsigned int turn;
static unsigned int others;

static void file_check(struct file *f, const char *when)
{
	unsigned int i, ways = f->length > SMALL ? 2 : WAYS;

	/* Each time begins with another way: the first read is the test. */
	turn++;
	for (i = 0; i < ways; i++) {
		unsigned int way = (turn + i) % WAYS;
		uint64_t at;

		expect(read_direct(&reader, way, f->direct, 0, f->length), f->length);
		if (!memcmp(reader.data, f->model, f->length))
			continue;
		for (at = 0; reader.data[at] == f->model[at];)
			at++;
		at -= at % BLOCK;
		fprintf(stderr, "%s: the %u. read, %s of %llu, differs from byte %llu on\n",
			when, i + 1, method_names[way_method(way)],
			(unsigned long long)way_piece(way), (unsigned long long)at);
		bytes_check(reader.data + at, f->model + at, BLOCK);
	}
}

static void prime(struct file *f)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		read_direct(&reader, 2 * (i ? RING : SYNC), f->direct, 0, f->length);
		bytes_check(reader.data, f->model, f->length);
	}
	file_check(f, "before");
}

enum how { BUFFERED, SYNCED, DIRECT, HOWS };

static void file_put(struct file *f, uint64_t position, uint64_t length, enum how how)
{
	unsigned char *data = f->model + position;

	pattern_fill(data, position, length, ++seeds);
	fd_write(how == DIRECT ? f->direct : f->fd, data, length, position);
	if (how == SYNCED)
		check(!fsync(f->fd));
}

static bool unsupported(int ret)
{
	if (!ret)
		return false;
	if (errno == EOPNOTSUPP || errno == ENOTTY || errno == ENOSYS)
		return true;
	fail("%s", strerror(errno));
}

static void file_open_both(struct file *f, int flags)
{
	f->fd = file_open(f->path, O_RDWR | flags);
	f->direct = file_open(f->path, O_RDWR | O_DIRECT);
}

static void file_create(struct file *f, const char *path, bool many)
{
	uint64_t at;

	*f = (struct file){ .path = path, .length = many ? LARGE : SMALL };
	f->model = allocate(LARGE);
	memset(f->model, 0, LARGE);
	file_open_both(f, O_CREAT | O_TRUNC);
	check(!ftruncate(f->fd, f->length));
	if (many)
		for (at = 0; at < f->length; at += 2 * BLOCK)
			file_put(f, at, BLOCK, BUFFERED);
	else
		file_put(f, 0, f->length, BUFFERED);
	check(!fsync(f->fd));
}

static void file_remove(struct file *f)
{
	close(f->fd);
	close(f->direct);
	unlink(f->path);
	free(f->model);
}

/* Fills what is free with content of nobody's. */
static void use_again(void)
{
	static unsigned char *junk;
	uint64_t at = 0;
	size_t count = MIB(1);
	char path[32];
	int fd;

	if (!junk) {
		junk = allocate(MIB(1));
		memset(junk, 0xa5, MIB(1));
	}
	check(!syncfs(root));
	snprintf(path, sizeof(path), "other-%u", others++);
	fd = file_open(path, O_RDWR | O_CREAT | O_DIRECT);
	while (count >= BLOCK && at < 2 * LEFT_FREE) {
		ssize_t ret = pwrite(fd, junk, count, at);

		if (ret <= 0)
			count /= 16;
		else
			at += ret;
	}
	close(fd);
}

static void free_again(void)
{
	char path[32];

	while (others) {
		snprintf(path, sizeof(path), "other-%u", --others);
		unlink(path);
	}
	check(!syncfs(root));
}

/*
 * What moves blocks or takes them away. Returns false where that is unknown.
 */
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
	/* In an order that makes other blocks likely */
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
	prime(f);
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
	prime(f);
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

/* A clone shares the blocks; who writes first gets others. */
static bool share_write(struct file *f, enum how how)
{
	struct file g = { .path = "clone", .length = f->length };

	file_open_both(&g, O_CREAT | O_TRUNC);
	if (unsupported(ioctl(g.fd, FICLONE, f->fd))) {
		close(g.fd);
		close(g.direct);
		unlink(g.path);
		return false;
	}
	g.model = allocate(LARGE);
	memcpy(g.model, f->model, LARGE);
	prime(f);
	prime(&g);
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

/* Its own blocks go, and it gets those of another one. */
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
	struct file old = *f;
	bool many = f->length == LARGE;

	close(f->fd);
	close(f->direct);
	check(!unlink(f->path));
	check(!syncfs(root));
	/* Likely the same inode and the same blocks */
	file_create(f, old.path, many);
	free(old.model);
	return true;
}

/* The kernel's header is not for programs. */
struct move_extent {
	uint32_t reserved;
	uint32_t donor_fd;
	uint64_t orig_start, donor_start, len, moved_len;
};
#define EXT4_IOC_MOVE_EXT	_IOWR('f', 15, struct move_extent)
#define EXT4_IOC_SWAP_BOOT	_IO('f', 17)

static bool move_extent(struct file *f)
{
	struct move_extent move = { 0 };
	struct stat st;
	int donor;
	bool can;

	if (strcmp(type, "ext4"))
		return false;
	check(!fstat(f->fd, &st));
	move.len = f->length / st.st_blksize;
	donor = file_open("donor", O_RDWR | O_CREAT | O_TRUNC);
	check(!ftruncate(donor, f->length));
	if (fallocate(donor, 0, 0, f->length)) {
		fd_pattern_write(donor, 0, f->length, 7);
		check(!fsync(donor));
	}
	move.donor_fd = donor;
	can = !ioctl(f->fd, EXT4_IOC_MOVE_EXT, &move);
	if (can)
		check(move.moved_len);
	else if (errno == ENODATA)
		can = true;		/* Linux 6.12 stops at a hole. */
	else if (errno != EOPNOTSUPP && errno != EINVAL)
		fail("EXT4_IOC_MOVE_EXT: %s", strerror(errno));
	/* The donor has the blocks now. */
	fd_pattern_write(donor, 0, f->length, 8);
	check(!fsync(donor));
	close(donor);
	unlink("donor");
	return can;
}

static bool swap_boot(struct file *f)
{
	unsigned char *old = allocate(LARGE);

	if (strcmp(type, "ext4") || ioctl(f->fd, EXT4_IOC_SWAP_BOOT)) {
		free(old);
		return false;
	}
	memcpy(old, f->model, LARGE);
	check(!ftruncate(f->fd, f->length));
	file_put(f, 0, f->length, DIRECT);
	prime(f);
	check(!ioctl(f->fd, EXT4_IOC_SWAP_BOOT));
	memcpy(f->model, old, LARGE);
	free(old);
	return true;
}

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
#define XFS_IOC_SWAPEXT	_IOWR('X', 109, struct swapext)

static bool swap_extents(struct file *f)
{
	struct swapext swap = { .length = f->length };
	struct file donor;
	struct stat st;
	bool can;

	if (strcmp(type, "xfs"))
		return false;
	donor = (struct file){ .path = "donor", .length = f->length };
	donor.model = allocate(LARGE);
	file_open_both(&donor, O_CREAT | O_TRUNC);
	check(!ftruncate(donor.fd, f->length));
	file_put(&donor, 0, f->length, DIRECT);
	check(!fsync(donor.fd));
	prime(&donor);

	check(!fstat(f->fd, &st));
	swap.target = f->fd;
	swap.donor = donor.fd;
	swap.stat.ino = st.st_ino;
	swap.stat.mtime = (struct xfs_time){ st.st_mtim.tv_sec, st.st_mtim.tv_nsec };
	swap.stat.ctime = (struct xfs_time){ st.st_ctim.tv_sec, st.st_ctim.tv_nsec };
	can = !ioctl(f->fd, XFS_IOC_SWAPEXT, &swap);
	if (!can) {
		printf("XFS_IOC_SWAPEXT: %s\n", strerror(errno));
	} else {
		unsigned char *model = f->model;

		f->model = donor.model;
		donor.model = model;
		file_check(&donor, "the donor");
		/* Numbers that came from the other one go on. */
		file_put(&donor, 0, f->length / 2, BUFFERED);
		check(!ftruncate(donor.fd, f->length / 2));
	}
	file_remove(&donor);
	return can;
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
			prime(&f);
			if (changes[i].change(&f)) {
				file_check(&f, "at once");
				use_again();
				file_check(&f, "blocks used again");
				done++;
			}
			file_remove(&f);
			free_again();
		}

	/* One after the other on the same file */
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
			/* A file that keeps the state it is in for some reads */
			if (i % 2)
				prime(&f);
		}
		file_remove(&f);
	}
	printf("%s: %u changes\n", variant, done);
}

/*
 * Readers beside those who change. Each word of a block says whose it is and of
 * which version, so that it does not matter what a read and a write do to each
 * other. There are two files: one whose blocks stay in their places but come and
 * go, one whose blocks move; and a third that takes what they lose.
 */
enum { MINE = 1, MOVING, FOREIGN };

#define RACE_BLOCKS	(LARGE / BLOCK)
#define WORDS		(BLOCK / sizeof(uint64_t))

static volatile bool stop;
static _Atomic uint64_t oldest[RACE_BLOCKS];	/* that a read may still find */
static _Atomic uint64_t newest[RACE_BLOCKS];

static uint64_t word_make(unsigned int owner, uint64_t block, uint64_t version)
{
	return (uint64_t)owner << 60 | (block & 0xfffff) << 40 | version;
}

static void block_fill(uint64_t *words, unsigned int owner, uint64_t block, uint64_t version)
{
	unsigned int i;

	for (i = 0; i < WORDS; i++)
		words[i] = word_make(owner, block, version);
}

/* There may be no space until the journal has let go of what was freed. */
static void write_patiently(int fd, const void *data, size_t length, uint64_t position)
{
	unsigned int i;

	for (i = 0; i < 100; i++) {
		ssize_t ret = pwrite(fd, data, length, position);

		if (ret == (ssize_t)length)
			return;
		if (ret < 0 && errno != ENOSPC)
			fail("pwrite: %s", strerror(errno));
		check(!syncfs(root));
		sleep_ms(10);
	}
	fail("no space");
}

static void *come_and_go(void *arg)
{
	int fd = file_open("mine", O_RDWR), direct = file_open("mine", O_RDWR | O_DIRECT);
	uint64_t *data = allocate(KIB(64)), state = 99, version = 1;
	unsigned int rounds = 0;

	(void)arg;
	while (!stop) {
		unsigned int count = 1 + random_below(&state, 16);
		unsigned int first = random_below(&state, RACE_BLOCKS - count);
		unsigned int what = random_below(&state, 5), i;

		/* Much happens, or nothing for a time that lets readers learn. */
		if (++rounds % 64 == 0)
			sleep_ms(20);
		version++;
		for (i = 0; i < count; i++) {
			block_fill(data + i * WORDS, MINE, first + i, version);
			newest[first + i] = version;
		}
		switch (what) {
		case 0:
			check(!fallocate(fd, PUNCH, first * BLOCK, count * BLOCK));
			break;
		case 1:
			write_patiently(fd, data, count * BLOCK, first * BLOCK);
			break;
		case 2:
			write_patiently(direct, data, count * BLOCK, first * BLOCK);
			break;
		case 3:
			check(!fallocate(fd, PUNCH, first * BLOCK, count * BLOCK));
			write_patiently(direct, data, count * BLOCK, first * BLOCK);
			break;
		case 4:
			/* Everything behind goes. */
			if (random_below(&state, 20))
				break;
			count = RACE_BLOCKS - first;
			for (i = 0; i < count; i++)
				newest[first + i] = version;
			check(!ftruncate(fd, first * BLOCK));
			check(!ftruncate(fd, LARGE));
			break;
		}
		/* What was not written has zeros or what it had. */
		if (what != 4 || count == RACE_BLOCKS - first)
			for (i = 0; i < count; i++)
				oldest[first + i] = version;
	}
	close(fd);
	close(direct);
	free(data);
	return NULL;
}

static void *move_about(void *arg)
{
	int fd = file_open("moving", O_RDWR), direct = file_open("moving", O_RDWR | O_DIRECT);
	uint64_t *data = allocate(KIB(64)), state = 77, version = 1;

	(void)arg;
	while (!stop) {
		unsigned int count = 1 + random_below(&state, 16), i;
		unsigned int from = random_below(&state, RACE_BLOCKS - 2 * count);
		unsigned int to = random_below(&state, RACE_BLOCKS - 2 * count);

		if (fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, from * BLOCK, count * BLOCK) ||
		    fallocate(fd, FALLOC_FL_INSERT_RANGE, to * BLOCK, count * BLOCK)) {
			if (errno == ENOSPC) {
				check(!syncfs(root));
				check(!ftruncate(fd, LARGE));
				continue;
			}
			check(errno == EOPNOTSUPP);
			break;
		}
		version++;
		for (i = 0; i < count; i++)
			block_fill(data + i * WORDS, MOVING, to + i, version);
		write_patiently(random_below(&state, 2) ? fd : direct, data,
				count * BLOCK, to * BLOCK);
		sleep_ms(random_below(&state, 4));
	}
	close(fd);
	close(direct);
	free(data);
	return NULL;
}

/* Takes blocks that were freed. */
static void *take(void *arg)
{
	uint64_t *data = allocate(MIB(1)), i;

	(void)arg;
	for (i = 0; i < MIB(1) / sizeof(*data); i++)
		data[i] = word_make(FOREIGN, i, i);
	while (!stop) {
		int fd = file_open("foreign", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT);

		check(!syncfs(root));
		for (i = 0; i < LEFT_FREE / 2 && !stop; i += MIB(1))
			if (pwrite(fd, data, MIB(1), i) < 0)
				check(errno == ENOSPC);
		close(fd);
		check(!unlink("foreign"));
	}
	free(data);
	return NULL;
}

/* Shares blocks, so that writes need others; lets go of what is shared much later. */
static void *share(void *arg)
{
	int from = file_open("mine", O_RDONLY);
	unsigned int i;

	(void)arg;
	for (i = 0; !stop; i++) {
		char path[32];
		int fd;

		snprintf(path, sizeof(path), "share-%u", i % 4);
		unlink(path);
		fd = file_open(path, O_RDWR | O_CREAT);
		if (ioctl(fd, FICLONE, from)) {
			check(errno == EOPNOTSUPP || errno == ENOTTY || errno == ENOSPC);
		}
		close(fd);
		sleep_ms(300);
	}
	close(from);
	return NULL;
}

static void words_check(const uint64_t *words, unsigned int owner, unsigned int block,
			uint64_t least, uint64_t most, unsigned int way)
{
	unsigned int i;

	for (i = 0; i < WORDS; i++) {
		uint64_t version = words[i] & ((1ULL << 40) - 1);

		if (!words[i])
			continue;
		if (words[i] >> 60 != owner)
			fail("block %u, %s of %llu: %#llx belongs to somebody else",
			     block, method_names[way_method(way)],
			     (unsigned long long)way_piece(way),
			     (unsigned long long)words[i]);
		if (owner != MINE)
			continue;
		if ((words[i] >> 40 & 0xfffff) != block || version < least || version > most)
			fail("block %u, %s of %llu: %#llx, versions %llu to %llu may be there",
			     block, method_names[way_method(way)],
			     (unsigned long long)way_piece(way),
			     (unsigned long long)words[i],
			     (unsigned long long)least, (unsigned long long)most);
	}
}

static void *look(void *arg)
{
	int mine = file_open("mine", O_RDONLY | O_DIRECT);
	int moving = file_open("moving", O_RDONLY | O_DIRECT);
	uint64_t state = 1000 + (uintptr_t)arg;
	uint64_t least[KIB(64) / BLOCK];
	struct reader *r = malloc(sizeof(*r));

	reader_create(r);
	while (!stop) {
		unsigned int way = random_below(&state, WAYS), i;
		unsigned int count = KIB(64) / BLOCK;
		unsigned int first = random_below(&state, RACE_BLOCKS / count) * count;

		for (i = 0; i < count; i++)
			least[i] = oldest[first + i];
		read_direct(r, way, mine, first * BLOCK, KIB(64));
		for (i = 0; i < count; i++)
			words_check((uint64_t *)(r->data + i * BLOCK), MINE, first + i,
				    least[i], newest[first + i], way);
		read_direct(r, way, moving, first * BLOCK, KIB(64));
		for (i = 0; i < count; i++)
			words_check((uint64_t *)(r->data + i * BLOCK), MOVING, first + i,
				    0, 0, way);
	}
	reader_destroy(r);
	free(r);
	close(mine);
	close(moving);
	return NULL;
}

static void race(const char *variant)
{
	void *(* const changers[])(void *) = { come_and_go, move_about, take, share };
	pthread_t threads[ARRAY_SIZE(changers) + 2];
	uint64_t *data = allocate(LARGE);
	unsigned int i, owner;

	trying("%s: race", variant);
	for (owner = MINE; owner <= MOVING; owner++) {
		int fd = file_open(owner == MINE ? "mine" : "moving",
				   O_RDWR | O_CREAT | O_TRUNC);

		for (i = 0; i < RACE_BLOCKS; i++) {
			block_fill(data + i * WORDS, owner, i, 1);
			oldest[i] = newest[i] = 1;
		}
		fd_write(fd, data, LARGE, 0);
		check(!fsync(fd));
		close(fd);
	}
	stop = false;
	for (i = 0; i < ARRAY_SIZE(threads); i++)
		check(!pthread_create(&threads[i], NULL,
				      i < ARRAY_SIZE(changers) ? changers[i] : look,
				      (void *)(uintptr_t)i));
	sleep_ms(RACE_SECONDS * 1000);
	stop = true;
	for (i = 0; i < ARRAY_SIZE(threads); i++)
		check(!pthread_join(threads[i], NULL));
	free(data);
}

/*
 * The file systems
 */
static const struct {
	const char *type, *name, *command;
	bool race;
} variants[] = {
	{ "ext4", "ext4", "mkfs.ext4 -q -F %s 400M", true },
	{ "ext4", "ext4, 1 KiB blocks", "mkfs.ext4 -q -F -b 1024 %s 400M", false },
	{ "ext4", "ext4, no extents", "mkfs.ext4 -q -F -O ^extents,^64bit %s 80M", false },
	{ "xfs", "xfs", "mkfs.xfs -q -f -m rmapbt=0,reflink=1 -d size=400m %s", true },
	{ "xfs", "xfs, reverse mapping", "mkfs.xfs -q -f -m rmapbt=1,reflink=1 -d size=400m %s",
	  false },
	{ "f2fs", "f2fs", "mkfs.f2fs -q -f %s 819200", true },
};

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

int main(void)
{
	const char *disk = raw_disk();
	unsigned int i, done = 0;

	type = getenv("DMABUF_DIO_FS") ?: "ext4";
	reader_create(&reader);
	check(!mkdir("mnt", 0700));
	for (i = 0; i < ARRAY_SIZE(variants); i++) {
		char command[256];

		if (strcmp(variants[i].type, type))
			continue;
		snprintf(command, sizeof(command), variants[i].command, disk);
		trying("%s", variants[i].name);
		expect(run_command("%s >/dev/null 2>&1", command), 0);
		if (mount(disk, "mnt", type, 0, NULL))
			fail("mount: %s", strerror(errno));
		check(!chdir("mnt"));
		root = file_open(".", O_RDONLY | O_DIRECTORY);
		leave_little();
		change_each(variants[i].name);
		if (variants[i].race)
			race(variants[i].name);
		check(!close(root));
		check(!chdir(".."));
		if (umount("mnt"))
			fail("umount: %s", strerror(errno));
		done++;
	}
	if (!done)
		skip("nothing is known about %s", type);
	reader_destroy(&reader);
	return 0;
}
