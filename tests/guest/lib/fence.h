/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A fence that the test signals: from sw_sync, or from the virtual GPU if the kernel is built
 * without sw_sync (Debian's)
 */
#ifndef TESTS_GUEST_FENCE_H
#define TESTS_GUEST_FENCE_H

#include "lib.h"

/* Skips if neither is available. */
void fence_prepare(void);
/* Puts a new fence on @buf. @flags: DMA_BUF_SYNC_READ or DMA_BUF_SYNC_WRITE */
void fence_add(struct buffer *buf, unsigned int flags);
/* Signals the oldest one; vgem's fences time out after ten seconds. */
void fence_signal(void);

#endif
