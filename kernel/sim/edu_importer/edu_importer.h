/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
#ifndef EDU_IMPORTER_H
#define EDU_IMPORTER_H

#include <linux/ioctl.h>

/* Attach and map the dma-buf whose fd is the argument, until close. */
#define EDU_IMPORT	_IO(0xed, 0)

#endif
