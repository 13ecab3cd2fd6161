/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Calls that take seconds, on a context that parent and child share
 */
#ifndef TESTS_GUEST_SLOW_H
#define TESTS_GUEST_SLOW_H

#include "lib.h"

enum slow_call { SLOW_READ, SLOW_WRITE, SLOW_LOAD, SLOW_CALLS };

/* The cause of a slow call */
enum slow_way {
	SLOW_DISK,			/* every request takes 50 ms */
	SLOW_DIRECT,			/* one page at a time */
	SLOW_BUFFERED,
	SLOW_WAYS
};

struct slow {
	enum slow_call call;
	enum slow_way way;
	unsigned int depth;		/* 4 */
	struct buffer buf;
	uint64_t length;
	int dev;
};

/* Sets up the file and the buffer; false if this machine cannot be slowed that way */
bool slow_begin(struct slow *slow, enum slow_call call, enum slow_way way);
/*
 * Makes the whole call, repeated after each interruption, and checks every byte.
 * Returns the number of interruptions.
 */
unsigned int slow_work(struct slow *slow);
void slow_wait(const struct slow *slow);	/* until it makes progress */
void slow_hurry(const struct slow *slow);	/* the rest is not slow, if a disk made it so */
void slow_end(struct slow *slow);

#endif
