/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A control group of its own for a process: limits of memory, and freezing
 */
#ifndef TESTS_GUEST_CGROUP_H
#define TESTS_GUEST_CGROUP_H

#include "lib.h"

/* An empty group with @controller ("memory", or NULL); skips if that is not available */
void cgroup_create(const char *controller);
void cgroup_enter(pid_t pid);
void cgroup_set(const char *file, const char *value);
uint64_t cgroup_get(const char *file);
/* The number after @key in a file of several lines */
uint64_t cgroup_get_of(const char *file, const char *key);
void cgroup_remove(void);		/* the group must be empty */

#endif
