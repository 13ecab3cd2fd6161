/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A small file system that is almost full, so that freed blocks are reused at once
 */
#ifndef TESTS_SMALL_READS_TIGHT_H
#define TESTS_SMALL_READS_TIGHT_H

#include "lib.h"

#define LEFT_FREE	MIB(24)		/* in addition to one huge file */

/*
 * Runs @test in its root, for all variants of the guest's file system type or only the first;
 * @variant is the name.
 */
void in_tight_fs(bool all, void (*test)(const char *variant));

void fs_sync(void);
/* Fills the free space with content that belongs to no file. */
void use_again(void);
void free_again(void);

#endif
