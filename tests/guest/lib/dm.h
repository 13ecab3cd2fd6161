/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A device whose sectors fail on demand: the device mapper over the raw disk
 */
#ifndef TESTS_GUEST_DM_H
#define TESTS_GUEST_DM_H

#include "lib.h"

#define DM_PATH		"/dev/mapper/dio-test"

/* Covers @bytes of the raw disk; skips without the device mapper */
void dm_create(uint64_t bytes);
/* Makes [@start, @start + @length) fail; @length 0 heals everything. */
void dm_break(uint64_t start, uint64_t length);
/* Replaces the whole table by @format: a target and its arguments. */
void dm_reload(const char *format, ...)
	__attribute__((format(printf, 1, 2)));
/* Requests from byte @from up to the next part take @ms longer. */
struct dm_part {
	uint64_t from;
	unsigned int ms;
};
void dm_delay(const struct dm_part *parts, unsigned int nr);
/* Requests wait from dm_stop() until dm_go_on(). */
void dm_stop(void);
void dm_go_on(void);
void dm_remove(void);
/* Is the target "delay" available? */
bool dm_delays(void);

#endif
