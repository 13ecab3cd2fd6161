// SPDX-License-Identifier: GPL-2.0-only
/*
 * READ, WRITE and LOAD of arbitrary ranges, also beyond the end of the file, transfer exactly
 * the right bytes. REMOTE_SOURCE, if set, is the folder that this one mirrors; written data is
 * also checked there. REMOTE_SHORT, if set, means that reads here return short results.
 * timeout=900
 */
#include <sys/mman.h>
#include <sys/stat.h>

#include "lib.h"

#define FILE_LENGTH	(KIB(300) + 1234)
#define LENGTH		KIB(400)

static const struct range {
	unsigned int start, length;
} ranges[] = {
	{ 0, FILE_LENGTH }, { 0, 1 }, { 511, 2 }, { 4095, 4098 }, { 777, 70001 },
	{ KIB(4), KIB(128) }, { KIB(200) + 100, KIB(100) },
	/* To the end and beyond; starting beyond the end */
	{ 0, LENGTH - KIB(4) }, { KIB(64), LENGTH - KIB(4) }, { FILE_LENGTH - 3, 3 },
	{ FILE_LENGTH - 5000, 9000 }, { FILE_LENGTH, 10 }, { KIB(500), KIB(4) },
};

static bool direct;

static struct dmabuf_dio_rw request(const struct buffer *buf, const char *what, unsigned int n,
				    int file)
{
	trying("%s, %s, %s at %u, length %u", buffer_names[buf->kind],
	       direct ? "direct" : "buffered", what, ranges[n].start, ranges[n].length);
	return (struct dmabuf_dio_rw){
		.file_fd = file,
		.file_offset = ranges[n].start,
		/* Offsets that are congruent modulo a page always work. */
		.buf_offset = ranges[n].start % PAGE,
		.length = ranges[n].length,
		.chunk = (uint64_t[]){ 0, PAGE, KIB(64) }[n % 3],
		.depth = n % 4,
	};
}

static void read_all(struct buffer *buf, int dev)
{
	int file = file_open("data", O_RDONLY | direct_flag(direct));
	unsigned int n;

	for (n = 0; n < ARRAY_SIZE(ranges); n++) {
		struct dmabuf_dio_rw rw = request(buf, "READ", n, file);
		unsigned int start = rw.file_offset, end = rw.buf_offset + rw.length;
		unsigned int left = start < FILE_LENGTH ? FILE_LENGTH - start : 0;

		if (left > rw.length)
			left = rw.length;
		buffer_pattern(buf, 2);
		expect(dio_read(dev, &rw), 0);
		expect(rw.done, left);
		/* From the middle of a block it continues on a different path. */
		if (getenv("REMOTE_SHORT") && direct)
			check(rw.direct <= left);
		else
			expect(rw.direct, direct ? left : 0);
		buffer_begin(buf);
		pattern_check(buf->map, 0, rw.buf_offset, 2);
		pattern_check(buf->map + rw.buf_offset, start, left, 1);
		pattern_check(buf->map + end, end, buf->length - end, 2);
		buffer_end(buf);
	}
	close(file);
}

/* The whole file, by ordinary system calls */
static void look(const char *path, const unsigned char *want, size_t length)
{
	unsigned char *got = allocate(length);
	int fd = file_open(path, O_RDONLY);
	struct stat stat;

	check(!fstat(fd, &stat));
	expect(stat.st_size, length);
	fd_read(fd, got, length, 0);
	bytes_check(got, want, length);
	close(fd);
	free(got);
}

static void write_all(struct buffer *buf, int dev)
{
	const char *source = getenv("REMOTE_SOURCE");
	size_t most = KIB(500) + PAGE;
	unsigned char *want = allocate(most);
	unsigned int n;
	char *folder = get_current_dir_name(), path[4096];

	snprintf(path, sizeof(path), "%s/%s/copy", source, basename(folder));
	for (n = 0; n < ARRAY_SIZE(ranges); n++) {
		struct dmabuf_dio_rw rw = request(buf, "WRITE", n, -1);
		unsigned int start = rw.file_offset, end = start + rw.length;
		size_t size = end > FILE_LENGTH ? end : FILE_LENGTH;

		file_pattern("copy", FILE_LENGTH, 1);
		memset(want, 0, most);
		pattern_fill(want, 0, FILE_LENGTH, 1);
		pattern_fill(want + start, rw.buf_offset, rw.length, 3);
		buffer_pattern(buf, 3);
		rw.file_fd = file_open("copy", O_RDWR | direct_flag(direct));
		expect(dio_write(dev, &rw), 0);
		expect(rw.done, rw.length);
		look("copy", want, size);
		check(!fsync(rw.file_fd));
		close(rw.file_fd);
		look("copy", want, size);
		if (source)
			look(path, want, size);
		pattern_check(buf->map, 0, LENGTH, 3);
	}
	free(folder);
	free(want);
}

static void both(struct buffer *buf)
{
	int dev = dio_context(buf);

	read_all(buf, dev);
	write_all(buf, dev);
	close(dev);
}

static void load_all(void)
{
	int file = file_open("data", O_RDONLY | direct_flag(direct));
	int dev = dio_open(), fd;
	unsigned int n;

	for (n = 0; n < ARRAY_SIZE(ranges); n++) {
		/* With direct I/O the start of the buffer corresponds to a block boundary. */
		struct dmabuf_dio_load load = {
			.file_fd = file,
			.fd_flags = O_RDWR | O_CLOEXEC,
			.file_offset = ranges[n].start & -PAGE,
			.length = ranges[n].length,
			.gather = n % 2 ? PAGE : 0,
			.chunk = (uint64_t[]){ 0, PAGE, KIB(64) }[n % 3],
		};
		unsigned int left = load.file_offset < FILE_LENGTH ?
				    FILE_LENGTH - load.file_offset : 0;
		unsigned char *map;

		trying("%s, LOAD from %llu, length %llu", direct ? "direct" : "buffered",
		       load.file_offset, load.length);
		if (left < load.length) {
			expect(dio_load(dev, &load), -ENODATA);
			expect(load.done, left);
			continue;
		}
		fd = dio_load_fd(dev, file, load.file_offset, load.length);
		load.buf_length = (load.length + PAGE - 1) & -PAGE;
		map = map_dmabuf(fd, load.buf_length, PROT_READ);
		pattern_check(map, load.file_offset, load.length, 1);
		zero_check(map + load.length, load.buf_length - load.length);
		unmap(map, load.buf_length);
		close(fd);
	}
	close(dev);
	close(file);
}

int main(void)
{
	file_pattern("data", FILE_LENGTH, 1);
	for_each_kind_and_way(LENGTH, &direct, both);
	direct = false;
	load_all();
	direct = direct_possible();
	if (direct)
		load_all();
	return 0;
}
