/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DMABUF_DIO_ATTACH_H
#define DMABUF_DIO_ATTACH_H

#include <linux/dma-buf.h>
#include <linux/fs.h>
#include <linux/iosys-map.h>
#include <linux/workqueue.h>

#include "lend.h"
#include "segments.h"

/* A transfer on a buffer, and access of the CPU to it */
struct dbx_turn {
	struct dma_buf *dmabuf;		/* referenced by the caller */
	enum dma_data_direction dir;
	struct list_head list;
	bool runs;			/* else it waits */
#ifdef HAVE_DMA_BUF_LOAN
	struct dma_buf_file_range range;
#endif
};

/* A dma-buf whose pages are borrowed */
struct dbx_attachment {
	struct dma_buf *dmabuf;
	const struct dbx_segments *segs;
	struct dbx_segments table;	/* of a buffer that is not ours */
	struct dma_buf_attachment *pin;	/* with an exporter that pins */
	struct iosys_map map;		/* of an exporter whose pages need it, else empty */
	const struct dbx_exporter *exporter;
	const struct dma_buf_file_ops *loan;	/* NULL: not by the kernel's loan */
	struct delayed_work detach;	/* for dbx_detach() */
	bool stored;			/* file I/O has stored, or may */
};

/* Is the dma-buf's file open for it? READ stores into the buffer; heaps allow O_WRONLY. */
static inline bool dbx_allowed(const struct dbx_attachment *att, int rw)
{
	return att->dmabuf->file->f_mode & (rw == READ ? FMODE_WRITE : FMODE_READ);
}

struct dbx_attachment *dbx_attach(int fd, u32 *refusal);

void dbx_detach(struct dbx_attachment *att);
int dbx_detach_init(void);
void dbx_detach_exit(void);

bool dbx_access_needs_sync(struct dma_buf *dmabuf);
int dbx_access_wait(const struct dbx_turn *turn);
int dbx_access_begin(struct dbx_turn *turn, bool locks);
void dbx_access_end(struct dbx_turn *turn, bool locks);

int dbx_attachment_begin(struct dbx_attachment *att, struct dbx_turn *turn,
			 int rw, u64 offset, u64 length, u32 *refusal);
int dbx_attachment_end(struct dbx_attachment *att, struct dbx_turn *turn,
		       u32 *refusal);

#endif
