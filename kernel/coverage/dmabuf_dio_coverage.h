/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_COVERAGE_H
#define DMABUF_DIO_COVERAGE_H

/* Called by covered code, never by name */
void __sanitizer_cov_trace_pc(void);

#endif
