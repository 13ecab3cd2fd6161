// SPDX-License-Identifier: GPL-2.0-only
/*
 * Direct reads return what a model in memory says while files change at random. Each file has
 * one thread that changes it in every way, threads that read it through an open file that they
 * share and through others, and one that exchanges its blocks for others. timeout=120
 *
 * SMALL_READS_SECONDS: how long, with a timeout of its own (default 20)
 */
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <linux/falloc.h>
#include <linux/fs.h>

#include "moves.h"
#include "reader.h"

#define FILES		2
#define READERS		2
#define MOST		READ_MOST
#define AT_ONCE		KIB(256)	/* changed or read */

struct subject {
	char path[16], donor[16];
	int fd, direct;			/* shared by all threads */
	unsigned int number;
	pthread_rwlock_t lock;		/* of what follows; whoever writes it changes the content */
	unsigned char *model;		/* zero beyond the end */
	uint64_t length;
	uint64_t seed;
};

static struct subject subjects[FILES];
static volatile bool stop;
static _Atomic uint64_t changed, compared, moved;
static _Atomic bool immovable;

static bool is(const char *type)
{
	return !strcmp(guest_fs(), type);
}

static void compare(struct subject *s, struct reader *r, int fd, uint64_t position,
		    uint64_t length, unsigned int way, const char *who)
{
	uint64_t want, got, at;

	position -= position % KIB(64);
	length += -length % KIB(64);
	if (position + length > MOST)
		position = MOST - length;
	want = position >= s->length ? 0 : s->length - position;
	got = read_direct(r, way, fd, position, length);
	if (want > length)
		want = length;
	if (got == want && !memcmp(r->data, s->model + position, length)) {
		compared += length;
		return;
	}
	for (at = 0; at < length && r->data[at] == s->model[position + at];)
		at++;
	fail("%s: %s of %llu by a %s: %llu of %llu bytes at %llu, wrong from %llu on: %#x, not %#x",
	     s->path, method_names[way_method(way)], (unsigned long long)way_piece(way), who,
	     (unsigned long long)got, (unsigned long long)want, (unsigned long long)position,
	     (unsigned long long)(position + at), r->data[at], s->model[position + at]);
}

static void new_content(struct subject *s, uint64_t position, uint64_t length)
{
	pattern_fill(s->model + position, position, length, ++s->seed * FILES + s->number);
	if (position + length > s->length)
		s->length = position + length;
}

static void put_buffered(struct subject *s, uint64_t position, uint64_t length, uint64_t *state)
{
	new_content(s, position, length);
	fd_write(s->fd, s->model + position, length, position);
	if (!random_below(state, 4))
		check(!fdatasync(s->fd));
}

static void put_direct(struct subject *s, struct reader *r, uint64_t position, uint64_t length,
		       uint64_t *state)
{
	unsigned int way = random_below(state, WAYS);

	position -= position % BLOCK;
	length += -length % way_piece(way);
	if (position + length > MOST)
		position = MOST - length;
	new_content(s, position, length);
	memcpy(r->data, s->model + position, length);
	write_direct(r, way, s->direct, position, length);
}

/* Returns false if the file system lacks the operation. */
static bool allocate_by(struct subject *s, int mode, uint64_t position, uint64_t length)
{
	if (!fallocate(s->fd, mode, position, length))
		return true;
	if (errno != EOPNOTSUPP && errno != EINVAL)
		fail("%s: fallocate(%#x, %llu, %llu): %s", s->path, mode,
		     (unsigned long long)position, (unsigned long long)length, strerror(errno));
	return false;
}

static void zero(struct subject *s, int mode, uint64_t position, uint64_t length)
{
	if (!allocate_by(s, mode | FALLOC_FL_KEEP_SIZE, position, length))
		return;
	memset(s->model + position, 0, length);
}

static void collapse(struct subject *s, uint64_t position, uint64_t length)
{
	uint64_t rest;

	position -= position % BLOCK;
	length += -length % BLOCK;
	if (position + length >= s->length ||
	    !allocate_by(s, FALLOC_FL_COLLAPSE_RANGE, position, length))
		return;
	rest = s->length - position - length;
	memmove(s->model + position, s->model + position + length, rest);
	memset(s->model + position + rest, 0, length);
	s->length -= length;
}

static void insert(struct subject *s, uint64_t position, uint64_t length)
{
	position -= position % BLOCK;
	length += -length % BLOCK;
	if (position >= s->length || s->length + length > MOST ||
	    !allocate_by(s, FALLOC_FL_INSERT_RANGE, position, length))
		return;
	memmove(s->model + position + length, s->model + position, s->length - position);
	memset(s->model + position, 0, length);
	s->length += length;
}

