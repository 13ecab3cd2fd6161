// SPDX-License-Identifier: GPL-2.0-only
/*
 * timeout=600: a disk is unplugged while READ, WRITE and a ring transfer. The calls end, what they say is done is
 * there, and the buffer goes on with other files.
 */
#include <pthread.h>

#include "plug.h"
#include "ring.h"

#define LENGTH	MIB(4)
#define CHUNK	KIB(64)

static struct buffer buf;
static int context;
static const char *path;		/* raw_disk() gives up when it is gone */
static uint64_t seed;			/* of what the disk has, or gets */
static uint64_t last;			/* bytes that the last call says are done */
static unsigned int rounds;		/* calls that were complete */

/* Until the disk is gone: it has length 0 then, or fails. */
static void *read_until_gone(void *unused)
{
	int disk = file_open(path, O_RDONLY | O_DIRECT), err;
	struct dmabuf_dio_rw rw = { .file_fd = disk, .length = LENGTH, .chunk = CHUNK_OF(CHUNK) };

	(void)unused;
	for (;;) {
		buffer_pattern(&buf, 99);
		err = dio_read(context, &rw);
		if (err || rw.done < LENGTH)
			break;
		__atomic_add_fetch(&rounds, 1, __ATOMIC_RELAXED);
	}
	if (err && err != -EIO && err != -ENODEV && err != -ENXIO)
		fail("READ: %s", strerror(-err));
	last = rw.done;
	buffer_check(&buf, 0, 0, last, seed);
	close(disk);
	return NULL;
}

static void *write_until_gone(void *unused)
{
	int disk = file_open(path, O_RDWR | O_DIRECT), err;
	struct dmabuf_dio_rw rw = { .file_fd = disk, .length = LENGTH, .chunk = CHUNK_OF(CHUNK) };

	(void)unused;
	for (;;) {
		buffer_pattern(&buf, seed + 1);
		err = dio_write(context, &rw);
		if (err || rw.done < LENGTH)
			break;
		seed++;
		__atomic_add_fetch(&rounds, 1, __ATOMIC_RELAXED);
	}
	if (err && err != -EIO && err != -ENODEV && err != -ENXIO && err != -ENOSPC)
		fail("WRITE: %s", strerror(-err));
	last = rw.done;
	close(disk);
	return NULL;
}

static void *slot_until_gone(void *unused)
{
	unsigned int i, n = LENGTH / CHUNK;
	int disk = file_open(path, O_RDONLY | O_DIRECT);
	struct io_uring ring;
	bool gone = false;

	(void)unused;
	ring_create(&ring, n, 1);
	expect(slot_register(&ring, context, 0, 0, LENGTH, SLOT_BOTH), 0);
	while (!gone) {
		for (i = 0; i < n; i++)
			slot_queue(&ring, false, disk, 0, i * CHUNK, CHUNK, i * CHUNK, i);
		expect(io_uring_submit(&ring), n);
		for (i = 0; i < n; i++)
			gone |= ring_result(&ring, NULL) != CHUNK;
		if (!gone)
			__atomic_add_fetch(&rounds, 1, __ATOMIC_RELAXED);
	}
	io_uring_queue_exit(&ring);
	close(disk);
	return NULL;
}

static void unplugged(void *(*use)(void *))
{
	pthread_t thread;

	rounds = 0;
	check(!pthread_create(&thread, NULL, use, NULL));
	/* It is in the middle of something then. */
	while (__atomic_load_n(&rounds, __ATOMIC_RELAXED) < 3)
		sleep_ms(1);
	plug_remove();
	check(!pthread_join(thread, NULL));
}

/* The buffer transfers from another disk, and from this one once it is back. */
static void goes_on(void)
{
	int file = file_open("unplug.data", O_RDONLY | direct_flag(direct_possible()));
	struct dmabuf_dio_rw rw = { .file_fd = file, .length = LENGTH };

	expect(dio_read(context, &rw), 0);
	expect(rw.done, LENGTH);
	buffer_check(&buf, 0, 0, LENGTH, 50);
	close(file);
	plug_rescan(path);
}

/* What WRITE says is done is new, each other byte old or new. */
static void written(uint64_t new)
{
	unsigned char *got = allocate(LENGTH), *old = allocate(LENGTH), *want = allocate(LENGTH);
	int disk = file_open(path, O_RDONLY);
	uint64_t at;

	fd_read(disk, got, LENGTH, 0);
	pattern_fill(old, 0, LENGTH, new - 1);
	pattern_fill(want, 0, LENGTH, new);
	bytes_check(got, want, last);
	for (at = last; at < LENGTH; at++)
		if (got[at] != old[at] && got[at] != want[at])
			fail("byte %llu is neither old nor new", (unsigned long long)at);
	close(disk);
	free(got);
	free(old);
	free(want);
}

static void kind(struct buffer *each)
{
	buf = *each;
	context = dio_context(&buf);
	seed = 1;
	file_pattern(path, LENGTH, seed);

	trying("READ, %s", buffer_names[buf.kind]);
	unplugged(read_until_gone);
	goes_on();

	trying("WRITE, %s", buffer_names[buf.kind]);
	unplugged(write_until_gone);
	goes_on();
	written(seed + 1);

	if (dio_has_slots() && buf.kind == BUFFER_HEAP) {
		trying("a slot, %s", buffer_names[buf.kind]);
		file_pattern(path, LENGTH, seed);
		unplugged(slot_until_gone);
		goes_on();
	}
	close(context);
}

int main(void)
{
	plug_pci();
	path = raw_disk();
	file_pattern("unplug.data", LENGTH, 50);
	for_each_kind(LENGTH, kind);
	unlink("unplug.data");
	return 0;
}
