// SPDX-License-Identifier: GPL-2.0-only
/*
 * WRITE of ranges that start and end anywhere: exactly these bytes of the file
 * change, and none of the buffer. timeout=300
 */
#include "ranges.h"

static bool direct;
static unsigned char *want, *got, *held;

static void write_ranges(struct buffer *buf)
{
	int dev = dio_context(buf);
	int check_fd, file;
	unsigned int step = 0, moved = 0;
	struct range range;

	file_pattern("data", RANGE_FILE, 1);
	pattern_fill(want, 0, RANGE_FILE, 1);
	file = file_open("data", O_RDWR | direct_flag(direct));
	/* A file written with O_DIRECT is also read back with it, to detect a stale page cache. */
	check_fd = file_open("data", O_RDONLY | direct_flag(direct));
	buffer_pattern(buf, 2);
	memcpy(held, buf->map, RANGE_BUFFER);

	while (range_next(&step, &range)) {
		struct dmabuf_dio_rw rw = range_request(&range, step, buf, file, direct);

		/* The part that the file does not hold yet */
		pattern_fill(held + range.buffer, range.buffer, range.length, 10 + step);
		buffer_begin(buf);
		memcpy(buf->map + range.buffer, held + range.buffer, range.length);
		buffer_end(buf);
		if (range_done(&range, &rw, dio_write(dev, &rw), direct)) {
			check(rw.direct <= range.length);
			memcpy(want + range.file, held + range.buffer, range.length);
			moved++;
		}
		bytes_check(buf->map, held, RANGE_BUFFER);
		fd_read(check_fd, got, RANGE_FILE, 0);
		bytes_check(got, want, RANGE_FILE);
	}
	check(moved >= RANGES_DONE);
	close(check_fd);
	close(file);

	/* The file has not grown, and the disk holds the same as the cache. */
	file_settle("data");
	file = file_open("data", O_RDONLY);
	expect(lseek(file, 0, SEEK_END), RANGE_FILE);
	fd_read(file, got, RANGE_FILE, 0);
	bytes_check(got, want, RANGE_FILE);
	close(file);
	close(dev);
}

int main(void)
{
	want = allocate(RANGE_FILE);
	got = allocate(RANGE_FILE);
	held = allocate(RANGE_BUFFER);
	for_each_kind_and_way(RANGE_BUFFER, &direct, write_ranges);
	return 0;
}
