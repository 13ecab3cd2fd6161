/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The virtual GPU
 */
#ifndef TESTS_GUEST_VGEM_H
#define TESTS_GUEST_VGEM_H

#include "lib.h"

/* Opens its device, or -ENODEV */
int vgem_open(void);
/* A dma-buf of it, or -errno, and its GEM handle */
int vgem_buffer(int card, size_t length, __u32 *handle);

#endif
