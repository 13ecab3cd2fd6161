/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A device whose sectors fail on demand: the device mapper over the raw disk
 */
#ifndef TESTS_GUEST_DM_H
#define TESTS_GUEST_DM_H

#include "lib.h"

#define DM_PATH		"/dev/mapper/dio-test"

/* @bytes of the raw disk; skips without the device mapper */
void dm_create(uint64_t bytes);
/* Makes [@start, @start + @length) fail; @length 0 heals everything. */
void dm_break(uint64_t start, uint64_t length);
/* Makes all of it what @format says: a target and what follows in its table. */
void dm_reload(const char *format, ...)
	__attribute__((format(printf, 1, 2)));
/* From @from on, in bytes, requests take @ms longer: until the next part begins */
struct dm_part {
	uint64_t from;
	unsigned int ms;
};
void dm_delay(const struct dm_part *parts, unsigned int nr);
void dm_remove(void);
/* Can a disk be made slow, by the target "delay"? */
bool dm_delays(void);

#endif
