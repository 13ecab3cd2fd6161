// SPDX-License-Identifier: GPL-2.0-only
/*
 * A device maps the buffer while CPU access ends, or while READ stores: it sees
 * everything that was stored. A mapping copies the memory to bounce buffers
 * (swiotlb=force); later stores have to be copied there as well. Needs QEMU's
 * edu device. timeout=300
 */
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <linux/dma-buf.h>

#include "edu_importer/edu_importer.h"
#include "lib.h"

/* Copying this takes milliseconds; the module splits it into segments that bounce buffers hold. */
#define LENGTH	MIB(4)
/* One segment of a heap's buffer is at most this long in bounce buffers. */
#define SEGMENT	KIB(256)
#define ROUNDS	60

/* Shared with the process of the device: the round in which it is to map, and has mapped. */
struct rounds {
	volatile unsigned int wanted, mapped;
	double delay;		/* before it maps, in seconds */
	double duration;	/* of the last mapping */
};

static void await(const volatile unsigned int *number, unsigned int value)
{
	while (*number != value)
		sched_yield();
}

static void spin(double duration)
{
	double end = seconds() + duration;

	while (seconds() < end)
		sched_yield();
}

static void device(const struct buffer *buf, struct rounds *rounds)
{
	int edu = open("/dev/edu_importer", O_RDWR | O_CLOEXEC);
	unsigned int round;
	double start;

	check(edu >= 0);
	for (round = 1;; round++) {
		await(&rounds->wanted, round);
		spin(rounds->delay);
		start = seconds();
		check(!ioctl(edu, EDU_IMPORT, buf->fd));
		rounds->duration = seconds() - start;
		rounds->mapped = round;
		/* The next number asks for unmapping. */
		await(&rounds->wanted, ++round);
		check(!ioctl(edu, EDU_DROP, 0));
		rounds->mapped = round;
	}
}

/* Stores the content of @seed in the first @length bytes. */
typedef void (*store_t)(struct buffer *buf, int dev, size_t length, unsigned int seed);

static void store_by_cpu(struct buffer *buf, int dev, size_t length, unsigned int seed)
{
	(void)dev;
	buffer_begin(buf);
	pattern_fill(buf->map, 0, length, seed);
	buffer_end(buf);
}

static void store_by_read(struct buffer *buf, int dev, size_t length, unsigned int seed)
{
	int file = file_open(seed % 2 ? "odd" : "even", O_RDONLY | direct_flag(true));
	struct dmabuf_dio_rw rw = {
		.file_fd = file, .length = length, .chunk = KIB(64), .depth = 2,
	};

	(void)buf;
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, length);
	close(file);
}

static void race(struct buffer *buf, struct rounds *rounds, store_t store)
{
	/* The CPU stores only the page that is copied first, which leaves the longest time. */
	size_t length = store == store_by_cpu ? PAGE : buf->length;
	unsigned int round, turn = 0, met = 0;
	uint64_t random = 1;
	double took = 0, start;
	int dev = dio_context(buf);
	pid_t pid;

	*rounds = (struct rounds){};
	pid = spawn();
	if (!pid)
		device(buf, rounds);
	for (round = 0; round < ROUNDS; round++) {
		double part = random_below(&random, 1000) / 1000.0;

		trying("%s, %s, round %u", buffer_names[buf->kind],
		       store == store_by_cpu ? "CPU access" : "READ", round);
		rounds->delay = store == store_by_cpu ? 0 : part * took;
		rounds->wanted = ++turn;
		if (store == store_by_cpu)
			spin(part * rounds->duration);
		met += rounds->mapped != turn;
		start = seconds();
		store(buf, dev, length, round % 2);
		took = seconds() - start;
		await(&rounds->mapped, turn);

		/* The device's copy comes back to memory. */
		buffer_check(buf, 0, 0, length, round % 2);
		rounds->wanted = ++turn;
		await(&rounds->mapped, turn);
	}
	/* Otherwise nothing ran at the same time. */
	check(met);
	kill_child(pid);
	close(dev);
}

int main(void)
{
	static const enum buffer_kind kinds[] = { BUFFER_LOAD, BUFFER_HEAP, BUFFER_CMA };
	struct rounds *rounds;
	struct buffer buf;
	char line[4096];
	unsigned int i;

	if (access("/dev/edu_importer", F_OK))
		skip("no /dev/edu_importer");
	check(proc_read("/proc/cmdline", line, sizeof(line)));
	if (!strstr(line, "swiotlb=force"))
		skip("without bounce buffers (swiotlb=force) a device sees the memory itself");
	rounds = mmap(NULL, sizeof(*rounds), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	check(rounds != MAP_FAILED);
	file_pattern("even", LENGTH, 0);
	file_pattern("odd", LENGTH, 1);

	/* Heaps do not serialise a mapping with CPU access by user space, only with file I/O. */
	buffer_create(&buf, BUFFER_LOAD, LENGTH);
	race(&buf, rounds, store_by_cpu);
	buffer_destroy(&buf);
	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (buffer_try(&buf, kinds[i], kinds[i] == BUFFER_LOAD ? LENGTH : SEGMENT))
			continue;
		race(&buf, rounds, store_by_read);
		buffer_destroy(&buf);
	}
	return 0;
}
