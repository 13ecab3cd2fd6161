/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * dmabuf_dio: file I/O straight to and from the pages of a dma-buf
 *
 * Open /dev/dmabuf_dio: the open file is a context. A context can attach one
 * dma-buf, which stays attached until the file is closed. LOAD needs no attached
 * buffer.
 *
 * All lengths and offsets are in bytes. File offsets count from the start of
 * the file or block device, buffer offsets from the start of the dma-buf.
 *
 * Structures may be extended at their end. Their size is part of the ioctl
 * number (or of struct dmabuf_dio_uring_cmd). Missing fields of a shorter
 * structure count as zero (LOAD's must reach dmabuf_fd, else EINVAL). A longer
 * structure is accepted if the part unknown to the kernel is zero, else the
 * error is E2BIG. Reserved fields and unknown flags must be zero, else EINVAL.
 * If a structure cannot be written back, the error is EFAULT: LOAD has no effect
 * then, other calls have had theirs, and ATTACH may have attached the buffer.
 */
#ifndef _UAPI_LINUX_DMABUF_DIO_H
#define _UAPI_LINUX_DMABUF_DIO_H

#include <linux/const.h>
#include <linux/ioctl.h>
#include <linux/types.h>

#define DMABUF_DIO_DEVICE	"/dev/dmabuf_dio"

/**
 * struct dmabuf_dio_info - features and limits of this module
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

/* io_uring fixed-buffer slots can be registered (Linux 7.3) */
#define DMABUF_DIO_FEATURE_SLOTS	_BITULL(0)
/* A slot can be of several buffers: JOIN */
#define DMABUF_DIO_FEATURE_JOIN		_BITULL(1)
/* The kernel can keep a buffer mapped for a device behind an IOMMU (patch series) */
#define DMABUF_DIO_FEATURE_PREMAP	_BITULL(2)

/**
 * struct dmabuf_dio_attach - borrow the pages of a dma-buf
 * @dmabuf_fd:	in: the dma-buf; may be closed afterwards
 * @flags:	in: must be zero
 * @length:	out: length of the buffer
 * @segments:	out: number of physically contiguous pieces
 * @refusal:	in: must be zero; out: the reason for EOPNOTSUPP, DMABUF_DIO_REFUSED_*
 *
 * The module borrows only from exporters that do not move or free the pages
 * while the dma-buf exists: LOAD, the system and CMA heaps, udmabuf; drivers of
 * DRM whose buffers are shared memory, which it has pinned until the context is
 * closed; exporters in the module parameter "exporters"; and all exporters that
 * lend, on kernels where they can. Other dma-bufs are refused before anything
 * is mapped.
 *
 * Errors: EBADF (invalid fd), EINVAL (not a dma-buf), EBUSY (the context has a
 * buffer already), EOPNOTSUPP (see @refusal), EINTR (killed), ENOMEM.
 */
struct dmabuf_dio_attach {
	__s32 dmabuf_fd;
	__u32 flags;
	__u64 length;
	__u32 segments;
	__u32 refusal;
};

/* The exporter is not known to leave its pages in place. */
#define DMABUF_DIO_REFUSED_EXPORTER	1
/*
 * Memory to which the I/O path must not take references: uncounted or reserved
 * pages, device memory
 */
#define DMABUF_DIO_REFUSED_PAGES	2
/*
 * There is no kernel mapping, or it may not map the buffer's pages: Linux 6.12's
 * udmabuf over huge pages, and any buffer that ends with the first page of one
 */
#define DMABUF_DIO_REFUSED_MAPPING	3
/*
 * The exporter does not synchronise devices (this kernel's udmabuf, most drivers
 * of DRM), and one needs it (bounce buffers, non-coherent caches): an attached
 * one, or that of the driver. Or it maps memory write-combined, on another
 * processor than x86-64.
 */
#define DMABUF_DIO_REFUSED_UNSYNCED	4
/*
 * Memory of a file (a udmabuf's memfd) that was allocated, by fallocate(), but
 * never filled: the first write to the file there, or access by a mapping of it,
 * would zero it. Write to it, or use MADV_POPULATE_WRITE, and create the udmabuf
 * afterwards. Reading the file does not fill it.
 */
#define DMABUF_DIO_REFUSED_UNFILLED	5
/* A page, or another of its huge page, has a hardware memory error. */
#define DMABUF_DIO_REFUSED_POISONED	6

/**
 * struct dmabuf_dio_rw - transfer a range between a file and the attached buffer
 * @file_fd:		in: regular file or block device. If open with O_DIRECT,
 *			data is transferred by DMA, else through the page cache
 * @flags:		in: must be zero
 * @file_offset:	in: start in the file
 * @buf_offset:		in: start in the buffer
 * @length:		in: bytes to transfer; 0 succeeds without effect
 * @chunk:		in: bytes per request, a multiple of the page size; 0: default
 * @depth:		in: requests in flight; 0: default
 * @align:		out: if the call fails with EINVAL because O_DIRECT needs
 *			alignment: file_offset and buf_offset must be congruent
 *			modulo this value; otherwise 0
 * @done:		out: bytes transferred contiguously from the start of the
 *			range; also valid if the call fails
 * @direct:		out: how many of @done were requested with O_DIRECT
 * @refusal:		out: DMABUF_DIO_REFUSED_UNSYNCED, or 0
 * @reserved:		must be zero
 *
 * READ reads from the file into the buffer. It succeeds with @done < @length
 * only if the file ends inside the range, that is, a read returns no byte. WRITE
 * writes from the buffer to the file and succeeds only if all was written. Bytes
 * outside the range are not changed on either side. Within the range, after
 * @done: if the file ended, the buffer has its old content or zeroes, depending
 * on the file system; after a failure, the content of the destination is
 * undefined.
 *
 * With O_DIRECT, the start and the end of the range need not be aligned: partial
 * blocks are read through a bounce page, or written through the page cache. Only
 * the difference between the two offsets must be aligned, see @align.
 *
 * The call waits for the fences that are on the buffer's reservation and brackets
 * the transfer with begin and end of CPU access. While a device that needs
 * synchronisation (bounce buffers, non-coherent caches) is attached, it waits for
 * all READ and WRITE calls on that dma-buf, of whatever process, that began before;
 * otherwise they run at the same time. Calls on buffers of exporters that the module
 * parameter "exporters" names always wait for each other. On kernels that support copy_file_range()
 * for dma-bufs, calls and copies wait for each other only if they have a page in
 * common and one of them stores into it.
 *
 * Data that a device stores anywhere in the buffer while READ runs may be lost,
 * and others that begin CPU access meanwhile do not see it; on kernels with
 * copy_file_range() for dma-bufs only data that it stores into pages of READ's
 * range. If a device needs
 * synchronisation, then while READ runs it must not unmap the buffer, and others
 * must not begin CPU access: the exporters of an unmodified kernel would overwrite
 * the file's data with old data. Buffers of LOAD are protected from this, and all
 * buffers on kernels with copy_file_range() for dma-bufs.
 *
 * Any signal, including those that stop or freeze a process, ends the call with
 * EINTR once the requests in flight are done, but not before some data has been
 * transferred; the caller continues after @done. A signal while the call waits
 * for fences or for another transfer restarts it or ends it with EINTR, depending
 * on SA_RESTART.
 *
 * On a kernel without loans, udmabuf does not synchronise devices. While a device
 * that needs it has the buffer attached, the call fails with EBUSY, and nothing
 * is transferred. If such a device attaches during the call, the call also fails
 * with EBUSY: @done bytes have been transferred, but the device may not see them.
 * A device that attaches and detaches during the call is not noticed.
 *
 * Errors: ENOTCONN (no buffer attached), EACCES (the dma-buf's fd is read-only for
 * READ, or write-only for WRITE), EBADF (invalid fd, not open for the direction, or O_APPEND for
 * WRITE), EISDIR, EINVAL (not a regular file or block device, or one that the kernel
 * cannot read or write at an offset, as in /proc, flags, chunk,
 * depth, alignment), EOVERFLOW (the range wraps or exceeds the largest file
 * offset), ERANGE (range beyond the buffer), EBUSY (see @refusal), EINTR,
 * ECANCELED (see DMABUF_DIO_IOC_CANCEL), and the errors of the file system: EIO,
 * ENOSPC, EFBIG, ...
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
 * The fd is created only when all of @length has been read; the rest of the last
 * page is zero. If the call fails, the memory is freed, except after EINTR, for
 * which see READ: the memory then stays with the context, and a LOAD with the
 * same open file, @file_offset, @length and access mode continues where the last
 * one ended. @done counts the bytes of all these calls. A different LOAD, CANCEL
 * and closing the context free the memory.
 *
 * Errors: as for READ, and ENODATA (the file ends before the range does),
 * EINVAL (@length is 0), ENOMEM (more than is available without the module
 * parameter "reserve" and without what other loads still have to allocate, or
 * others have taken half of the reserve meanwhile; allocating the buffer never
 * invokes the OOM killer), EMFILE.
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
 * Cancels the context permanently. READ, WRITE and LOAD calls that are running
 * end with ECANCELED once their requests in flight are done; calls that wait for
 * fences or for another transfer, after that wait; later ones, at once.
 */
#define DMABUF_DIO_IOC_CANCEL	_IO(DMABUF_DIO_IOC_MAGIC, 5)

/**
 * struct dmabuf_dio_slot - an io_uring fixed buffer over part of the buffer
 * @buf_offset:	in: start in the attached buffer, a multiple of the page size
 * @length:	in: bytes, at least 1, less than 4 GiB
 * @index:	in: index in the ring's table of registered buffers, which the
 *		caller has registered, sparse and large enough
 * @flags:	in: DMABUF_DIO_SLOT_*, at least one direction
 *
 * For READ_FIXED and WRITE_FIXED, buf_index is @index and addr is an offset
 * into the slot, from 0. Bracket I/O on a slot with DMA_BUF_IOCTL_SYNC, as for
 * a mapping. As for a mapping, devices that need synchronisation must not unmap
 * the buffer meanwhile, and others must not begin CPU access.
 *
 * The slot keeps the buffer alive after the device and dma-buf fds are closed, until
 * IORING_REGISTER_BUFFERS_UPDATE empties the index (address NULL, length 0) or the
 * ring is freed, and the last request is done. A ring that got the slot by
 * IORING_REGISTER_CLONE_BUFFERS keeps it as well.
 *
 * Errors, in the CQE: ENOTCONN, EACCES, EFAULT, EINVAL, ERANGE, EBUSY (the index is in
 * use), EOPNOTSUPP (the kernel lacks this interface, or the exporter does not
 * synchronise devices, see DMABUF_DIO_REFUSED_UNSYNCED: use READ and WRITE), E2BIG
 * (see struct dmabuf_dio_uring_cmd), ENOTTY (unknown command), ENOMEM.
 */
struct dmabuf_dio_slot {
	__u64 buf_offset;
	__u64 length;
	__u32 index;
	__u32 flags;
};

#define DMABUF_DIO_SLOT_READ	_BITUL(0)	/* file to buffer: READ_FIXED */
#define DMABUF_DIO_SLOT_WRITE	_BITUL(1)	/* buffer to file: WRITE_FIXED */

/* Most buffers in a slot made by JOIN */
#define DMABUF_DIO_JOIN_MAX	1024

/**
 * struct dmabuf_dio_join - an io_uring fixed buffer over several whole buffers
 * @contexts:	in: user address of an array of __s32: contexts, each with a buffer
 * @count:	in: their number, 1 to DMABUF_DIO_JOIN_MAX
 * @index:	in: as in struct dmabuf_dio_slot
 * @flags:	in: as in struct dmabuf_dio_slot
 * @reserved:	in: must be zero
 *
 * The slot has one buffer after the other, so that a single request can cover
 * several of them. Their lengths are multiples of the page size, less than 4 GiB
 * in all. Otherwise it is like one made by REGISTER, and removed in the same way;
 * it keeps all its buffers alive. The context that the command is sent to need
 * not be one of them.
 *
 * Errors, in the CQE: as for REGISTER, EFAULT also for @contexts, EBADF (invalid fd),
 * EINVAL (an fd that is not a context, lengths).
 */
struct dmabuf_dio_join {
	__u64 contexts;
	__u32 count;
	__u32 index;
	__u32 flags;
	__u32 reserved;
};

/**
 * struct dmabuf_dio_uring_cmd - content of the SQE's cmd area
 * @arg:	user address of a struct dmabuf_dio_slot or dmabuf_dio_join
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
#define DMABUF_DIO_URING_JOIN		_IOW(DMABUF_DIO_IOC_MAGIC, 0x82, struct dmabuf_dio_join)

#endif /* _UAPI_LINUX_DMABUF_DIO_H */
