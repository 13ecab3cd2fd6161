/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Direct reads and writes of whole files, many at once, by every method
 */
#ifndef TESTS_SMALL_READS_READER_H
#define TESTS_SMALL_READS_READER_H

#include <linux/aio_abi.h>

#include "ring.h"

#define BLOCK		KIB(4)
#define READ_MOST	KIB(2816)

enum method { SYNC, AIO, RING, RING_FIXED, METHODS };

extern const char * const method_names[METHODS];

/* All methods with both sizes */
#define WAYS		(2 * METHODS)
#define way_method(way)	((way) / 2)
#define way_piece(way)	((way) % 2 ? KIB(64) : BLOCK)

struct reader {
	unsigned char *data;		/* room for READ_MOST */
	int results[READ_MOST / BLOCK];
	aio_context_t aio;
	struct io_uring ring;
	bool has_ring;
};

void reader_create(struct reader *r);
void reader_destroy(struct reader *r);
/* Reads to r->data, with zeros beyond the end of the file; returns the length read. */
uint64_t read_direct(struct reader *r, unsigned int way, int fd, uint64_t position,
		     uint64_t length);
/* Writes r->data, all of it. @length is a multiple of way_piece(@way) for both. */
void write_direct(struct reader *r, unsigned int way, int fd, uint64_t position,
		  uint64_t length);

#endif
