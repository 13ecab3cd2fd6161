/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * /dev/iomap_caller: direct reads through iomap_dio_rw() with chosen arguments, and the
 * state of memory when an asynchronous read completes
 */
#ifndef IOMAP_CALLER_H
#define IOMAP_CALLER_H

#include <linux/ioctl.h>
#include <linux/types.h>

struct iomap_call {
	__s32 file_fd;		/* open for direct reads; its file system's device is read */
	__u32 dio_flags;	/* IOMAP_DIO_* */
	__u64 memory;
	__u64 length;
	__u64 position;
	__u64 done_before;
	__u32 own_ops;		/* pass iomap_dio_ops */
	__s32 begin_error;	/* what ->iomap_begin returns instead of a mapping */

	/* The mapping: IOMAP_* from offset 0, at a device address, followed by a hole */
	__u32 type;
	__u32 source_length;	/* of a second mapping, as for copy on write; 0: none */
	__u64 mapped;		/* bytes */
	__u64 address;

	/* The result */
	__s64 result;
	__u32 begun;		/* calls of ->iomap_begin */
	__u32 ended;		/* calls of ->iomap_end */
	__s64 written;		/* sum over all calls of ->iomap_end */
};

#define IOMAP_CALL	_IOWR('i', 1, struct iomap_call)

/* An asynchronous read by the file's own ->read_iter(), into memory of the caller */
struct iomap_async {
	__s32 file_fd;
	__u32 queued;		/* result: it was queued, not done at once */
	__u64 memory;
	__u64 length;
	__u64 position;
	__s64 result;

	/* Whether the first page is pinned once the read is queued, and in ->ki_complete() */
	__u32 pinned_before;
	__u32 pinned;
};

#define IOMAP_ASYNC	_IOWR('i', 2, struct iomap_async)

#endif
