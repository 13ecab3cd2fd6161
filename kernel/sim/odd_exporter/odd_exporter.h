/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
#ifndef ODD_EXPORTER_H
#define ODD_EXPORTER_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define ODD_DEVICE	"/dev/odd_exporter"

/* Odd properties; a buffer without any has ordinary pages. */
#define ODD_UNCOUNTED		1	/* three pages of four have a count of 0 */
#define ODD_RESERVED		2	/* all pages are reserved */
#define ODD_NO_VMAP		4	/* there is no vmap operation */
#define ODD_WRITE_COMBINED	8	/* vmap is write-combined */
/*
 * The pages are at the physical address in the module's parameter "unmapped", memory that was
 * kept from the kernel: they have a struct page and no linear mapping.
 */
#define ODD_UNMAPPED		16
/*
 * The pages are of the default CMA region, and the module takes the dma-buf for one of the CMA
 * heap. EOPNOTSUPP if the kernel does not let modules allocate there.
 */
#define ODD_CMA			32
/*
 * The pages are in large folios, and the last page has a hardware memory error.
 * EOPNOTSUPP if the kernel does not handle memory errors.
 */
#define ODD_POISONED		64

/* Lengths of buffers are multiples of this, in pages. */
#define ODD_UNIT		4

/**
 * struct odd_create - a new dma-buf, open for reading and writing
 * @pages:	in: its length, a multiple of ODD_UNIT
 * @oddities:	in: ODD_*
 *
 * The ioctl returns its fd.
 */
struct odd_create {
	__u32 pages;
	__u32 oddities;
};

#define ODD_CREATE	_IOW(0x0d, 0, struct odd_create)
/* The argument of the other ioctls is the fd of a dma-buf created by this device. */
#define ODD_VMAPS	_IO(0x0d, 1)	/* returns how often it was mapped */
#define ODD_MOVE	_IO(0x0d, 2)	/* puts the content into other pages */
#define ODD_FREE	_IO(0x0d, 3)	/* frees the pages */
/*
 * Returns how many pages the CPU accessed through the latest kernel mapping, 0 without one.
 * EOPNOTSUPP on other architectures than x86.
 */
#define ODD_TOUCHED	_IO(0x0d, 4)

/*
 * Operation of IORING_OP_URING_CMD, since Linux 7.3: registers a page of zeros as the fixed
 * buffer whose index is in the first 64 bits of the command.
 */
#define ODD_SLOT	_IO(0x0d, 5)

/* Takes a reference to the first page of any dma-buf that has a vmap operation; one at a time */
#define ODD_HOLD	_IO(0x0d, 6)
/* Drops that reference, and returns how many there were. It has no argument. */
#define ODD_LET_GO	_IO(0x0d, 7)

/* Locks the reservation of any dma-buf for a minute, or until a signal arrives */
#define ODD_LOCK	_IO(0x0d, 8)

#endif
