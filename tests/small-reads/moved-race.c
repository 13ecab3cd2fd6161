// SPDX-License-Identifier: GPL-2.0-only
/*
 * Direct reads concurrent with operations that move or free a file's blocks never return
 * another file's data, or data that was replaced before they began. Each word of a block
 * names its file and version, so races between a read and a write are harmless. There are
 * two files, one whose blocks are freed and reallocated in place and one whose blocks move,
 * and a third that allocates the freed blocks. timeout=120
 *
 * SMALL_READS_SECONDS: how long, with a timeout of its own (default 10)
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>

#include <linux/falloc.h>
#include <linux/fs.h>

#include "reader.h"
#include "tight.h"

#define BLOCKS		704
#define LENGTH		(BLOCKS * BLOCK)
#define WORDS		(BLOCK / sizeof(uint64_t))

enum { MINE = 1, MOVING, FOREIGN };

static volatile bool stop;
static int shared;			/* "mine", read by several threads */
static _Atomic uint64_t oldest[BLOCKS];	/* that a read may still return */
static _Atomic uint64_t newest[BLOCKS];

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

/* Freed blocks may be unavailable until the journal has committed. */
static void write_patiently(int fd, const void *data, size_t length, uint64_t position)
{
	unsigned int i;

	for (i = 0; i < 100; i++) {
		ssize_t ret = pwrite(fd, data, length, position);

		if (ret == (ssize_t)length)
			return;
		if (ret < 0 && errno != ENOSPC)
			fail("pwrite: %s", strerror(errno));
		fs_sync();
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
		unsigned int first = random_below(&state, BLOCKS - count);
		unsigned int what = random_below(&state, 5), i;

		/* Makes many changes, or a pause in which readers find the mapping unchanged. */
		if (++rounds % 64 == 0)
			sleep_ms(20);
		version++;
		for (i = 0; i < count; i++) {
			block_fill(data + i * WORDS, MINE, first + i, version);
			newest[first + i] = version;
		}
		switch (what) {
		case 0:
			fd_punch(fd, first * BLOCK, count * BLOCK);
			break;
		case 1:
			write_patiently(fd, data, count * BLOCK, first * BLOCK);
			break;
		case 2:
			write_patiently(direct, data, count * BLOCK, first * BLOCK);
			break;
		case 3:
			fd_punch(fd, first * BLOCK, count * BLOCK);
			write_patiently(direct, data, count * BLOCK, first * BLOCK);
			break;
		case 4:
			/* The blocks after it are freed. */
			if (random_below(&state, 20))
				break;
			count = BLOCKS - first;
			for (i = 0; i < count; i++)
				newest[first + i] = version;
			check(!ftruncate(fd, first * BLOCK));
			check(!ftruncate(fd, LENGTH));
			break;
		}
		/* Unwritten parts have zeros or their old content. */
		if (what != 4 || count == BLOCKS - first)
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
		unsigned int from = random_below(&state, BLOCKS - 2 * count);
		unsigned int to = random_below(&state, BLOCKS - 2 * count);

		if (fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, from * BLOCK, count * BLOCK) ||
		    fallocate(fd, FALLOC_FL_INSERT_RANGE, to * BLOCK, count * BLOCK)) {
			if (errno == ENOSPC) {
				fs_sync();
				check(!ftruncate(fd, LENGTH));
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

/* Allocates freed blocks. */
static void *take(void *arg)
{
	uint64_t *data = allocate(MIB(1)), i;

	(void)arg;
	for (i = 0; i < MIB(1) / sizeof(*data); i++)
		data[i] = word_make(FOREIGN, i, i);
	while (!stop) {
		int fd = file_open("foreign", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT);

		fs_sync();
		for (i = 0; i < LEFT_FREE / 2 && !stop; i += MIB(1))
			if (pwrite(fd, data, MIB(1), i) < 0)
				check(errno == ENOSPC);
		close(fd);
		check(!unlink("foreign"));
	}
	free(data);
	return NULL;
}

/* Shares blocks, so that writes allocate new ones; drops the shared copy much later. */
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
		if (ioctl(fd, FICLONE, from))
			check(errno == EOPNOTSUPP || errno == ENOTTY || errno == ENOSPC);
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
	int moving = file_open("moving", O_RDONLY | O_DIRECT);
	uint64_t state = 1000 + (uintptr_t)arg;
	uint64_t least[KIB(64) / BLOCK];
	struct reader *r = malloc(sizeof(*r));

	reader_create(r);
	while (!stop) {
		unsigned int way = random_below(&state, WAYS), i;
		unsigned int count = KIB(64) / BLOCK;
		unsigned int first = random_below(&state, BLOCKS / count) * count;

		for (i = 0; i < count; i++)
			least[i] = oldest[first + i];
		read_direct(r, way, shared, first * BLOCK, KIB(64));
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
	close(moving);
	return NULL;
}

static void race(const char *variant)
{
	void *(* const changers[])(void *) = { come_and_go, move_about, take, share };
	pthread_t threads[ARRAY_SIZE(changers) + 2];
	uint64_t *data = allocate(LENGTH);
	const char *time = getenv("SMALL_READS_SECONDS");
	unsigned int i, owner;

	trying("%s: race", variant);
	for (owner = MINE; owner <= MOVING; owner++) {
		int fd = file_open(owner == MINE ? "mine" : "moving",
				   O_RDWR | O_CREAT | O_TRUNC);

		for (i = 0; i < BLOCKS; i++) {
			block_fill(data + i * WORDS, owner, i, 1);
			oldest[i] = newest[i] = 1;
		}
		fd_write(fd, data, LENGTH, 0);
		check(!fsync(fd));
		close(fd);
	}
	shared = file_open("mine", O_RDONLY | O_DIRECT);
	stop = false;
	for (i = 0; i < ARRAY_SIZE(threads); i++)
		check(!pthread_create(&threads[i], NULL,
				      i < ARRAY_SIZE(changers) ? changers[i] : look,
				      (void *)(uintptr_t)i));
	sleep_ms(1000 * (time ? atoi(time) : 10));
	stop = true;
	for (i = 0; i < ARRAY_SIZE(threads); i++)
		check(!pthread_join(threads[i], NULL));
	close(shared);
	free(data);
}

int main(void)
{
	/* Its operations do not seem to wait for reads in flight. */
	if (!strcmp(guest_fs(), "f2fs"))
		skip("f2fs now and then brings another file's bytes");
	in_tight_fs(false, race);
	return 0;
}
