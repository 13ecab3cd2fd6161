/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_ATTACH_H
#define DMABUF_DIO_ATTACH_H

#include <linux/dma-buf.h>
#include <linux/fs.h>
#include <linux/iosys-map.h>
#include <linux/workqueue.h>

#include "lend.h"
#include "segments.h"

/* A dma-buf whose pages are borrowed */
struct dbx_attachment {
	struct dma_buf *dmabuf;
	const struct dbx_segments *segs;
	struct dbx_segments table;	/* of a buffer that is not ours */
	struct iosys_map map;		/* of an exporter that does not lend */
	const struct dbx_exporter *exporter;
	const struct dma_buf_file_ops *loan;	/* NULL: not by the kernel's loan */
	struct delayed_work detach;	/* for dbx_detach() */
};

/* One's turn on a range of a buffer, and access of the CPU to it */
struct dbx_turn {
	enum dma_data_direction dir;
#ifdef HAVE_DMA_BUF_LOAN
	struct dma_buf_file_range range;
#endif
};

/* Is the dma-buf's file open for writing? */
static inline bool dbx_writable(const struct dbx_attachment *att)
{
	return att->dmabuf->file->f_mode & FMODE_WRITE;
}

/* Is it open for reading? Heaps allow O_WRONLY. */
static inline bool dbx_readable(const struct dbx_attachment *att)
{
	return att->dmabuf->file->f_mode & FMODE_READ;
}

struct dbx_attachment *dbx_attach(int fd, u32 *refusal);

void dbx_detach(struct dbx_attachment *att);
int dbx_detach_init(void);
void dbx_detach_exit(void);

int dbx_attachment_begin(struct dbx_attachment *att, struct dbx_turn *turn,
			 int rw, u64 offset, u64 length, u32 *refusal);
int dbx_attachment_end(struct dbx_attachment *att, struct dbx_turn *turn,
		       u32 *refusal);

#endif
