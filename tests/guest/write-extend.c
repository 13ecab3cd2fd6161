// SPDX-License-Identifier: GPL-2.0-only
/* WRITE beyond the end extends the file to exactly the end of the range. */
#include "lib.h"

static const unsigned int starts[] = { 0, 1, 4096, 5000, 70000, 1000000 };
static const unsigned int lengths[] = { 1, 4095, 4096, 4097, 30001, 2000000 };

static bool direct;

static void extend(struct buffer *buf)
{
	int dev = dio_context(buf);
	unsigned int s, l;

	buffer_pattern(buf, 3);
	for (s = 0; s < ARRAY_SIZE(starts); s++) {
		for (l = 0; l < ARRAY_SIZE(lengths); l++) {
			struct dmabuf_dio_rw rw = {
				.file_offset = starts[s],
				/* Offsets that are congruent modulo a page always work. */
				.buf_offset = starts[s] % PAGE,
				.length = lengths[l],
				.chunk = KIB(64),
			};
			unsigned int end = starts[s] + lengths[l];
			unsigned int old = 5000;
			unsigned char *got = allocate(end > old ? end : old);
			int fd;

			trying("%s, %s, start %u, length %u", buffer_names[buf->kind],
			       direct ? "direct" : "buffered", starts[s], lengths[l]);
			file_pattern("data", old, 1);
			rw.file_fd = file_open("data", O_RDWR | direct_flag(direct));
			expect(dio_write(dev, &rw), 0);
			expect(rw.done, lengths[l]);
			close(rw.file_fd);
			file_settle("data");

			fd = file_open("data", O_RDONLY);
			expect(lseek(fd, 0, SEEK_END), end > old ? end : old);
			fd_read(fd, got, end > old ? end : old, 0);
			close(fd);
			pattern_check(got, 0, old < starts[s] ? old : starts[s], 1);
			if (starts[s] > old)
				zero_check(got + old, starts[s] - old);
			pattern_check(got + starts[s], starts[s] % PAGE, lengths[l], 3);
			if (end < old)
				pattern_check(got + end, end, old - end, 1);
			free(got);
		}
	}
	close(dev);
}

int main(void)
{
	for_each_kind_and_way(MIB(2) + PAGE, &direct, extend);
	return 0;
}
