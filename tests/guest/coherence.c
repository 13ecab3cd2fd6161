// SPDX-License-Identifier: GPL-2.0-only
/* Buffered and direct transfers and CPU access all see the same data. */
#include <sys/mman.h>

#include "ring.h"

#define LENGTH	(MIB(5) + 2345)

static bool slots;

static void agree(struct buffer *buf)
{
	unsigned char *mine = allocate(MIB(6));
	int dev = dio_context(buf);
	unsigned int seed = 1, in, out;

	for (out = 0; out < 2; out++) {
		int to = file_open("data", O_RDWR | O_CREAT | direct_flag(out));
		int cached = file_open("data", O_RDONLY);
		unsigned char *view;

		check(!ftruncate(to, LENGTH));
		view = mmap(NULL, LENGTH, PROT_READ, MAP_SHARED, cached, 0);
		check(view != MAP_FAILED);
		for (in = 0; in < 2; in++) {
			int from = file_open("data", O_RDONLY | direct_flag(in));
			struct dmabuf_dio_rw rw = { .length = LENGTH, .chunk = KIB(256) };
			struct dmabuf_dio_load load = {
				.file_fd = from, .fd_flags = O_RDWR, .length = LENGTH,
			};
			unsigned char *map;

			seed++;
			trying("%s, %s to %s", buffer_names[buf->kind],
			       out ? "direct" : "buffered", in ? "direct" : "buffered");
			/* The page cache holds the old content. */
			fd_read(cached, mine, LENGTH, 0);

			buffer_pattern(buf, seed);
			rw.file_fd = to;
			expect(dio_write(dev, &rw), 0);
			expect(rw.done, LENGTH);

			fd_read(cached, mine, LENGTH, 0);
			pattern_check(mine, 0, LENGTH, seed);
			pattern_check(view, 0, LENGTH, seed);

			buffer_pattern(buf, 1000);
			rw.file_fd = from;
			expect(dio_read(dev, &rw), 0);
			buffer_check(buf, 0, 0, LENGTH, seed);

			expect(dio_load(dev, &load), 0);
			map = map_dmabuf(load.dmabuf_fd, load.buf_length, PROT_READ);
			pattern_check(map, 0, LENGTH, seed);
			unmap(map, load.buf_length);
			close(load.dmabuf_fd);

			if (slots && slots_possible(buf)) {
				struct io_uring ring;

				ring_create(&ring, 4, 1);
				buffer_pattern(buf, 1001);
				expect(slot_register(&ring, dev, 0, 0, buf->length,
						     SLOT_BOTH), 0);
				expect(slot_io(&ring, false, from, 0, 0, MIB(5), 0), MIB(5));
				pattern_check(buf->map, 0, MIB(5), seed);
				io_uring_queue_exit(&ring);
			}

			/* A write from user space, seen by READ */
			seed++;
			pattern_fill(mine, 0, LENGTH, seed);
			{
				int plain = file_open("data", O_WRONLY);

				fd_write(plain, mine, LENGTH, 0);
				close(plain);
			}
			expect(dio_read(dev, &rw), 0);
			expect(rw.done, LENGTH);
			pattern_check(buf->map, 0, LENGTH, seed);
			close(from);
		}
		check(!munmap(view, LENGTH));
		close(cached);
		close(to);
	}
	free(mine);
	close(dev);
}

int main(void)
{
	slots = dio_has_slots();
	if (!direct_possible())
		skip("this file system has no O_DIRECT");
	for_each_kind(MIB(6), agree);
	return 0;
}
