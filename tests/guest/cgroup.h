/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A control group of its own for a process: limits of memory, and freezing
 */
#ifndef TESTS_GUEST_CGROUP_H
#define TESTS_GUEST_CGROUP_H

#include "lib.h"

/* An empty group, with @controller ("memory", or NULL) for it; skips where there is none */
void cgroup_create(const char *controller);
void cgroup_enter(pid_t pid);
void cgroup_set(const char *file, const char *value);
uint64_t cgroup_get(const char *file);
/* The number behind @key in a file of several lines */
uint64_t cgroup_get_of(const char *file, const char *key);
void cgroup_remove(void);		/* nobody is in it any more */

#endif
