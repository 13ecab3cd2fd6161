/* SPDX-License-Identifier: GPL-2.0-only */
/* Definitions that older kernels lack */
#ifndef DMABUF_DIO_COMPAT_H
#define DMABUF_DIO_COMPAT_H

#include <linux/slab.h>

#ifndef kzalloc_obj
#define kzalloc_obj(obj, gfp)	kzalloc(sizeof(obj), gfp)
#endif

#endif
