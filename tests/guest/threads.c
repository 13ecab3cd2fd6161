// SPDX-License-Identifier: GPL-2.0-only
/*
 * Many threads on one context, and two contexts on one buffer: each transfers its own
 * range and verifies it.
 */
#include <pthread.h>

#include "lib.h"

#define THREADS	8
#define SHARE	MIB(1)
#define LENGTH	(THREADS * SHARE)

struct worker {
	struct buffer *buf;
	unsigned int number, rounds;
	int dev;
	bool direct;
};

static volatile bool stop;

/* Write to the file, overwrite the buffer, read back */
static void *work(void *arg)
{
	struct worker *w = arg;
	/* Each uses an unaligned range inside its share. */
	uint64_t start = w->number * SHARE + w->number * 4099 + 4096;
	uint64_t length = SHARE - w->number * 4099 - 2 * 4096 - w->number * 111;
	unsigned char *mine = w->buf->map + start;
	int file = file_open("data", O_RDWR | direct_flag(w->direct));
	uint64_t seed = 100 + w->number;

	while (!stop || w->rounds < 2) {
		struct dmabuf_dio_rw rw = {
			.file_fd = file, .file_offset = start, .buf_offset = start,
			.length = length, .chunk = w->rounds % 2 ? KIB(64) : 0,
		};

		trying("%s, thread %u, round %u, %s", buffer_names[w->buf->kind],
		       w->number, w->rounds, w->direct ? "direct" : "buffered");
		seed += THREADS;
		buffer_begin(w->buf);
		pattern_fill(mine, start, length, seed);
		buffer_end(w->buf);
		expect(dio_write(w->dev, &rw), 0);
		expect(rw.done, length);
		memset(mine, 0x33, length);
		expect(dio_read(w->dev, &rw), 0);
		expect(rw.done, length);
		buffer_begin(w->buf);
		pattern_check(mine, start, length, seed);
		buffer_end(w->buf);
		w->rounds++;
	}
	close(file);
	return NULL;
}

static void threads(struct buffer *buf)
{
	struct worker workers[THREADS];
	pthread_t ids[THREADS];
	unsigned int i;
	double end;
	int dev[2];

	/* udmabuf initialises itself at the first access, which is not thread-safe. */
	buffer_pattern(buf, 1);
	dev[0] = dio_context(buf);
	dev[1] = dio_context(buf);
	stop = false;
	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){
			.buf = buf, .number = i, .dev = dev[i % 2],
			/* Do not read and write the same file at the same time. */
			.direct = direct_possible(),
		};
	}
	for (i = 0; i < THREADS; i++)
		check(!pthread_create(&ids[i], NULL, work, &workers[i]));
	for (end = race_end(1); seconds() < end;)
		sleep_ms(10);
	stop = true;
	for (i = 0; i < THREADS; i++)
		check(!pthread_join(ids[i], NULL));
	close(dev[0]);
	close(dev[1]);
}

/* Several threads attach at once: exactly one succeeds. */
static struct {
	int dev, fd;
	pthread_barrier_t barrier;
	unsigned int won;
} race;

static void *attach(void *arg)
{
	int ret;

	(void)arg;
	pthread_barrier_wait(&race.barrier);
	ret = dio_attach(race.dev, race.fd);
	if (ret)
		expect(ret, -EBUSY);
	else
		__atomic_add_fetch(&race.won, 1, __ATOMIC_RELAXED);
	return NULL;
}

static void attach_race(struct buffer *buf)
{
	unsigned int round, i;
	pthread_t ids[4];

	race.fd = buf->fd;
	for (round = 0; round < 30; round++) {
		race.dev = dio_open();
		race.won = 0;
		pthread_barrier_init(&race.barrier, NULL, 4);
		for (i = 0; i < 4; i++)
			check(!pthread_create(&ids[i], NULL, attach, NULL));
		for (i = 0; i < 4; i++)
			check(!pthread_join(ids[i], NULL));
		pthread_barrier_destroy(&race.barrier);
		expect(race.won, 1);
		close(race.dev);
	}
}

int main(void)
{
	file_pattern("data", LENGTH, 1);
	for_each_kind(LENGTH, threads);
	for_each_kind(MIB(1), attach_race);
	return 0;
}
