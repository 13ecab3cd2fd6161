/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * /dev/premap_request: what a driver is told of a request for memory that stays mapped
 */
#ifndef PREMAP_REQUEST_H
#define PREMAP_REQUEST_H

#include <linux/ioctl.h>
#include <linux/types.h>

struct premap_request {
	__s32 disk_fd;		/* a block device that tables are mapped for; it is not read */
	__u32 lose;		/* remove the second table while the request is being mapped */

	/* The result, of a request of two bios, of a page each, from two tables */
	__u32 segments;
	__u32 bytes;		/* of all segments */
	__u32 status;		/* blk_status_t; 0 is success */
	__u32 pad;
};

#define PREMAP_REQUEST	_IOWR('p', 1, struct premap_request)

#endif