static void resize(struct subject *s, uint64_t length)
{
	check(!ftruncate(s->fd, length));
	if (length < s->length)
		memset(s->model + length, 0, s->length - length);
	s->length = length;
}

/* A range of the file shares the blocks of another one. */
static void share(struct subject *s, uint64_t position, uint64_t length, uint64_t *state)
{
	struct file_clone_range range = { .src_fd = s->fd };

	length += -length % BLOCK;
	if (s->length < 4 * length)
		return;
	range.src_offset = random_below(state, s->length / 2 - length) / BLOCK * BLOCK;
	range.dest_offset = (s->length / 2 + position % (s->length / 2)) / BLOCK * BLOCK;
	range.src_length = length;
	if (range.dest_offset < range.src_offset + length || range.dest_offset + length > s->length)
		return;
	if (ioctl(s->fd, FICLONERANGE, &range)) {
		check(errno == EOPNOTSUPP || errno == ENOTTY || errno == EINVAL);
		return;
	}
	memcpy(s->model + range.dest_offset, s->model + range.src_offset, length);
}

static void change(struct subject *s, struct reader *r, uint64_t *state)
{
	uint64_t length = 1 + random_below(state, AT_ONCE - KIB(64));
	uint64_t position = random_below(state, MOST - length);

	switch (random_below(state, 12)) {
	case 0:
	case 1:
		put_buffered(s, position, length, state);
		break;
	case 2:
	case 3:
	case 4:
		put_direct(s, r, position, length, state);
		break;
	case 5:
		zero(s, FALLOC_FL_PUNCH_HOLE, position, length);
		break;
	case 6:
		zero(s, FALLOC_FL_ZERO_RANGE, position, length);
		break;
	case 7:
		collapse(s, position, length);
		break;
	case 8:
		insert(s, position, length);
		break;
	case 9:
		/* Rarely shortens the file, because other changes need content. */
		if (random_below(state, 4))
			resize(s, s->length + random_below(state, MOST - s->length + 1));
		else
			resize(s, position);
		break;
	case 10:
		allocate_by(s, FALLOC_FL_KEEP_SIZE, position, length);
		break;
	case 11:
		share(s, position, length, state);
		break;
	}
	changed++;
	compare(s, r, s->direct, position, length, random_below(state, WAYS), "writer");
}

static void *change_all_the_time(void *arg)
{
	struct reader *r = malloc(sizeof(*r));
	struct subject *s = arg;
	uint64_t state = 1 + s->number, rounds = 0;

	reader_create(r);
	while (!stop) {
		check(!pthread_rwlock_wrlock(&s->lock));
		change(s, r, &state);
		check(!pthread_rwlock_unlock(&s->lock));
		/* Readers find the file unchanged for some reads. */
		if (++rounds % 8 == 0)
			sleep_ms(5);
	}
	reader_destroy(r);
	free(r);
	return NULL;
}

static void *read_all_the_time(void *arg)
{
	struct reader *r = malloc(sizeof(*r));
	struct subject *s = arg;
	uint64_t state = (uintptr_t)&r ^ (uintptr_t)r, rounds = 0;
	int own = file_open(s->path, O_RDONLY | O_DIRECT);

	reader_create(r);
	while (!stop) {
		uint64_t position = random_below(&state, MOST);
		bool shared = random_below(&state, 2);

		check(!pthread_rwlock_rdlock(&s->lock));
		compare(s, r, shared ? s->direct : own, position, AT_ONCE,
			random_below(&state, WAYS), shared ? "reader" : "reader of its own");
		check(!pthread_rwlock_unlock(&s->lock));
		if (++rounds % 512)
			continue;
		close(own);
		own = file_open(s->path, O_RDONLY | O_DIRECT);
	}
	close(own);
	reader_destroy(r);
	free(r);
	return NULL;
}

/* Gives away blocks that later reads must not reach. */
static void spoil(int donor, uint64_t length)
{
	static const unsigned char junk[KIB(64)] = { [0 ... KIB(64) - 1] = 0xa5 };
	uint64_t at;

	for (at = 0; at < length; at += sizeof(junk))
		fd_write(donor, junk, sizeof(junk), at);
	check(!fdatasync(donor));
	check(!ftruncate(donor, 0));
}

