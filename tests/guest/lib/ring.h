/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * io_uring, and slots of the module in it
 */
#ifndef TESTS_GUEST_RING_H
#define TESTS_GUEST_RING_H

#include <liburing.h>

#include "lib.h"

/* A ring with @slots empty registered-buffer slots; skips without io_uring */
void ring_create(struct io_uring *ring, unsigned int entries, unsigned int slots);
/* Skips unless this kernel has slots. */
void need_slots(void);

/* Sends one command to the module; returns the result in its CQE. */
int ring_command(struct io_uring *ring, int dev, uint32_t op, const void *arg,
		 uint32_t size);
int slot_register(struct io_uring *ring, int dev, unsigned int index,
		  uint64_t offset, uint64_t length, unsigned int flags);
int slot_join(struct io_uring *ring, int dev, unsigned int index, const int *contexts,
	      unsigned int count, unsigned int flags, unsigned int reserved);
/* Empties an index, whoever filled it. Returns 1, the number of updated indices, also if it was empty. */
int slot_unregister(struct io_uring *ring, unsigned int index);

/* Queue a request over a slot; @user_data comes back with the result. */
void slot_queue(struct io_uring *ring, bool write, int file, unsigned int index,
		uint64_t slot_offset, unsigned int length, uint64_t position,
		uint64_t user_data);
/* Wait for one result. */
int ring_result(struct io_uring *ring, uint64_t *user_data);
/* Both for a single request */
int slot_io(struct io_uring *ring, bool write, int file, unsigned int index,
	    uint64_t slot_offset, unsigned int length, uint64_t position);

/*
 * slot-kinds.c: does the module register slots over this buffer? It refuses a udmabuf that the
 * kernel does not synchronise with devices; the test fails unless that refusal is correct.
 */
bool slots_possible(const struct buffer *buf);
/* for_each_kind() over the kinds that allow slots */
void for_each_kind_with_slots(size_t length, void (*test)(struct buffer *buf));

#define SLOT_BOTH	(DMABUF_DIO_SLOT_READ | DMABUF_DIO_SLOT_WRITE)

#endif
