// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls that take seconds
 */
#include "dm.h"
#include "slow.h"

#define EDGE	100		/* Partial blocks at both ends */

static const char * const calls[] = { "READ", "WRITE", "LOAD" };
static const char * const ways[] = { "slow disk", "direct", "buffered" };

static const char *path(const struct slow *slow)
{
	return slow->way == SLOW_DISK ? DM_PATH : "slow";
}

static int slow_open(const struct slow *slow)
{
	return file_open(path(slow), O_RDWR | direct_flag(slow->way != SLOW_BUFFERED));
}

static bool slow_disk(uint64_t length)
{
	if (!dm_delays())
		return false;
	file_pattern(raw_disk(), length, 1);
	dm_create(length);
	dm_delay(&(struct dm_part){ .ms = 50 }, 1);
	return true;
}

bool slow_begin(struct slow *slow, enum slow_call call, enum slow_way way)
{
	*slow = (struct slow){ .call = call, .way = way, .depth = 4 };
	slow->length = way == SLOW_DISK ? MIB(8) : MIB(32);
	trying("%s, %s", calls[call], ways[way]);
	if (way == SLOW_DIRECT && !direct_possible())
		return false;
	if (way != SLOW_DISK)
		file_pattern("slow", slow->length, 1);
	else if (!slow_disk(slow->length))
		return false;

	buffer_create(&slow->buf, BUFFER_LOAD, slow->length);
	buffer_pattern(&slow->buf, 2);
	slow->dev = dio_context(&slow->buf);
	return true;
}

static unsigned int load(struct slow *slow, int file, uint64_t chunk)
{
	struct dmabuf_dio_load load = {
		.file_fd = file, .fd_flags = O_RDWR, .length = slow->length - EDGE,
		.chunk = chunk, .depth = slow->depth,
	};
	unsigned int interruptions = 0, idle = 0;
	uint64_t before = 0;
	unsigned char *map;
	int ret;

	while ((ret = dio_load(slow->dev, &load))) {
		expect(ret, -EINTR);
		/* LOAD allocates 8 MiB before it reads anything. */
		idle = load.done > before ? 0 : idle + 1;
		check(idle < 50);
		before = load.done;
		interruptions++;
	}
	expect(load.done, slow->length - EDGE);
	map = map_dmabuf(load.dmabuf_fd, slow->length, 1);
	pattern_check(map, 0, slow->length - EDGE, 1);
	zero_check(map + slow->length - EDGE, EDGE);
	unmap(map, slow->length);
	close(load.dmabuf_fd);
	return interruptions;
}

static void written(struct slow *slow)
{
	int file = slow_open(slow);

	check(!fsync(file));
	close(file);
	file = file_open(slow->way == SLOW_DISK ? raw_disk() : path(slow), O_RDONLY);
	check(!posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED));
	fd_pattern_check(file, 0, EDGE, 1);
	fd_pattern_check(file, EDGE, slow->length - 2 * EDGE, 2);
	fd_pattern_check(file, slow->length - EDGE, EDGE, 1);
	close(file);
}

static void read_back(struct slow *slow)
{
	unsigned char *map = slow->buf.map;

	pattern_check(map, 0, EDGE, 2);
	pattern_check(map + EDGE, EDGE, slow->length - 2 * EDGE, 1);
	pattern_check(map + slow->length - EDGE, slow->length - EDGE, EDGE, 2);
}

unsigned int slow_work(struct slow *slow)
{
	uint64_t chunk = slow->way == SLOW_DISK ? KIB(64) : PAGE;
	uint64_t at = EDGE, end = slow->length - EDGE;
	unsigned int interruptions = 0;
	int file = slow_open(slow);

	while (slow->call != SLOW_LOAD && at < end) {
		struct dmabuf_dio_rw rw = {
			.file_fd = file, .file_offset = at, .buf_offset = at, .length = end - at,
			.chunk = chunk, .depth = slow->depth,
		};
		int ret = slow->call == SLOW_READ ? dio_read(slow->dev, &rw) :
						    dio_write(slow->dev, &rw);

		at += rw.done;
		if (!ret)
			break;
		/* There is no other transfer, so each call makes progress. */
		expect(ret, -EINTR);
		check(rw.done);
		interruptions++;
	}
	if (slow->call != SLOW_LOAD) {
		expect(at, end);
		expect(dio_moved(slow->dev), end - EDGE);
	}

	switch (slow->call) {
	case SLOW_READ:
		read_back(slow);
		break;
	case SLOW_WRITE:
		written(slow);
		break;
	default:
		interruptions = load(slow, file, chunk);
		expect(dio_moved(slow->dev), end);
	}
	close(file);
	return interruptions;
}

void slow_wait(const struct slow *slow)
{
	uint64_t before = dio_moved(slow->dev);
	double start = seconds();

	while (dio_moved(slow->dev) == before) {
		if (seconds() - start > 20)
			fail("it does not get on");
		sleep_ms(1);
	}
}

void slow_hurry(const struct slow *slow)
{
	if (slow->way == SLOW_DISK)
		dm_break(0, 0);
}

void slow_end(struct slow *slow)
{
	close(slow->dev);
	buffer_destroy(&slow->buf);
	if (slow->way == SLOW_DISK)
		dm_remove();
	else
		check(!unlink("slow"));
}
