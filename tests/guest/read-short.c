// SPDX-License-Identifier: GPL-2.0-only
/* READ beyond the end of a file returns only the file's data, and nothing else from the disk. */
#include "lib.h"

static const unsigned int sizes[] = {
	0, 1, 511, 512, 513, 4095, 4096, 4097, 8192, 65536, 66000, 262144, 334567,
};

static const unsigned int starts[] = { 0, 1, 4096, 4097, 65536, 500000 };

/* No range extends beyond this; the buffer is larger. */
#define RANGE_END	KIB(512)
#define BUFFER_LENGTH	(RANGE_END + KIB(64))

static bool direct;

/* The content of the buffer before each READ. It is computed once, because emulated 32-bit programs are slow at it. */
static unsigned char before[BUFFER_LENGTH];

static void unchanged(const unsigned char *map, uint64_t start, uint64_t end)
{
	if (memcmp(map + start, before + start, end - start))
		pattern_check(map + start, start, end - start, 2);
}

/*
 * A file system may write zeroes beyond the end of the file. It must not expose the
 * disk's content there.
 */
static void zero_or_unchanged(const unsigned char *map, uint64_t start, uint64_t end)
{
	static const unsigned char zero[LARGEST_PAGE];
	size_t count, i;

	for (; start < end; start += count) {
		count = end - start < PAGE ? end - start : PAGE;
		if (!memcmp(map + start, before + start, count) ||
		    !memcmp(map + start, zero, count))
			continue;
		for (i = start; i < start + count; i++)
			if (map[i] && map[i] != before[i])
				fail("byte %zu is 0x%02x", i, map[i]);
	}
}

static void read_short(struct buffer *buf)
{
	int dev = dio_context(buf);
	unsigned int n, s, c;

	buffer_pattern(buf, 2);
	for (n = 0; n < ARRAY_SIZE(sizes); n++) {
		char name[32];
		int file;

		snprintf(name, sizeof(name), "data-%u", sizes[n]);
		file = file_open(name, O_RDONLY | direct_flag(direct));
		for (s = 0; s < ARRAY_SIZE(starts); s++) {
			unsigned int left = sizes[n] > starts[s] ? sizes[n] - starts[s] : 0;

			for (c = 0; c < 3; c++) {
				struct dmabuf_dio_rw rw = {
					.file_fd = file,
					.file_offset = starts[s],
					.buf_offset = starts[s] % PAGE,
					.length = RANGE_END - starts[s] % PAGE,
					.chunk = (uint64_t[]){ 0, PAGE, KIB(64) }[c],
					.depth = (unsigned int[]){ 0, 1, 64 }[c],
				};

				trying("%s, %s, size %u, start %u, chunk %llu",
				       buffer_names[buf->kind],
				       direct ? "direct" : "buffered", sizes[n],
				       starts[s], rw.chunk);
				buffer_begin(buf);
				memcpy(buf->map, before, BUFFER_LENGTH);
				buffer_end(buf);
				expect(dio_read(dev, &rw), 0);
				expect(rw.done, left);
				expect(rw.direct, direct ? left : 0);
				buffer_begin(buf);
				unchanged(buf->map, 0, rw.buf_offset);
				pattern_check(buf->map + rw.buf_offset, starts[s], left, 1);
				zero_or_unchanged(buf->map, rw.buf_offset + left, RANGE_END);
				unchanged(buf->map, RANGE_END, BUFFER_LENGTH);
				buffer_end(buf);
			}
		}
		close(file);
	}
	/* A buffer of huge pages is longer. */
	buffer_check(buf, BUFFER_LENGTH, BUFFER_LENGTH, buf->length - BUFFER_LENGTH, 2);
	close(dev);
}

int main(void)
{
	unsigned int n;

	for (n = 0; n < ARRAY_SIZE(sizes); n++) {
		char name[32];

		snprintf(name, sizeof(name), "data-%u", sizes[n]);
		file_pattern(name, sizes[n], 1);
	}
	pattern_fill(before, 0, BUFFER_LENGTH, 2);
	for_each_kind_and_way(BUFFER_LENGTH, &direct, read_short);
	return 0;
}