static void move_in_ext4(struct subject *s, int donor, uint64_t *state)
{
	uint64_t first, count, per;
	struct stat st;
	int64_t ret;

	check(!fstat(s->fd, &st));
	per = st.st_blksize;
	check(!ftruncate(donor, MOST));
	if (fallocate(donor, 0, 0, MOST))
		fd_pattern_write(donor, 0, MOST, 1);
	count = 1 + random_below(state, MOST / per / 2);
	first = random_below(state, MOST / per - count);
	/* The file may have a hole there, end before, or be written at the same time. */
	ret = move_blocks(s->fd, donor, first, count);
	if (ret == -EOPNOTSUPP)
		immovable = true;
	else if (ret > 0)
		moved++;
	else
		check(ret == 0 || ret == -EINVAL || ret == -ENODATA || ret == -EBUSY ||
		      ret == -EAGAIN || ret == -ENOSPC);
	spoil(donor, MOST);
}

/* A rebuilt fork starts its own count of changes. */
static void rebuild_in_xfs(struct subject *s)
{
	int ret = rebuild_mapping(s->fd);

	if (!ret)
		moved++;
	else
		check(ret == -EOPNOTSUPP || ret == -ENOTTY || ret == -EBUSY || ret == -EINTR);
}

static void move_in_xfs(struct subject *s, int donor, uint64_t *state)
{
	bool swap = random_below(state, 2);
	unsigned char *data = NULL;
	struct commit commit;
	uint64_t length;
	struct stat st;
	int ret = 0;

	/*
	 * A swap allows no writers at all. A commit allows none when it begins: XFS
	 * detects later writes by the file's times, which change before a direct
	 * write.
	 */
	check(!pthread_rwlock_rdlock(&s->lock));
	if (!swap) {
		ret = commit_begin(s->fd, &commit);
		check(!pthread_rwlock_unlock(&s->lock));
	}
	check(!fstat(s->fd, &st));
	length = st.st_size;
	if (ret || !length)
		goto out;
	data = allocate(length);
	check(pread(s->fd, data, length, 0) >= 0);
	fd_write(donor, data, length, 0);
	check(!fdatasync(donor));
	ret = swap ? swap_files(s->fd, donor, length) : commit_files(s->fd, donor, &commit);
	if (!ret)
		moved++;
	else
		check(ret == -EBUSY || ret == -EINVAL || ret == -EOPNOTSUPP || ret == -ENOTTY ||
		      ret == -EFAULT);
out:
	if (swap)
		check(!pthread_rwlock_unlock(&s->lock));
	free(data);
	spoil(donor, length);
}

static void *move_all_the_time(void *arg)
{
	struct subject *s = arg;
	uint64_t state = 100 + s->number;
	int donor = file_open(s->donor, O_RDWR | O_CREAT | O_TRUNC);

	while (!stop && (is("ext4") || is("xfs"))) {
		if (is("ext4"))
			move_in_ext4(s, donor, &state);
		else if (!random_below(&state, 4))
			rebuild_in_xfs(s);
		else
			move_in_xfs(s, donor, &state);
		sleep_ms(random_below(&state, 5));
	}
	close(donor);
	return NULL;
}

static void subject_create(struct subject *s, unsigned int number)
{
	pthread_rwlockattr_t attributes;

	s->number = number;
	snprintf(s->path, sizeof(s->path), "file-%u", number);
	snprintf(s->donor, sizeof(s->donor), "donor-%u", number);
	s->fd = file_open(s->path, O_RDWR | O_CREAT | O_TRUNC);
	s->direct = file_open(s->path, O_RDWR | O_DIRECT);
	s->model = allocate(MOST);
	memset(s->model, 0, MOST);
	pthread_rwlockattr_init(&attributes);
	pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	check(!pthread_rwlock_init(&s->lock, &attributes));
}

int main(void)
{
	static void *(* const work[])(void *) = { change_all_the_time, move_all_the_time };
	const char *time = getenv("SMALL_READS_SECONDS");
	pthread_t threads[FILES * (ARRAY_SIZE(work) + READERS)];
	unsigned int i, j, count = 0;
	double end;

	if (!direct_possible())
		skip("no direct I/O here");
	for (i = 0; i < FILES; i++) {
		subject_create(&subjects[i], i);
		for (j = 0; j < ARRAY_SIZE(work) + READERS; j++)
			check(!pthread_create(&threads[count++], NULL,
					      j < ARRAY_SIZE(work) ? work[j] : read_all_the_time,
					      &subjects[i]));
	}
	end = seconds() + (time ? atoi(time) : 20);
	while (seconds() < end)
		sleep_ms(100);
	stop = true;
	for (i = 0; i < count; i++)
		check(!pthread_join(threads[i], NULL));
	printf("%llu changes, %llu moves, %llu MiB compared\n", (unsigned long long)changed,
	       (unsigned long long)moved, (unsigned long long)compared >> 20);
	if (!immovable && (is("ext4") || is("xfs")))
		check(moved);
	return 0;
}
