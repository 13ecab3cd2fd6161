/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
#ifndef EDU_IMPORTER_H
#define EDU_IMPORTER_H

#include <linux/ioctl.h>

/*
 * Attach and map the dma-buf whose fd is the argument: for both directions, for
 * a device that only reads it, for one that only writes.
 */
#define EDU_IMPORT		_IO(0xed, 0)
#define EDU_IMPORT_READER	_IO(0xed, 1)
#define EDU_IMPORT_WRITER	_IO(0xed, 2)
/* Unmap and detach it; closing does so, too. */
#define EDU_DROP		_IO(0xed, 3)

#endif
