/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Buffers of kernel/sim/odd_exporter
 */
#ifndef TESTS_GUEST_ODD_H
#define TESTS_GUEST_ODD_H

#include "odd_exporter/odd_exporter.h"
#include "lib.h"

#define ODD_NAME	"odd_exporter"

/* A dma-buf with ODD_* @oddities; skips where the module is not loaded */
int odd_buffer(size_t length, unsigned int oddities);
int odd_try(size_t length, unsigned int oddities);	/* the same, or -errno */
unsigned int odd_vmaps(int fd);		/* kernel mappings so far */
int odd_touched(int fd);		/* pages the CPU accessed through the latest; -1: unknown */
void odd_move(int fd);			/* into other pages */
void odd_hold(int fd);			/* takes a reference to the first page, which odd_let_go() drops */
int odd_let_go(void);			/* returns how many references there were */
void odd_free(int fd);			/* nothing may be left */
void odd_lock(int fd);			/* the reservation, for a minute or until a signal */

/* ATTACH of any dma-buf must be refused with EOPNOTSUPP and DMABUF_DIO_REFUSED_@reason. */
void expect_refused_at(const char *file, int line, int fd, unsigned int reason);
#define expect_refused(fd, reason)	\
	expect_refused_at(__FILE__, __LINE__, fd, DMABUF_DIO_REFUSED_##reason)

/*
 * Reloads the module with exporters=@names, runs @test, then reloads the module as it was.
 * No context may be open.
 */
void with_exporters(const char *names, void (*test)(void));

#endif
