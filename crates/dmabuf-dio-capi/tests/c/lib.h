/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Shared by the tests. Exit status: 0 passed, 1 failed, 77 skipped. C99 and C++. */
#ifndef TESTS_LIB_H
#define TESTS_LIB_H

#include <dmabuf_dio.h>

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)

/* Ends the test unless a number is the wanted one. */
#define expect(got, want) expect_at(__FILE__, __LINE__, #got, (int64_t)(got), (int64_t)(want))
#define check(condition)                                                                \
	do {                                                                            \
		if (!(condition))                                                       \
			fail_at(__FILE__, __LINE__, #condition);                        \
	} while (0)

void fail_at(const char *file, int line, const char *what);
void expect_at(const char *file, int line, const char *what, int64_t got, int64_t want);
void skip(const char *why);

/* Content: byte @position of @seed depends on both. */
void pattern(void *data, uint64_t position, size_t length, unsigned int seed);
void check_pattern_at(const char *file, int line, const void *data, uint64_t position, size_t length,
		      unsigned int seed);
#define check_pattern(...) check_pattern_at(__FILE__, __LINE__, __VA_ARGS__)
void check_byte_at(const char *file, int line, const void *data, size_t length, unsigned char byte);
#define check_byte(...) check_byte_at(__FILE__, __LINE__, __VA_ARGS__)

/* A file on storage and not in the page cache */
void make_file(const char *path, uint64_t length, unsigned int seed);
void check_file(const char *path, uint64_t length, unsigned int seed);
unsigned int open_descriptors(void);
uint64_t resident(void);		/* bytes of this process in memory */
unsigned int times(unsigned int wanted);	/* fewer where everything is slow: TESTS_FEWER */

/* Options that are all default but for the size */
struct dmabuf_dio_options no_options(void);
/* The content of a buffer is @length bytes of the file that @seed made, from @position on. */
void check_content(struct dmabuf_dio_buffer *buffer, uint64_t position, uint64_t length,
		   unsigned int seed);
struct dmabuf_dio_buffer *memfd_of(uint64_t length, unsigned char byte);
/* Calls a function with a buffer of each kind that can be made here. */
void for_each_kind(uint64_t length, void (*test)(struct dmabuf_dio_buffer *buffer));

#endif
