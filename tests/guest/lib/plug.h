/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The raw disk, an NVMe device, is unplugged and comes back.
 */
#ifndef TESTS_GUEST_PLUG_H
#define TESTS_GUEST_PLUG_H

#include "lib.h"

/* Its PCI address, from before it was removed; skips on other disks. */
const char *plug_pci(void);
/* Removes it from under its users. */
void plug_remove(void);
/* Finds it again; waits until @path can be opened. */
void plug_rescan(const char *path);
void plug_wait(const char *path);

#endif
