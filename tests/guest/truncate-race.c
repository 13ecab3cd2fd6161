// SPDX-License-Identifier: GPL-2.0-only
/*
 * A file that shrinks and grows while it is read: the result is its content or zeros,
 * never other data, and the count matches a size the file had.
 */
#include <pthread.h>

#include "lib.h"

#define LENGTH	MIB(4)
#define SHORT	(MIB(1) + 1000)

static bool direct;
static volatile bool stop;

/* The file is complete, or has lost its end, or has zeros there. */
static void *truncate_loop(void *arg)
{
	int fd = file_open("data", O_RDWR);

	(void)arg;
	while (!stop) {
		check(!ftruncate(fd, SHORT));
		sleep_ms(1);
		check(!ftruncate(fd, LENGTH));
		sleep_ms(1);
		fd_pattern_write(fd, SHORT, LENGTH - SHORT, 1);
	}
	close(fd);
	return NULL;
}

static void race(struct buffer *buf)
{
	int file = file_open("data", O_RDONLY | direct_flag(direct));
	int dev = dio_context(buf);
	double end = race_end(0.5);
	unsigned int rounds = 0;
	pthread_t thread;

	stop = false;
	check(!pthread_create(&thread, NULL, truncate_loop, NULL));
	while (seconds() < end || rounds < 5) {
		struct dmabuf_dio_rw rw = {
			.file_fd = file, .length = LENGTH,
			.chunk = rounds % 2 ? KIB(64) : 0, .depth = rounds % 3 * 4,
		};
		unsigned char want[KIB(4)];
		uint64_t i, at;

		buffer_begin(buf);
		memset(buf->map, 0x77, buf->length);
		buffer_end(buf);
		expect(dio_read(dev, &rw), 0);
		trying("%s, %s, round %u, done %llu", buffer_names[buf->kind],
		       direct ? "direct" : "buffered", rounds,
		       (unsigned long long)rw.done);
		check(rw.done >= SHORT && rw.done <= LENGTH);

		buffer_begin(buf);
		pattern_check(buf->map, 0, SHORT, 1);
		for (at = SHORT; at < rw.done; at += sizeof(want)) {
			uint64_t count = rw.done - at < sizeof(want) ?
					 rw.done - at : sizeof(want);

			pattern_fill(want, at, count, 1);
			for (i = 0; i < count; i++)
				if (buf->map[at + i] && buf->map[at + i] != want[i])
					fail("byte %llu is %#x", (unsigned long long)(at + i),
					     buf->map[at + i]);
		}
		buffer_end(buf);
		rounds++;
	}
	stop = true;
	check(!pthread_join(thread, NULL));

	/* LOAD returns everything or ENODATA. */
	stop = false;
	check(!pthread_create(&thread, NULL, truncate_loop, NULL));
	for (end = race_end(0.25); seconds() < end;) {
		struct dmabuf_dio_load load = {
			.file_fd = file, .fd_flags = O_RDWR, .length = LENGTH,
			.chunk = KIB(64),
		};
		int ret = dio_load(dev, &load);

		if (ret) {
			expect(ret, -ENODATA);
			check(load.done >= SHORT && load.done < LENGTH);
			expect(load.dmabuf_fd, -1);
		} else {
			unsigned char *map = map_dmabuf(load.dmabuf_fd, LENGTH, 1);

			pattern_check(map, 0, SHORT, 1);
			unmap(map, LENGTH);
			close(load.dmabuf_fd);
		}
	}
	stop = true;
	check(!pthread_join(thread, NULL));
	close(file);
	close(dev);
}

int main(void)
{
	file_pattern("data", LENGTH, 1);
	for_each_kind_and_way(LENGTH, &direct, race);
	return 0;
}
