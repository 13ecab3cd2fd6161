// SPDX-License-Identifier: GPL-2.0-only
/*
 * Files with known content
 */
#include <sys/stat.h>

#include "lib.h"

#define PIECE	MIB(1)

int file_open(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);

	if (fd < 0)
		fail("%s cannot be opened: %s", path, strerror(errno));
	return fd;
}

bool direct_possible(void)
{
	int fd = open("direct-probe", O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);

	if (fd < 0)
		return false;
	close(fd);
	unlink("direct-probe");
	return true;
}

int direct_flag(bool direct)
{
	return direct ? O_DIRECT : 0;
}

void fd_write(int fd, const void *data, size_t length, uint64_t position)
{
	const char *from = data;

	while (length) {
		ssize_t ret = pwrite(fd, from, length, position);

		if (ret <= 0)
			fail("pwrite at %llu: %s", (unsigned long long)position,
			     ret ? strerror(errno) : "nothing written");
		from += ret;
		position += ret;
		length -= ret;
	}
}

void fd_read(int fd, void *data, size_t length, uint64_t position)
{
	char *to = data;

	while (length) {
		ssize_t ret = pread(fd, to, length, position);

		if (ret <= 0)
			fail("pread at %llu: %s", (unsigned long long)position,
			     ret ? strerror(errno) : "end of file");
		to += ret;
		position += ret;
		length -= ret;
	}
}

void fd_pattern_write(int fd, uint64_t position, uint64_t length, uint64_t seed)
{
	char *piece = allocate(PIECE);

	while (length) {
		size_t count = length < PIECE ? length : PIECE;

		pattern_fill(piece, position, count, seed);
		fd_write(fd, piece, count, position);
		position += count;
		length -= count;
	}
	free(piece);
}

void fd_pattern_check_at(const char *file, int line, int fd, uint64_t position,
			 uint64_t length, uint64_t seed)
{
	char *piece = allocate(PIECE);

	while (length) {
		size_t count = length < PIECE ? length : PIECE;

		fd_read(fd, piece, count, position);
		pattern_check_at(file, line, piece, position, count, seed);
		position += count;
		length -= count;
	}
	free(piece);
}

void fd_punch(int fd, uint64_t position, uint64_t length)
{
	check(!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, position, length));
}

void file_settle(const char *path)
{
	int fd = file_open(path, O_RDONLY);

	check(!fsync(fd));
	check(!posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	close(fd);
}

void file_pattern(const char *path, uint64_t length, uint64_t seed)
{
	int fd = file_open(path, O_RDWR | O_CREAT | O_TRUNC);

	fd_pattern_write(fd, 0, length, seed);
	close(fd);
	file_settle(path);
}

void file_sparse(const char *path, uint64_t length)
{
	int fd = file_open(path, O_RDWR | O_CREAT | O_TRUNC);

	check(!ftruncate(fd, length));
	close(fd);
	file_settle(path);
}
