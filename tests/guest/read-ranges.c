// SPDX-License-Identifier: GPL-2.0-only
/*
 * READ of ranges that start and end anywhere: exactly these bytes of the buffer
 * change. timeout=300
 */
#include "ranges.h"

static bool direct;
static unsigned char *content, *want;

static void read_ranges(struct buffer *buf)
{
	int dev = dio_context(buf);
	int file = file_open("data", O_RDONLY | direct_flag(direct));
	unsigned int step = 0, moved = 0;
	struct range range;

	pattern_fill(want, 0, buf->length, 2);
	buffer_pattern(buf, 2);

	while (range_next(&step, &range)) {
		struct dmabuf_dio_rw rw = range_request(&range, step, buf, file, direct);

		if (range_done(&range, &rw, dio_read(dev, &rw), direct)) {
			expect(rw.direct, direct ? range.length : 0);
			memcpy(want + range.buffer, content + range.file, range.length);
			moved++;
		}
		buffer_begin(buf);
		bytes_check(buf->map, want, RANGE_BUFFER);
		/* Make the buffer differ from the data that the next READ expects. */
		pattern_fill(buf->map + range.buffer, step, range.length, 3);
		buffer_end(buf);
		memcpy(want + range.buffer, buf->map + range.buffer, range.length);
	}
	bytes_check(buf->map, want, buf->length);
	check(moved >= RANGES_DONE);
	close(file);
	close(dev);
}

int main(void)
{
	content = allocate(RANGE_FILE);
	want = allocate(MIB(2));
	pattern_fill(content, 0, RANGE_FILE, 1);
	file_pattern("data", RANGE_FILE, 1);
	for_each_kind_and_way(RANGE_BUFFER, &direct, read_ranges);
	return 0;
}
