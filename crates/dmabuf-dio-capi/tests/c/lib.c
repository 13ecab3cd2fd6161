/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "lib.h"

#include <dirent.h>

void fail_at(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: %s is not so\n  last message: %s\n  hint: %s\n", file, line, what,
		dmabuf_dio_error_message(), dmabuf_dio_error_hint());
	exit(1);
}

void expect_at(const char *file, int line, const char *what, int64_t got, int64_t want)
{
	if (got == want)
		return;
	fprintf(stderr, "%s is %lld (%s), not %lld:\n", what, (long long)got,
		got < 0 ? strerror((int)-got) : "", (long long)want);
	fail_at(file, line, what);
}

void skip(const char *why)
{
	printf("%s\n", why);
	exit(77);
}

static unsigned char byte_of(uint64_t position, unsigned int seed)
{
	uint64_t word = (position / 8 + 1) * 0x9e3779b97f4a7c15ull + seed * 0xd1b54a32d192ed03ull;

	word ^= word >> 29;
	return (unsigned char)(word >> (position % 8 * 8));
}

void pattern(void *data, uint64_t position, size_t length, unsigned int seed)
{
	unsigned char *bytes = (unsigned char *)data;
	size_t i;

	for (i = 0; i < length; i++)
		bytes[i] = byte_of(position + i, seed);
}

void check_pattern_at(const char *file, int line, const void *data, uint64_t position, size_t length,
		      unsigned int seed)
{
	const unsigned char *bytes = (const unsigned char *)data;
	size_t i;

	for (i = 0; i < length; i++) {
		if (bytes[i] == byte_of(position + i, seed))
			continue;
		fprintf(stderr, "byte %zu of %zu is %02x, not %02x\n", i, length, bytes[i],
			byte_of(position + i, seed));
		fail_at(file, line, "the content");
	}
}

void check_byte_at(const char *file, int line, const void *data, size_t length, unsigned char byte)
{
	const unsigned char *bytes = (const unsigned char *)data;
	size_t i;

	for (i = 0; i < length; i++)
		if (bytes[i] != byte) {
			fprintf(stderr, "byte %zu of %zu is %02x, not %02x\n", i, length, bytes[i],
				byte);
			fail_at(file, line, "the content");
		}
}

void make_file(const char *path, uint64_t length, unsigned int seed)
{
	static unsigned char piece[65536];
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	uint64_t at;

	check(fd >= 0);
	for (at = 0; at < length; at += sizeof(piece)) {
		size_t count = length - at < sizeof(piece) ? (size_t)(length - at) : sizeof(piece);

		pattern(piece, at, count, seed);
		expect(write(fd, piece, count), count);
	}
	expect(fsync(fd), 0);
	expect(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	close(fd);
}

void check_file(const char *path, uint64_t length, unsigned int seed)
{
	static unsigned char piece[65536];
	int fd = open(path, O_RDONLY);
	struct stat stat;
	uint64_t at;

	check(fd >= 0);
	expect(fstat(fd, &stat), 0);
	expect(stat.st_size, length);
	for (at = 0; at < length; at += sizeof(piece)) {
		size_t count = length - at < sizeof(piece) ? (size_t)(length - at) : sizeof(piece);

		expect(read(fd, piece, count), count);
		check_pattern(piece, at, count, seed);
	}
	close(fd);
}

unsigned int open_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	unsigned int count = 0;

	check(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

uint64_t resident(void)
{
	/* A leak is anonymous memory; code may be mapped at any time. */
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	unsigned long long kib = 0;
	char line[256];

	check(file);
	while (!kib && fgets(line, sizeof(line), file))
		sscanf(line, "Anonymous: %llu", &kib);
	check(kib);
	fclose(file);
	return kib << 10;
}

unsigned int times(unsigned int wanted)
{
	return getenv("TESTS_FEWER") ? (wanted + 49) / 50 : wanted;
}

struct dmabuf_dio_options no_options(void)
{
	struct dmabuf_dio_options options;

	memset(&options, 0, sizeof(options));
	options.size = sizeof(options);
	return options;
}

void check_content(struct dmabuf_dio_buffer *buffer, uint64_t position, uint64_t length,
		   unsigned int seed)
{
	uint64_t start = dmabuf_dio_buffer_data_offset(buffer);
	uint64_t all = dmabuf_dio_buffer_length(buffer);
	struct dmabuf_dio_map *map;
	unsigned char *bytes;

	expect(dmabuf_dio_buffer_data_length(buffer), length);
	check(start + length <= all);
	expect(dmabuf_dio_map(buffer, DMABUF_DIO_ACCESS_READ, &map), 0);
	bytes = (unsigned char *)dmabuf_dio_map_address(map);
	check_byte(bytes, start, 0);
	check_pattern(bytes + start, position, length, seed);
	check_byte(bytes + start + length, all - start - length, 0);
	expect(dmabuf_dio_unmap(map), 0);
}

static void fill(struct dmabuf_dio_buffer *buffer, unsigned char byte)
{
	struct dmabuf_dio_map *map;

	expect(dmabuf_dio_map(buffer, DMABUF_DIO_ACCESS_READ | DMABUF_DIO_ACCESS_WRITE, &map), 0);
	memset(dmabuf_dio_map_address(map), byte, dmabuf_dio_buffer_length(buffer));
	expect(dmabuf_dio_unmap(map), 0);
}

struct dmabuf_dio_buffer *memfd_of(uint64_t length, unsigned char byte)
{
	struct dmabuf_dio_buffer *buffer;

	expect(dmabuf_dio_buffer_memfd(length, &buffer), 0);
	fill(buffer, byte);
	return buffer;
}

void for_each_kind(uint64_t length, void (*test)(struct dmabuf_dio_buffer *buffer))
{
	struct dmabuf_dio_buffer *buffer = memfd_of(length, 0xee);

	test(buffer);
	dmabuf_dio_buffer_free(buffer);
	if (dmabuf_dio_buffer_alloc(NULL, length, &buffer)) {
		/* A guest's kernels have the system heap. */
		check(!getenv("DMABUF_DIO_KERNEL"));
		printf("no dma-bufs: %s\n", dmabuf_dio_error_message());
		return;
	}
	fill(buffer, 0xee);
	test(buffer);
	dmabuf_dio_buffer_free(buffer);
}
