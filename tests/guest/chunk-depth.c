// SPDX-License-Identifier: GPL-2.0-only
/* Any block size and queue depth transfers the same bytes; invalid ones are refused. */
#include "lib.h"

#define LENGTH	(MIB(5) + 777)
/* Used with small requests, which are more than the maximum queue depth. */
#define SHORT	(KIB(600) + 777)

/* Stands for the maximum that the module reports */
#define MAX_CHUNK	UINT64_MAX

static bool direct;
static struct dmabuf_dio_info info;

static void moves(struct buffer *buf)
{
	const struct {
		uint64_t chunk;
		unsigned int depth;
	} good[] = {
		{ PAGE, 64 }, { PAGE, 1 }, { 3 * PAGE, 5 }, { KIB(128), 2 }, { MIB(1), 1 },
		{ MIB(1), 64 }, { MIB(4), 3 }, { 0, 1 }, { MIB(2), 0 }, { MAX_CHUNK, 1 },
		{ MAX_CHUNK, 64 },
	};
	int file = file_open("data", O_RDONLY | direct_flag(direct));
	int copy = file_open("copy", O_RDWR | O_CREAT | O_TRUNC | direct_flag(direct));
	int dev = dio_context(buf);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(good); i++) {
		uint64_t end = good[i].chunk && good[i].chunk < KIB(64) ? SHORT : LENGTH;
		struct dmabuf_dio_rw rw = {
			.file_fd = file,
			.file_offset = 33,
			.buf_offset = 33,
			.length = end - 33,
			.chunk = good[i].chunk == MAX_CHUNK ? info.max_chunk :
							      good[i].chunk,
			.depth = good[i].depth,
		};
		int fd;

		trying("%s, %s, chunk %llu, depth %u", buffer_names[buf->kind],
		       direct ? "direct" : "buffered", rw.chunk, rw.depth);
		buffer_pattern(buf, 2);
		expect(dio_read(dev, &rw), 0);
		expect(rw.done, end - 33);
		buffer_begin(buf);
		pattern_check(buf->map, 0, 33, 2);
		pattern_check(buf->map + 33, 33, end - 33, 1);
		pattern_check(buf->map + end, end, buf->length - end, 2);
		buffer_end(buf);

		rw.file_fd = copy;
		rw.file_offset = 33;
		check(!ftruncate(copy, 0));
		expect(dio_write(dev, &rw), 0);
		expect(rw.done, end - 33);
		fd = file_open("copy", O_RDONLY);
		expect(lseek(fd, 0, SEEK_END), end);
		fd_pattern_check(fd, 33, end - 33, 1);
		close(fd);
	}
	close(copy);
	close(file);
	close(dev);
}

static void refused(int dev, uint64_t chunk, unsigned int depth)
{
	struct dmabuf_dio_rw rw = { .length = PAGE, .chunk = chunk, .depth = depth };
	struct dmabuf_dio_load load = { .length = PAGE, .chunk = chunk, .depth = depth };

	trying("chunk %llu, depth %u", (unsigned long long)chunk, depth);
	rw.file_fd = load.file_fd = file_open("data", O_RDWR);
	expect(dio_read(dev, &rw), -EINVAL);
	expect(rw.done, 0);
	expect(dio_write(dev, &rw), -EINVAL);
	expect(dio_load(dev, &load), -EINVAL);
	close(rw.file_fd);
}

int main(void)
{
	struct buffer buf;
	int dev = dio_open();

	expect(dio_call(dev, DMABUF_DIO_IOC_INFO, &info), 0);
	check(info.max_depth >= 64);
	check(info.max_chunk >= MIB(64) && !(info.max_chunk % PAGE));
	check(info.default_depth && info.default_depth <= info.max_depth);
	check(info.default_chunk && info.default_chunk <= info.max_chunk);

	file_pattern("data", LENGTH, 1);
	for_each_kind_and_way(LENGTH, &direct, moves);

	buffer_create(&buf, BUFFER_LOAD, PAGE);
	expect(dio_attach(dev, buf.fd), 0);
	refused(dev, 1, 0);
	refused(dev, 512, 0);
	refused(dev, PAGE + 1, 0);
	refused(dev, info.max_chunk + PAGE, 0);
	refused(dev, -1, 0);
	refused(dev, -PAGE, 0);
	refused(dev, 0, info.max_depth + 1);
	refused(dev, 0, -1);
	return 0;
}
