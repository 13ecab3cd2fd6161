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
struct dio_attachment {
	struct dma_buf *dmabuf;
	const struct dio_segments *segs;
	struct dio_segments table;	/* of a buffer that is not ours */
	struct iosys_map map;		/* of an exporter that does not lend */
	const struct dio_exporter *exporter;
	const struct dma_buf_file_ops *loan;	/* NULL: not by the kernel's loan */
	struct delayed_work detach;	/* for dio_detach() */
};

/* One's turn on a range of a buffer, and access of the CPU to it */
struct dio_turn {
	enum dma_data_direction dir;
#ifdef HAVE_DMA_BUF_LOAN
	struct dma_buf_file_range range;
#endif
};

/* Is the dma-buf's file open for writing? */
static inline bool dio_writable(const struct dio_attachment *att)
{
	return att->dmabuf->file->f_mode & FMODE_WRITE;
}

/* Is it open for reading? Heaps allow O_WRONLY. */
static inline bool dio_readable(const struct dio_attachment *att)
{
	return att->dmabuf->file->f_mode & FMODE_READ;
}

struct dio_attachment *dio_attach(int fd, u32 *refusal);

void dio_detach(struct dio_attachment *att);
int dio_detach_init(void);
void dio_detach_exit(void);

int dio_attachment_begin(struct dio_attachment *att, struct dio_turn *turn,
			 int rw, u64 offset, u64 length, u32 *refusal);
int dio_attachment_end(struct dio_attachment *att, struct dio_turn *turn,
		       u32 *refusal);

#endif
