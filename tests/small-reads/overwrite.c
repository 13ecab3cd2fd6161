// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reads concurrent with buffered writes return data written before the read began or since
 * then, but nothing older. timeout=300
 */
#include <pthread.h>
#include <stdatomic.h>

#include "small.h"

#define WORDS	(BLOCK / 8)
#define BLOCKS	4

static _Atomic uint64_t started[BLOCKS], finished[BLOCKS];
static atomic_bool stop;

static void *write_on(void *arg)
{
	int fd = file_open("data", O_RDWR);
	uint64_t *words = allocate(BLOCK), version;

	(void)arg;
	for (version = 1; !stop; version++) {
		unsigned int i, block = version % BLOCKS;

		for (i = 0; i < WORDS; i++)
			words[i] = version;
		started[block] = version;
		fd_write(fd, words, BLOCK, block * BLOCK);
		finished[block] = version;
		if (version % 64 == 0)
			check(!fsync(fd));
	}
	free(words);
	close(fd);
	return NULL;
}

static void *read_on(void *arg)
{
	int fd = file_open("data", O_RDONLY | O_DIRECT);
	uint64_t *words = allocate(BLOCK), state = (uintptr_t)arg;
	double end = seconds() + 5;
	unsigned int rounds;

	for (rounds = 0; seconds() < end || rounds < 100; rounds++) {
		unsigned int i, block = random_below(&state, BLOCKS);
		enum way way = random_below(&state, WAYS);
		uint64_t least = finished[block], most;

		memset(words, 0xff, BLOCK);
		expect(read_by(way, fd, words, BLOCK, block * BLOCK), BLOCK);
		most = started[block];
		for (i = 0; i < WORDS; i++)
			if (words[i] < least || words[i] > most)
				fail("%s: version %lld, but it was %lld and became %lld",
				     way_names[way], (long long)words[i], (long long)least,
				     (long long)most);
	}
	free(words);
	close(fd);
	return NULL;
}

int main(void)
{
	struct hits before = hits();
	pthread_t writer, readers[2];
	uintptr_t i;

	test_fs();
	file_sparse("data", BLOCKS * BLOCK);
	check(!pthread_create(&writer, NULL, write_on, NULL));
	for (i = 0; i < ARRAY_SIZE(readers); i++)
		check(!pthread_create(&readers[i], NULL, read_on, (void *)(i + 1)));
	for (i = 0; i < ARRAY_SIZE(readers); i++)
		check(!pthread_join(readers[i], NULL));
	stop = true;
	check(!pthread_join(writer, NULL));
	expect_mostly_short(hits_since(before));
	return 0;
}
