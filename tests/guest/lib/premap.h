/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Buffers that stay mapped for a disk behind an IOMMU (kernel/series-mapped)
 */
#ifndef TESTS_GUEST_PREMAP_H
#define TESTS_GUEST_PREMAP_H

#include "lib.h"

/* Mappings that the kernel keeps for one device, all zero if it knows none */
struct premap {
	unsigned int tables;
	unsigned long long bytes;
	unsigned long long used;	/* how often a request took an address */
};

/* Skips unless the kernel keeps buffers mapped and the raw disk is behind an IOMMU. */
void need_premap(void);
struct premap premap_now(void);
/* Waits until @tables are mapped for the raw disk. */
void premap_expect_tables(unsigned int tables);
/*
 * Reads from @file, which is on the raw disk. From then on the kernel knows the disk and maps new
 * tables for it. Returns when that is done.
 */
void premap_begin(int file);
/*
 * Completed requests of the raw disk. Waits until none is in flight: __blk_mq_end_request() counts
 * a request after it has completed the bios.
 */
uint64_t disk_requests(void);

#endif
