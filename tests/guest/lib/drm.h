/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * DRM drivers
 */
#ifndef TESTS_GUEST_DRM_H
#define TESTS_GUEST_DRM_H

#include "lib.h"

/* Open the first device of a driver, or -ENODEV */
int drm_open(const char *driver);
int vgem_open(void);			/* the virtual GPU's, which is loaded if need be */
/* A dma-buf of it, or -errno, and its GEM handle */
int drm_buffer(int card, size_t length, __u32 *handle);

#endif
