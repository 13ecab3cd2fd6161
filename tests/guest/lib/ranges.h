/* SPDX-License-Identifier: GPL-2.0-only */
/* Offsets and lengths around block and page boundaries */
#ifndef TESTS_GUEST_RANGES_H
#define TESTS_GUEST_RANGES_H

#include "lib.h"

#define RANGE_FILE	KIB(96)
#define RANGE_BUFFER	KIB(96)

static const unsigned int range_starts[] = {
	0, 1, 4, 511, 512, 513, 4095, 4096, 4097, 4608, 12345,
};

static const unsigned int range_lengths[] = {
	1, 2, 511, 512, 513, 1023, 4095, 4096, 4097, 4608, 8191, 8192, 8193,
	12800, 20000, 65535, 65536, 65537,
};

/* The difference between buffer and file offset */
static const int range_shifts[] = { 0, 4096, 512, 4, 1 };

struct range {
	unsigned int file, buffer, length;
};

/*
 * Iterates over all combinations of the above: starts with a zeroed @step, returns
 * false at the end.
 */
static inline bool range_next(unsigned int *step, struct range *range)
{
	unsigned int n = *step;

	range->file = range_starts[n % ARRAY_SIZE(range_starts)];
	n /= ARRAY_SIZE(range_starts);
	range->length = range_lengths[n % ARRAY_SIZE(range_lengths)];
	n /= ARRAY_SIZE(range_lengths);
	if (n >= ARRAY_SIZE(range_shifts))
		return false;
	range->buffer = range->file + range_shifts[n];
	(*step)++;
	return true;
}

/* The request, with a chunk that depends on @step */
static inline struct dmabuf_dio_rw range_request(const struct range *range, unsigned int step,
						 const struct buffer *buf, int file, bool direct)
{
	trying("%s, %s, file %u, buffer %u, length %u", buffer_names[buf->kind],
	       direct ? "direct" : "buffered", range->file, range->buffer, range->length);
	return (struct dmabuf_dio_rw){
		.file_fd = file,
		.file_offset = range->file,
		.buf_offset = range->buffer,
		.length = range->length,
		.chunk = step % 3 ? PAGE << step % 3 : 0,
	};
}

/* Was it done? A refusal is accepted if its reason is correct. */
static inline bool range_done(const struct range *range, const struct dmabuf_dio_rw *rw,
			      int ret, bool direct)
{
	if (direct && ret == -EINVAL) {
		check(rw->align > 1);
		check((range->file - range->buffer) % rw->align);
		expect(rw->done, 0);
		return false;
	}
	expect(ret, 0);
	expect(rw->done, range->length);
	return true;
}

/* Offsets that are congruent modulo a page always work. */
#define RANGES_DONE	(2 * ARRAY_SIZE(range_starts) * ARRAY_SIZE(range_lengths))

#endif
