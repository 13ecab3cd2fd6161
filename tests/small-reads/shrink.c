// SPDX-License-Identifier: GPL-2.0-only
/*
 * A file loses its blocks to another file while it is read: the result is its own content,
 * zeros or nothing, never the other file's data. timeout=300
 */
#include <pthread.h>
#include <stdatomic.h>

#include "small.h"

#define LENGTH	KIB(256)

static atomic_bool stop;

static void *take_away(void *arg)
{
	int fd = file_open("data", O_RDWR), other = file_open("other", O_RDWR | O_CREAT);
	unsigned int round;

	(void)arg;
	for (round = 0; !stop; round++) {
		if (round % 2)
			check(!ftruncate(fd, BLOCK));
		else
			fd_punch(fd, BLOCK, LENGTH - BLOCK);
		fd_pattern_write(other, round % 16 * LENGTH, LENGTH, 99);
		check(!fdatasync(other));
		fd_pattern_write(fd, BLOCK, LENGTH - BLOCK, 1);
		if (round % 16 == 15)
			check(!ftruncate(other, 0));
		/* Most of the time there is data to read. */
		sleep_ms(20);
	}
	close(other);
	close(fd);
	return NULL;
}

static void check_block(enum way way, const unsigned char *memory, uint64_t at, ssize_t count)
{
	unsigned char wanted[512];
	ssize_t i;

	/* Sector by sector: writeback may be partly complete. */
	for (i = 0; i < count; i += 512) {
		pattern_fill(wanted, at + i, 512, 1);
		if (!memcmp(memory + i, wanted, 512))
			continue;
		trying("%s at %llu", way_names[way], (unsigned long long)at + i);
		zero_check(memory + i, 512);
	}
}

static void *read_on(void *arg)
{
	int fd = file_open("data", O_RDONLY | O_DIRECT);
	unsigned char *memory = allocate(BLOCK);
	uint64_t state = (uintptr_t)arg;
	double end = seconds() + 5;
	unsigned int rounds;

	for (rounds = 0; seconds() < end || rounds < 100; rounds++) {
		uint64_t at = random_below(&state, LENGTH / BLOCK) * BLOCK;
		enum way way = random_below(&state, WAYS);
		ssize_t ret;

		memset(memory, 0x77, BLOCK);
		ret = read_by(way, fd, memory, BLOCK, at);
		check(ret == BLOCK || !ret);
		check_block(way, memory, at, ret);
	}
	free(memory);
	close(fd);
	return NULL;
}

int main(void)
{
	struct hits before = hits();
	pthread_t taker, readers[2];
	uintptr_t i;

	test_fs();
	file_pattern("data", LENGTH, 1);
	check(!pthread_create(&taker, NULL, take_away, NULL));
	for (i = 0; i < ARRAY_SIZE(readers); i++)
		check(!pthread_create(&readers[i], NULL, read_on, (void *)(i + 1)));
	for (i = 0; i < ARRAY_SIZE(readers); i++)
		check(!pthread_join(readers[i], NULL));
	stop = true;
	check(!pthread_join(taker, NULL));
	expect_tried(hits_since(before));
	return 0;
}
