/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * dmabuf_dio: file I/O straight to and from the pages of a dma-buf
 *
 * Open /dev/dmabuf_dio; the open file is a context. A context can attach one
 * dma-buf and keeps it until it is closed. LOAD needs no attached buffer.
 *
 * All lengths and offsets are in bytes. File offsets count from the start of
 * the file or block device, buffer offsets from the start of the dma-buf.
 *
 * Every structure can grow at its end. The size travels in the ioctl number
 * (or in struct dmabuf_dio_uring_cmd): a shorter structure is read as if
 * followed by zeroes (LOAD's must reach dmabuf_fd, else EINVAL), a longer one
 * is taken if what the kernel does not know is zero and refused with E2BIG
 * otherwise. Reserved and unknown flag bits
 * must be zero, else EINVAL.
 */
#ifndef _UAPI_LINUX_DMABUF_DIO_H
#define _UAPI_LINUX_DMABUF_DIO_H

#include <linux/const.h>
#include <linux/ioctl.h>
#include <linux/types.h>

#define DMABUF_DIO_DEVICE	"/dev/dmabuf_dio"

/**
 * struct dmabuf_dio_info - what this module can do
 * @features:		out: DMABUF_DIO_FEATURE_*
 * @max_depth:		out: largest accepted number of requests in flight
 * @reserved:		must be zero
 * @max_chunk:		out: largest accepted request
 * @default_chunk:	out: request size used when 0 is passed
 * @default_gather:	out: gather size used when 0 is passed
 * @default_depth:	out: requests in flight when 0 is passed
 * @reserved2:		must be zero
 */
struct dmabuf_dio_info {
	__u64 features;
	__u32 max_depth;
	__u32 reserved;
	__u64 max_chunk;
	__u64 default_chunk;
	__u64 default_gather;
	__u32 default_depth;
	__u32 reserved2;
};

/* REGISTER and UNREGISTER of io_uring fixed-buffer slots work (Linux 7.3) */
#define DMABUF_DIO_FEATURE_SLOTS	_BITULL(0)

/**
 * struct dmabuf_dio_attach - borrow the pages of a dma-buf
 * @dmabuf_fd:	in: the dma-buf; may be closed afterwards
 * @flags:	in: must be zero
 * @length:	out: length of the buffer
 * @segments:	out: number of physically contiguous pieces
 * @refusal:	in: must be zero; out: with EOPNOTSUPP why, DMABUF_DIO_REFUSED_*
 *
 * Borrowed from are only exporters that leave the pages where they are for as
 * long as the dma-buf exists: LOAD, the system and CMA heaps, udmabuf; those in
 * the module parameter "exporters"; and whoever lends, on kernels that have the
 * callback for it. Nothing else is as much as mapped.
 *
 * Errors: EBADF (no such fd), EINVAL (not a dma-buf), EBUSY (this context
 * has a buffer already), EOPNOTSUPP (see @refusal), ENOMEM.
 */
struct dmabuf_dio_attach {
	__s32 dmabuf_fd;
	__u32 flags;
	__u64 length;
	__u32 segments;
	__u32 refusal;
};

/* Nobody vouches that buffers of this exporter stay where they are. */
#define DMABUF_DIO_REFUSED_EXPORTER	1
/*
 * Memory to which the I/O path must not take references: uncounted, reserved, a
 * device's
 */
#define DMABUF_DIO_REFUSED_PAGES	2
/*
 * There is no kernel mapping, or it is not of the buffer's pages: Linux 6.12's
 * udmabuf over huge pages
 */
#define DMABUF_DIO_REFUSED_MAPPING	3
/*
 * A device that does not see the memory itself (bounce buffers, caches that are
 * not coherent) has attached a udmabuf, and this kernel's does not synchronise it
 */
#define DMABUF_DIO_REFUSED_UNSYNCED	4

/**
 * struct dmabuf_dio_rw - move a range between a file and the attached buffer
 * @file_fd:		in: regular file or block device; opened with O_DIRECT
 *			the bytes move by DMA, else through the page cache
 * @flags:		in: must be zero
 * @file_offset:	in: start in the file
 * @buf_offset:		in: start in the buffer
 * @length:		in: bytes to move; 0 moves nothing and succeeds
 * @chunk:		in: bytes per request, a multiple of the page size; 0: default
 * @depth:		in: requests in flight; 0: default
 * @align:		out: with EINVAL for want of alignment under O_DIRECT:
 *			file_offset and buf_offset must be congruent modulo
 *			this; 0 with every other EINVAL
 * @done:		out: bytes moved, from the start of the range, without a
 *			gap; also valid when the call fails
 * @direct:		out: how many of @done were asked for with O_DIRECT
 * @refusal:		out: DMABUF_DIO_REFUSED_UNSYNCED, or 0
 * @reserved:		must be zero
 *
 * READ fills the buffer from the file and stops early only at the end of the
 * file, where that returns no byte: then the call succeeds with @done < @length.
 * WRITE fills the file from the buffer and never succeeds with less. Bytes
 * outside the range are not changed on either side. Behind @done, within the
 * range, READ at the end of a file leaves old bytes or zeroes, as the file system
 * does; after a failure the bytes there are undefined on the receiving side.
 *
 * Under O_DIRECT the start and the end of the range need not be aligned: what
 * does not fill a block is read through a bounce page, or written through the
 * page cache. Only the difference between the two offsets has to suit the
 * device, see @align.
 *
 * The fences on the buffer's reservation are waited for, and the transfer is
 * bracketed by begin and end of CPU access. READ, WRITE and, on kernels where
 * dma-bufs have it, copy_file_range() on one dma-buf take turns.
 *
 * What a device stores into the buffer while READ runs may be lost, anywhere in
 * it, and is not seen by whoever begins CPU access meanwhile. Exporters of an
 * unchanged kernel know nothing of READ: if a device needs synchronisation
 * (bounce buffers, caches that are not coherent) it must not unmap such a buffer,
 * and nobody begin CPU access, while READ runs, or old bytes come back over those
 * of the file. Buffers of LOAD, and of exporters that lend, are safe from that.
 *
 * Any signal ends the call with EINTR once the requests in flight are done, but
 * not before something has moved: who calls again behind @done gets on. That
 * includes the signals that stop or freeze a process. A signal while the call
 * waits for fences or its turn restarts it, or ends it with EINTR, as the
 * signal's handler is installed.
 *
 * A udmabuf on a kernel without loans is not synchronised with devices. While
 * one that needs it has the buffer attached the call fails with EBUSY, and
 * nothing moves. If such a device comes while the call runs it fails with EBUSY,
 * too: then the bytes are where they belong, but the device may not see them. One
 * that comes and goes within a call is not noticed.
 *
 * Errors: ENOTCONN (no buffer attached), EACCES (READ into a dma-buf whose fd
 * is read-only), EBADF (bad fd, or not open for the
 * direction, or O_APPEND for WRITE), EISDIR, EINVAL (not a regular file or
 * block device, flags, chunk, depth, alignment), EOVERFLOW (a range that wraps
 * or exceeds the largest file offset), ERANGE (range beyond the buffer), EBUSY
 * (see @refusal), EINTR, ECANCELED (see DMABUF_DIO_IOC_CANCEL), and what the
 * file system returns: EIO, ENOSPC, EFBIG, ...
 */
struct dmabuf_dio_rw {
	__s32 file_fd;
	__u32 flags;
	__u64 file_offset;
	__u64 buf_offset;
	__u64 length;
	__u64 chunk;
	__u32 depth;
	__u32 align;
	__u64 done;
	__u64 direct;
	__u32 refusal;
	__u32 reserved;
};

/**
 * struct dmabuf_dio_load - allocate a dma-buf and read a file into it
 * @file_fd:		in: as in struct dmabuf_dio_rw
 * @fd_flags:		in: O_CLOEXEC, and O_RDONLY or O_RDWR, for the new fd
 * @flags:		in: must be zero
 * @depth:		in: requests in flight; 0: default
 * @file_offset:	in: start in the file
 * @length:		in: bytes to read, at least 1
 * @gather:		in: memory to allocate before the first read is issued;
 *			0: the module parameter "gather"
 * @chunk:		in: bytes per request, a multiple of the page size; 0: default
 * @dmabuf_fd:		out: the new dma-buf, owned by the caller
 * @segments:		out: number of physically contiguous pieces
 * @buf_length:		out: length of the dma-buf: @length rounded up to pages
 * @done:		out: bytes read, also valid when the call fails
 * @direct:		out: how many of @done were asked for with O_DIRECT
 * @align:		out: as in struct dmabuf_dio_rw; the buffer offset is 0, so
 *			@file_offset has to be a multiple of it
 * @reserved:		must be zero
 *
 * The fd appears only when all of @length has been read; the rest of the last
 * page is zero. Otherwise nothing is returned and the memory is freed, unless a
 * signal has ended the call, as it does READ. After EINTR the memory stays with
 * the context, and a LOAD of the same open file, @file_offset, @length and access mode
 * on it goes on where the last one ended; @done counts all. Another LOAD, CANCEL, or
 * closing the context frees it.
 *
 * Errors: as for READ, and ENODATA (the file ends before the range does),
 * EINVAL (@length is 0), ENOMEM (more than the memory that is available;
 * the OOM killer is not called), EMFILE.
 */
struct dmabuf_dio_load {
	__s32 file_fd;
	__u32 fd_flags;
	__u32 flags;
	__u32 depth;
	__u64 file_offset;
	__u64 length;
	__u64 gather;
	__u64 chunk;
	__s32 dmabuf_fd;
	__u32 segments;
	__u64 buf_length;
	__u64 done;
	__u64 direct;
	__u32 align;
	__u32 reserved;
};

#define DMABUF_DIO_IOC_MAGIC	0xdb

#define DMABUF_DIO_IOC_INFO	_IOWR(DMABUF_DIO_IOC_MAGIC, 0, struct dmabuf_dio_info)
#define DMABUF_DIO_IOC_ATTACH	_IOWR(DMABUF_DIO_IOC_MAGIC, 1, struct dmabuf_dio_attach)
#define DMABUF_DIO_IOC_READ	_IOWR(DMABUF_DIO_IOC_MAGIC, 2, struct dmabuf_dio_rw)
#define DMABUF_DIO_IOC_WRITE	_IOWR(DMABUF_DIO_IOC_MAGIC, 3, struct dmabuf_dio_rw)
#define DMABUF_DIO_IOC_LOAD	_IOWR(DMABUF_DIO_IOC_MAGIC, 4, struct dmabuf_dio_load)
/*
 * For good: the READ, WRITE and LOAD calls running on this context end with
 * ECANCELED once their requests in flight are done, those that wait for fences or
 * their turn when they have had it, and all later ones at once.
 */
#define DMABUF_DIO_IOC_CANCEL	_IO(DMABUF_DIO_IOC_MAGIC, 5)

/**
 * struct dmabuf_dio_slot - an io_uring fixed buffer over part of the buffer
 * @buf_offset:	in: start in the attached buffer, a multiple of the page size
 * @length:	in: bytes, at least 1, less than 4 GiB
 * @index:	in: slot in the ring's table of registered buffers, which the
 *		caller has created sparse and large enough
 * @flags:	in: DMABUF_DIO_SLOT_*, at least one direction
 *
 * READ_FIXED and WRITE_FIXED then take the slot as buf_index and an offset into
 * it, from 0, as addr. The slot keeps the buffer alive after the device and
 * dma-buf fds are closed, until it is unregistered or the ring goes. Bracket
 * the I/O on a slot with DMA_BUF_IOCTL_SYNC, as one does for a mapping. As
 * there, devices that need synchronisation must not unmap the buffer meanwhile,
 * and nobody else begin CPU access.
 *
 * UNREGISTER looks at @index only; the other fields must be zero. It removes what
 * REGISTER made on this ring, of any context. A ring that got the slot by
 * IORING_REGISTER_CLONE_BUFFERS drops it by IORING_REGISTER_BUFFERS_UPDATE or its end.
 *
 * Errors, in the CQE: ENOTCONN, EACCES, EINVAL, ERANGE, EBUSY (the slot is taken, or
 * not ours to remove), EOPNOTSUPP (kernel without this interface; a
 * udmabuf that the kernel does not synchronise with devices, see
 * DMABUF_DIO_REFUSED_UNSYNCED: READ and WRITE look each time), E2BIG (see struct
 * dmabuf_dio_uring_cmd), ENOMEM.
 */
struct dmabuf_dio_slot {
	__u64 buf_offset;
	__u64 length;
	__u32 index;
	__u32 flags;
};

#define DMABUF_DIO_SLOT_READ	_BITUL(0)	/* file to buffer: READ_FIXED */
#define DMABUF_DIO_SLOT_WRITE	_BITUL(1)	/* buffer to file: WRITE_FIXED */

/**
 * struct dmabuf_dio_uring_cmd - what stands in the SQE's cmd area
 * @arg:	user address of a struct dmabuf_dio_slot
 * @size:	its size, at most a page
 * @reserved:	must be zero
 */
struct dmabuf_dio_uring_cmd {
	__u64 arg;
	__u32 size;
	__u32 reserved;
};

/* sqe->cmd_op of IORING_OP_URING_CMD on a context */
#define DMABUF_DIO_URING_REGISTER	_IOW(DMABUF_DIO_IOC_MAGIC, 0x80, struct dmabuf_dio_slot)
#define DMABUF_DIO_URING_UNREGISTER	_IOW(DMABUF_DIO_IOC_MAGIC, 0x81, struct dmabuf_dio_slot)

#endif /* _UAPI_LINUX_DMABUF_DIO_H */
