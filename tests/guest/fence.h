/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A fence that stays unsignalled until the test says otherwise: sw_sync's, or where the kernel has
 * been built without that (Debian's) the virtual GPU's
 */
#ifndef TESTS_GUEST_FENCE_H
#define TESTS_GUEST_FENCE_H

#include "lib.h"

/* Skips where there are neither. */
void fence_prepare(void);
/* Puts a new fence on @buf. @flags: DMA_BUF_SYNC_READ or DMA_BUF_SYNC_WRITE */
void fence_add(struct buffer *buf, unsigned int flags);
/* Signals the last one; vgem's signal by themselves after ten seconds. */
void fence_signal(void);

#endif
