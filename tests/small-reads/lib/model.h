/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Files with a model of their content
 */
#ifndef TESTS_SMALL_READS_MODEL_H
#define TESTS_SMALL_READS_MODEL_H

#include "reader.h"

#define SMALL		KIB(256)	/* written at once: one extent or a few */
#define LARGE		READ_MOST	/* every other block: 352 extents */

struct file {
	const char *path;
	int fd, direct;
	uint64_t length;		/* a multiple of 64 KiB */
	unsigned char *model;
};

void file_empty(struct file *f, const char *path, uint64_t length);	/* one hole */
void file_create(struct file *f, const char *path, bool many);
void file_remove(struct file *f);

enum how { BUFFERED, SYNCED, DIRECT, HOWS };

/* Writes content that was never written before. */
void file_put(struct file *f, uint64_t position, uint64_t length, enum how how);

/* Reads through several interfaces and compares with the model. */
void file_check(struct file *f, const char *when);
/* Reads each block, so that a kernel that caches mappings has cached the file's. */
void file_prime(struct file *f);

#endif
