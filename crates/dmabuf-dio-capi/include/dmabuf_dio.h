/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/**
 * Loads files into dma-bufs and saves them, and captures samples into them, without copies by the CPU.
 *
 * A file that an accelerator, a camera, a radio or another process needs is read by direct I/O, from the storage
 * device into the pages of a dma-buf, with the best method that this kernel offers. Compile with the flags of
 * `pkg-config --cflags --libs dmabuf-dio`.
 *
 * All lengths and offsets are in bytes, and all calls block until they are done, unless stated otherwise.
 *
 * # Errors
 *
 * Functions that return `int` or `int64_t` return a negative error number, such as `-ENOENT`; 0 or more is
 * success. `dmabuf_dio_error_message` says what failed and `dmabuf_dio_error_hint` what to do about it, for each
 * thread separately. No other state is kept between calls, except in the objects. Any function may return
 * `-EFAULT` for a null pointer that it does not allow, and `-ENOTRECOVERABLE` for a bug in the library, which
 * never unwinds into the caller.
 *
 * # Ownership
 *
 * An object that a function returns through a pointer to a pointer belongs to the caller, who frees it once with
 * the function for its type; after an error the pointer is null. Freeing a null pointer does nothing. The library
 * does not close descriptors of the caller, and the caller must not close descriptors of the library, except those
 * that `dmabuf_dio_buffer_dup` and `dmabuf_dio_attach` return. Descriptors are closed on exec. Strings are in
 * UTF-8, except for the bytes of paths, and belong to the object that they come from.
 *
 * # Threads
 *
 * All functions may be called from several threads, on different objects. The description of a type says what is
 * allowed on the same object at the same time. After fork(2) the child may use buffers, but not the maps, gathers
 * and sinks of the parent.
 *
 * # Structures that grow
 *
 * Some structures, such as `struct dmabuf_dio_options`, begin with their size, which the caller sets, so that
 * later versions can have more fields. As with openat2(2), missing fields of a shorter structure count as 0, and
 * a longer one is accepted if the fields that the library does not know are 0, else `-E2BIG`. Other structures
 * do not change. Later versions may add constants `DMABUF_DIO_*`: expect unknown values.
 *
 * This header is generated: change crates/dmabuf-dio-capi/src instead.
 */

#ifndef DMABUF_DIO_H
#define DMABUF_DIO_H

#include <stddef.h>
#include <stdint.h>

/**
 * Version of this header: major number.
 */
#define DMABUF_DIO_VERSION_MAJOR 0

/**
 * Version of this header: minor number.
 */
#define DMABUF_DIO_VERSION_MINOR 1

/**
 * Version of this header: patch number.
 */
#define DMABUF_DIO_VERSION_PATCH 0

/**
 * Kind of a buffer to load into, the default: a dma-buf if one can be had here, else a memfd; or what the
 * chosen backend creates. No buffer is of this kind.
 */
#define DMABUF_DIO_KIND_ANY 0

/**
 * Kind of a buffer: a dma-buf, which devices can import.
 */
#define DMABUF_DIO_KIND_DMABUF 1

/**
 * Kind of a buffer: a memfd, which processes can share.
 */
#define DMABUF_DIO_KIND_MEMFD 2

/**
 * Kind of a buffer: a memfd of exactly the content, which programs open by path, and a dma-buf over its
 * pages if one can be created here.
 */
#define DMABUF_DIO_KIND_FILE 3

/**
 * Kind of a buffer: memory of this process only, without a descriptor.
 */
#define DMABUF_DIO_KIND_PRIVATE 4

/**
 * NUMA nodes: the one of the processor that the calling thread runs on, and others where it has no memory left.
 */
#define DMABUF_DIO_NUMA_LOCAL 1

/**
 * NUMA nodes: all with memory that the process may use, in turn.
 */
#define DMABUF_DIO_NUMA_INTERLEAVE 2

/**
 * NUMA nodes: the one that `numa_node` names, and no other.
 */
#define DMABUF_DIO_NUMA_NODE 3

/**
 * Backend: the best one that is available.
 */
#define DMABUF_DIO_BACKEND_BEST 0

/**
 * Backend: the kernel module's ioctls.
 */
#define DMABUF_DIO_BACKEND_MODULE 1

/**
 * Backend: the dma-buf's pages as io_uring fixed buffers, lent by the module (Linux 7.3).
 */
#define DMABUF_DIO_BACKEND_SLOT 2

/**
 * Backend: the system heap reads the file while it allocates, on a kernel with the patch series.
 */
#define DMABUF_DIO_BACKEND_HEAP 3

/**
 * Backend: copy_file_range(2) with a dma-buf, on a kernel with the patch series.
 */
#define DMABUF_DIO_BACKEND_COPY_FILE_RANGE 4

/**
 * Backend: a memfd, and a dma-buf over its pages.
 */
#define DMABUF_DIO_BACKEND_UDMABUF 5

/**
 * Backend: a memfd, filled by io_uring with `O_DIRECT`.
 */
#define DMABUF_DIO_BACKEND_MEMFD 6

/**
 * Backend: pread(2) and pwrite(2) on a mapping, through the page cache.
 */
#define DMABUF_DIO_BACKEND_BUFFERED 7

/**
 * Mode of a transfer: unknown, because the kernel's counters are not sufficient.
 */
#define DMABUF_DIO_MODE_UNKNOWN 0

/**
 * Mode of a transfer: direct; the page cache of the file did not grow.
 */
#define DMABUF_DIO_MODE_DIRECT 1

/**
 * Mode of a transfer: through the page cache.
 */
#define DMABUF_DIO_MODE_BUFFERED 2

/**
 * Mode of a transfer: part of the data went through the page cache.
 */
#define DMABUF_DIO_MODE_MIXED 3

/**
 * Mode of a transfer: the data was already in the page cache; no storage was read.
 */
#define DMABUF_DIO_MODE_PAGE_CACHE 4

/**
 * CPU access: reads the buffer. Can be combined with `DMABUF_DIO_ACCESS_WRITE`.
 */
#define DMABUF_DIO_ACCESS_READ 1

/**
 * CPU access: writes the buffer.
 */
#define DMABUF_DIO_ACCESS_WRITE 2

/**
 * Flag of a transfer: through the page cache, not by `O_DIRECT`.
 */
#define DMABUF_DIO_BUFFERED 1

/**
 * Flag of a load: does not try for huge pages in memory that the library allocates itself.
 */
#define DMABUF_DIO_SMALL_PAGES 2

/**
 * Flag of a gather: polls for completions, where the disk has poll queues.
 */
#define DMABUF_DIO_POLLED 4

/**
 * Flag of a load: locks the memory of the new buffer, so that it is never swapped out (mlock(2)). The lock of a memfd
 * lasts as long as the buffer is held by this process: neither the descriptor alone nor another process keeps it.
 * Dma-bufs and reserved huge pages are never swapped out: nothing is locked for them.
 */
#define DMABUF_DIO_LOCK 8

/**
 * A number of `struct dmabuf_dio_report_fields` that is unknown.
 */
#define DMABUF_DIO_UNKNOWN UINT64_MAX

/**
 * Direction of a lent range: from files into the buffer, `IORING_OP_READ_FIXED`.
 */
#define DMABUF_DIO_LEND_READ 1

/**
 * Direction of a lent range: from the buffer into files, `IORING_OP_WRITE_FIXED` and others that send.
 */
#define DMABUF_DIO_LEND_WRITE 2

/**
 * Encoding of a sample: an unsigned integer.
 */
#define DMABUF_DIO_ENCODING_UNSIGNED 0

/**
 * Encoding of a sample: a two's complement integer.
 */
#define DMABUF_DIO_ENCODING_SIGNED 1

/**
 * Encoding of a sample: an IEEE 754 floating-point number.
 */
#define DMABUF_DIO_ENCODING_FLOAT 2

/**
 * Flag of a block: its position may be wrong, because the number of lost frames is unknown, or because
 * frames were lost in several places and the device's counter gives only their sum. The sum is counted
 * before the first of these blocks, although some of the frames are missing after it. The flag is
 * cleared as soon as the position is exact again.
 */
#define DMABUF_DIO_INEXACT 1

/**
 * A buffer: a dma-buf, a memfd, both, or private memory, and the position of the content in it. The
 * memory is freed once no handle, descriptor, mapping or device uses it.
 *
 * Several threads may use a buffer at the same time. Free it once, when no thread uses it any more.
 */
struct dmabuf_dio_buffer;

/**
 * A capture: an IIO device fills dma-bufs with samples, one after the other; the program takes each
 * block and releases it. No other program can use the device's buffer meanwhile.
 *
 * Use it from one thread at a time, and not in a child of fork(2).
 */
struct dmabuf_dio_capture;

/**
 * A conversion of samples from the format of a device to another format, by the CPU.
 *
 * Full scale is preserved: 1.0 for floating-point numbers, all significant bits for integers; the zero
 * of unsigned integers is the middle of their range. Values beyond full scale become the largest or
 * smallest value.
 *
 * Use it from one thread at a time.
 */
struct dmabuf_dio_converter;

/**
 * An IIO device. The handle stores its number and names; it does not keep the device open.
 *
 * Several threads may use it at the same time. Free it once, when no thread uses it any more.
 */
struct dmabuf_dio_device;

/**
 * A file and a buffer, set up for calls that read pieces of the file into the buffer. It has its own
 * descriptors of both, so the caller may close the file and free the buffer.
 *
 * Use it from one thread at a time, and not in a child of fork(2).
 */
struct dmabuf_dio_gather;

/**
 * A mapping of a whole buffer into this process, and CPU access to it. It keeps the buffer alive.
 *
 * Only one thread at a time may begin or end access, or unmap.
 */
struct dmabuf_dio_map;

/**
 * The way in which data was transferred, and the cost. Several threads may read it at the same
 * time.
 */
struct dmabuf_dio_report;

/**
 * Writes dma-bufs that another library or the program fills to a file, a socket or a USB host, one
 * after the other. The blocks are attached once, when the sink is created.
 *
 * Only the thread that created it may use and free it, and not in a child of fork(2).
 */
struct dmabuf_dio_sink;

/**
 * An entry of a submission queue, as linux/io_uring.h and liburing define it.
 */
struct io_uring_sqe;

/**
 * Receives the progress of a transfer: how many bytes of the total have moved, and the pointer from
 * the options. Return 0 to continue; any other number ends the transfer with `-ECANCELED`, unless it
 * is already complete.
 *
 * Called once at the start, then at least every 100 ms while data moves. The calls may come from
 * another thread, but never two at a time; the count never decreases. The function must return
 * normally, not by an exception or longjmp(3). A child that it forks must not return from it.
 */
typedef int (*dmabuf_dio_progress)(uint64_t done, uint64_t total, void *data);

/**
 * Settings of a transfer. Zero in all fields except `size` means the defaults, as does a null pointer
 * in place of the structure. Can grow: see `size`.
 */
struct dmabuf_dio_options {
  /**
   * `sizeof(struct dmabuf_dio_options)`. Missing fields of a smaller structure count as 0; a
   * larger one, up to 4096 bytes, is accepted if the fields that this version does not know are
   * 0, else `-E2BIG`.
   */
  size_t size;
  /**
   * Use only this backend: `DMABUF_DIO_BACKEND_*`.
   */
  uint32_t backend;
  /**
   * Kind of the buffer that a load creates: `DMABUF_DIO_KIND_*`. Loads into a new buffer only.
   */
  uint32_t kind;
  /**
   * `DMABUF_DIO_BUFFERED`, `DMABUF_DIO_SMALL_PAGES`, `DMABUF_DIO_LOCK`, `DMABUF_DIO_POLLED`.
   */
  uint32_t flags;
  /**
   * Requests in flight: 1 to 1024; 0: the default.
   */
  uint32_t queue_depth;
  /**
   * Start of the range in the file, in bytes. Must be 0 for gathers.
   */
  uint64_t offset;
  /**
   * Length of the range in bytes; 0: up to the end of the file. Loads only: the length of a save is
   * an argument.
   */
  uint64_t length;
  /**
   * Bytes per request: a multiple of the page size, at most 1 GiB; 0: the default. Must be 0
   * for gathers.
   */
  uint64_t block_size;
  /**
   * Memory to allocate at a time, in bytes: a multiple of the page size, at most 1 GiB; 0: the
   * default. Loads into a new buffer only.
   */
  uint64_t allocation_step;
  /**
   * Receives the progress, and may cancel the transfer; a null pointer: no callback.
   */
  dmabuf_dio_progress progress;
  /**
   * Passed to `progress`.
   */
  void *progress_data;
  /**
   * The NUMA nodes that the buffer's memory is to be on: `DMABUF_DIO_NUMA_*`; 0: left open. Loads into a
   * new buffer only.
   */
  uint32_t numa;
  /**
   * With `DMABUF_DIO_NUMA_NODE`: the number of the node; otherwise 0.
   */
  uint32_t numa_node;
};

/**
 * A range of a file and its place in the buffer, in bytes. The structure never grows.
 */
struct dmabuf_dio_piece {
  /**
   * Offset in the file.
   */
  uint64_t offset;
  /**
   * Offset in the buffer.
   */
  uint64_t buf_offset;
  /**
   * Length.
   */
  uint64_t length;
};

/**
 * The result for a piece. The structure never grows.
 */
struct dmabuf_dio_piece_result {
  /**
   * Offset of the bytes in the buffer: the piece's place, or, if the piece is not aligned, an offset
   * in the spare bytes.
   */
  uint64_t start;
  /**
   * Number of bytes of the piece that are there.
   */
  uint64_t length;
  /**
   * With an error: for `-ENODATA` the end of the file, for `-ENOBUFS` how many more spare bytes are
   * needed, else the offset in the file at which reading failed. 0 if there is no error.
   */
  uint64_t detail;
  /**
   * 0 if the piece is complete; `-ENODATA` if the file ends before it does; `-ENOBUFS` if it is not
   * aligned and there are not enough spare bytes; else the error of the kernel or the device.
   */
  int32_t error;
  /**
   * Always 0.
   */
  uint32_t reserved;
};

/**
 * The fields of a report. Storage and CPU time are counted for the whole process and the page cache
 * for the whole file, including concurrent activity of other threads and processes. Can grow: see
 * `size`.
 */
struct dmabuf_dio_report_fields {
  /**
   * In: `sizeof(struct dmabuf_dio_report_fields)`. Additional fields of a larger structure, up to 4096
   * bytes, are set to 0.
   */
  size_t size;
  /**
   * The backend that moved the data: `DMABUF_DIO_BACKEND_*`; 0 for one without a number.
   */
  uint32_t backend;
  /**
   * Kind of the buffer: `DMABUF_DIO_KIND_*`.
   */
  uint32_t kind;
  /**
   * How the data was transferred: `DMABUF_DIO_MODE_*`.
   */
  uint32_t mode;
  /**
   * Number of physically contiguous segments of the buffer; 0 if the backend does not report it.
   */
  uint32_t segments;
  /**
   * Bytes moved.
   */
  uint64_t bytes;
  /**
   * Bytes that the CPU copied.
   */
  uint64_t copied_bytes;
  /**
   * Bytes read from or written to storage, or `DMABUF_DIO_UNKNOWN`.
   */
  uint64_t storage_bytes;
  /**
   * Growth of the page cache of the file's range in bytes, negative if it shrank; `INT64_MIN` if
   * unknown.
   */
  int64_t page_cache_grown;
  /**
   * Page size of most of the buffer's memory in bytes, or `DMABUF_DIO_UNKNOWN`.
   */
  uint64_t page_size;
  /**
   * Bytes of the buffer's memory in huge pages, or `DMABUF_DIO_UNKNOWN`.
   */
  uint64_t huge_bytes;
  /**
   * Elapsed time in seconds, including the allocation of the buffer.
   */
  double seconds;
  /**
   * CPU time of the process in seconds, including the kernel's work on its behalf.
   */
  double cpu_seconds;
  /**
   * The NUMA nodes that the memory was to be on: `DMABUF_DIO_NUMA_*`; 0: left open.
   */
  uint32_t numa;
  /**
   * With `DMABUF_DIO_NUMA_NODE`: the number of the node.
   */
  uint32_t numa_node;
  /**
   * How many nodes the memory is on, as the kernel says after the load; 0: it does not, as for a dma-buf of a heap
   * or of the module, or `numa` was left open. `dmabuf_dio_report_json` has the bytes on each.
   */
  uint32_t nodes;
  /**
   * Whether the memory stays in memory, as `DMABUF_DIO_LOCK` asked for: 1 or 0.
   */
  uint32_t locked;
};

/**
 * A range of an attached buffer, and the index of the ring's registered buffer for it. It is `struct
 * dmabuf_dio_slot` of linux/dmabuf_dio.h, which the kernel reads, and never grows.
 */
struct dmabuf_dio_lent_range {
  /**
   * Start in the buffer in bytes, a multiple of the page size.
   */
  uint64_t buf_offset;
  /**
   * Length in bytes: at least 1, less than 4 GiB. The kernel finds an offset in it by walking the
   * buffer's segments: 64 to 256 MiB are a good size.
   */
  uint64_t length;
  /**
   * Index in the ring's table of registered buffers.
   */
  uint32_t index;
  /**
   * `DMABUF_DIO_LEND_READ`, `DMABUF_DIO_LEND_WRITE` or both.
   */
  uint32_t directions;
};

/**
 * A channel whose samples a buffer can hold. The structure never grows.
 */
struct dmabuf_dio_channel {
  /**
   * Its name, such as `in_voltage0`, NUL-terminated.
   */
  char name[64];
  /**
   * Its position among the channels of a frame. There may be gaps between positions.
   */
  uint32_t index;
  /**
   * `DMABUF_DIO_ENCODING_*`.
   */
  uint32_t encoding;
  /**
   * Number of significant bits.
   */
  uint32_t bits;
  /**
   * Number of bits in memory: 8, 16, 32, 64 or 128. A sample is aligned to its size.
   */
  uint32_t storage_bits;
  /**
   * Number of insignificant bits at the right.
   */
  uint32_t shift;
  /**
   * Number of consecutive values.
   */
  uint32_t repeat;
  /**
   * 1 if the most significant byte comes first, else 0.
   */
  uint32_t big_endian;
  /**
   * Always 0.
   */
  uint32_t reserved;
};

/**
 * Settings of a capture. All zero but `size` means the defaults, as does a null pointer in place of the
 * structure. Can grow: see `size`.
 */
struct dmabuf_dio_capture_options {
  /**
   * `sizeof(struct dmabuf_dio_capture_options)`; see `struct dmabuf_dio_options`.
   */
  size_t size;
  /**
   * Names of the channels to capture, such as `in_voltage0`, in any order; a null pointer: all
   * except timestamps.
   */
  const char *const *channels;
  /**
   * Number of names in `channels`.
   */
  size_t channel_count;
  /**
   * Bytes of a block: a multiple of the frame and of the device's DMA alignment; 0: an eighth of a
   * second, at most 16 MiB, or 64 KiB if the device has no rate.
   */
  uint64_t block_size;
  /**
   * Frames per second to set, as by `dmabuf_dio_device_set_rate`; 0: the rate is not changed.
   */
  double rate;
  /**
   * Number of blocks, 2 to 4096; 0: 16.
   */
  uint32_t blocks;
  /**
   * Number of the device's buffer.
   */
  uint32_t buffer;
};

/**
 * A block of a capture. Can grow: see `size`.
 */
struct dmabuf_dio_block {
  /**
   * In: `sizeof(struct dmabuf_dio_block)`. Additional fields of a larger structure, up to 4096
   * bytes, are set to 0.
   */
  size_t size;
  /**
   * Address of the first byte, a multiple of the page size. It does not change until the capture is
   * freed. The memory is read-only.
   */
  const void *data;
  /**
   * Number of filled bytes: whole frames.
   */
  uint64_t bytes;
  /**
   * Number of frames from the start to this block: those returned before it, and those known to be
   * lost.
   */
  uint64_t position;
  /**
   * Number of frames lost before this block, since the one before it: 0 if there is no gap,
   * `DMABUF_DIO_UNKNOWN` if the device does not report the number. See `flags`.
   */
  uint64_t gap;
  /**
   * The dma-buf. It belongs to the capture, and is closed when the capture is freed.
   */
  int32_t fd;
  /**
   * The number of the block, from 0.
   */
  uint32_t number;
  /**
   * `DMABUF_DIO_INEXACT`.
   */
  uint32_t flags;
  /**
   * Always 0.
   */
  uint32_t reserved;
};

/**
 * Properties of a capture, and counts since its last start. Can grow: see `size`.
 */
struct dmabuf_dio_capture_fields {
  /**
   * In: `sizeof(struct dmabuf_dio_capture_fields)`. Additional fields of a larger structure, up to
   * 4096 bytes, are set to 0.
   */
  size_t size;
  /**
   * Bytes of a frame, which has a sample of each channel.
   */
  uint64_t frame_bytes;
  /**
   * Bytes of a block.
   */
  uint64_t block_bytes;
  /**
   * Number of blocks.
   */
  uint64_t blocks;
  /**
   * Frames per second; 0 if the device does not report them.
   */
  double rate;
  /**
   * Frames in the blocks that were returned.
   */
  uint64_t frames;
  /**
   * Frames lost before or between them, as far as known.
   */
  uint64_t lost_frames;
  /**
   * Number of gaps.
   */
  uint64_t gaps;
  /**
   * 1 if all losses are known; 0 if there may be more, or longer ones, for example if the device is
   * read with `read()` and has no counter.
   */
  uint64_t losses_known;
};

/**
 * A tensor of a model, in memory of its own. It and what it points to belong to the library, which frees
 * them when the callback returns.
 */
struct dmabuf_dio_tensor {
  /**
   * The name: `name_length` bytes, which may have zeros among them, and a zero.
   */
  const char *name;
  /**
   * Length of the name in bytes.
   */
  size_t name_length;
  /**
   * The type of the elements as the format spells it, such as "BF16" or "Q4_K".
   */
  const char *dtype;
  /**
   * Elements in each dimension, the outermost first.
   */
  const uint64_t *shape;
  /**
   * How many dimensions there are; 0 for a scalar.
   */
  size_t dimensions;
  /**
   * The bytes, as in the file; they may be changed. A null pointer if there are none. Aligned to the type
   * where the file aligns it.
   */
  void *bytes;
  /**
   * Length in bytes.
   */
  uint64_t length;
  /**
   * 1 if numbers are big-endian, as in some GGUF files, else 0.
   */
  int big_endian;
};

/**
 * Receives a tensor, and the pointer that was passed for it. Return 0 to continue; any other number ends
 * the call with `-ECANCELED`.
 *
 * Called in the thread of the call. The function must return normally, not by an exception or longjmp(3).
 */
typedef int (*dmabuf_dio_tensor_callback)(const struct dmabuf_dio_tensor *tensor, void *data);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the version of the library that the program runs with, such as `"0.1.0"`. Never freed.
 */
const char *dmabuf_dio_version(void);

/**
 * Returns the name of a backend, as the command and the reports use it, such as `"module"`; a null
 * pointer if no backend has this number. Never freed.
 */
const char *dmabuf_dio_backend_name(uint32_t backend);

/**
 * Returns one line that says what failed in the last failed call of this thread, with file names and
 * offsets; an empty string if no call has failed.
 *
 * Successful calls do not change it. The string is valid until the next call of this thread fails or
 * the thread ends; the caller must not free it.
 */
const char *dmabuf_dio_error_message(void);

/**
 * Returns one line that says what to do about the last failure, as a command if possible. It may be
 * empty, and is valid as long as the message.
 */
const char *dmabuf_dio_error_hint(void);

/**
 * Returns why each backend is not available, a line for each, if that was the last failure; else an empty
 * string. It is valid as long as the message.
 */
const char *dmabuf_dio_error_reasons(void);

/**
 * Returns how many bytes the last failed call of this thread had moved contiguously from the start of
 * its range; 0 if it was not a transfer.
 */
uint64_t dmabuf_dio_error_done(void);

/**
 * Loads the regular file or block device at `path`, or a range of it, into a new buffer. Blocks until
 * all of it is loaded. The path `keep:NAME` means what `dmabuf-dio keep` keeps under that name: the buffer is that
 * memory, read-only and without a report, unless another kind, a range or other settings ask for memory of its own.
 *
 * `options` and `report` may be null pointers. Otherwise `report` receives a report of the transfer,
 * to be freed with `dmabuf_dio_report_free`. Bytes of the buffer outside the content are zero. A memfd
 * ends where the content ends; with `DMABUF_DIO_KIND_FILE` it also begins where the content begins.
 *
 * Returns 0. On error no buffer is created: `-ENOENT`, `-EACCES` and others for the file; `-EINVAL` if
 * it is neither a regular file nor a block device, or for an invalid setting; `-ENODATA` if it is
 * empty or ends before the range does; `-EOPNOTSUPP` if no backend can create such a buffer here;
 * `-ENOMEM`; `-EIO` and others of the device; `-ECANCELED`.
 */
int dmabuf_dio_load(const char *path,
                    const struct dmabuf_dio_options *options,
                    struct dmabuf_dio_buffer **buffer,
                    struct dmabuf_dio_report **report);

/**
 * Loads like `dmabuf_dio_load`, from a descriptor that is open for reading. Its position is neither
 * used nor changed, and it still belongs to the caller.
 *
 * Returns 0, or errors as for `dmabuf_dio_load`, and `-EBADF`.
 */
int dmabuf_dio_load_fd(int descriptor,
                       const struct dmabuf_dio_options *options,
                       struct dmabuf_dio_buffer **buffer,
                       struct dmabuf_dio_report **report);

/**
 * Loads the file at `path`, or a range of it, into an existing buffer, at `buf_offset` bytes. Blocks
 * until all of it is loaded. Other bytes of the buffer do not change.
 *
 * Returns 0. On error the range is undefined after the first `dmabuf_dio_error_done` bytes. Errors are
 * those of `dmabuf_dio_load`, and `-ERANGE` if the range exceeds the buffer; `-EACCES` if the buffer
 * cannot be written; `-EBUSY` if a device needs synchronisation that the exporter does not do;
 * `-EINPROGRESS` if the kernel refuses to wait for requests in flight: the range may then change until
 * the process ends.
 */
int dmabuf_dio_load_into(const struct dmabuf_dio_buffer *buffer,
                         uint64_t buf_offset,
                         const char *path,
                         const struct dmabuf_dio_options *options,
                         struct dmabuf_dio_report **report);

/**
 * Loads like `dmabuf_dio_load_into`, from a descriptor that is open for reading and still belongs to
 * the caller.
 *
 * Returns 0, or errors as for `dmabuf_dio_load_into`, and `-EBADF`.
 */
int dmabuf_dio_load_into_fd(const struct dmabuf_dio_buffer *buffer,
                            uint64_t buf_offset,
                            int descriptor,
                            const struct dmabuf_dio_options *options,
                            struct dmabuf_dio_report **report);

/**
 * Allocates a zeroed dma-buf of `length` bytes, rounded up to whole pages, from the heap of this name
 * in /dev/dma_heap, or from the system heap if `heap` is a null pointer.
 *
 * Returns 0; `-ENOENT` or `-EACCES` for the heap; `-ENOMEM`; `-EINVAL`.
 */
int dmabuf_dio_buffer_alloc(const char *heap, uint64_t length, struct dmabuf_dio_buffer **buffer);

/**
 * Creates a zeroed memfd of `length` bytes, rounded up to whole pages and sealed against shrinking.
 *
 * Returns 0; `-EMFILE`; `-EFBIG`; `-EOVERFLOW`.
 */
int dmabuf_dio_buffer_memfd(uint64_t length, struct dmabuf_dio_buffer **buffer);

/**
 * Creates a buffer from the descriptor of a dma-buf or memfd. The library uses a duplicate; the
 * descriptor still belongs to the caller. A memfd is sealed against shrinking if possible.
 *
 * Returns 0; `-EINVAL` if it is neither; `-EBADF`; `-EMFILE`.
 */
int dmabuf_dio_buffer_from_fd(int descriptor, struct dmabuf_dio_buffer **buffer);

/**
 * Takes over the buffer that `dmabuf-dio load FILE -- PROGRAM` passes to PROGRAM in the environment.
 *
 * Returns 0; `-EINVAL` if there is none; `-EBADF`; `-ERANGE`.
 */
int dmabuf_dio_buffer_from_env(struct dmabuf_dio_buffer **buffer);

/**
 * Frees the handle, and closes the buffer's descriptor. Maps and gathers of the buffer stay valid.
 * Does nothing for a null pointer.
 */
void dmabuf_dio_buffer_free(struct dmabuf_dio_buffer *buffer);

/**
 * Returns the buffer's descriptor, to be passed to an importer. It belongs to the buffer: the caller
 * must not close it, and it is closed with the buffer. If the buffer is both a memfd and a dma-buf, it
 * is the memfd's: see `dmabuf_dio_buffer_dmabuf_fd`. `-EINVAL` for private memory, which has none;
 * `-EFAULT` for a null pointer.
 */
int dmabuf_dio_buffer_fd(const struct dmabuf_dio_buffer *buffer);

/**
 * Returns a duplicate of the buffer's descriptor, which belongs to the caller and stays open when the
 * buffer is freed. It is closed on exec.
 *
 * Returns the descriptor; `-EMFILE`; `-EINVAL` for private memory; `-EFAULT`.
 */
int dmabuf_dio_buffer_dup(const struct dmabuf_dio_buffer *buffer);

/**
 * Returns the length of the buffer in bytes; 0 for a null pointer.
 */
uint64_t dmabuf_dio_buffer_length(const struct dmabuf_dio_buffer *buffer);

/**
 * Returns the offset of the content in the buffer, in bytes: 0 if the loaded range starts on a page
 * boundary of the file, else less than a page (or less than a block, if blocks are larger).
 */
uint64_t dmabuf_dio_buffer_data_offset(const struct dmabuf_dio_buffer *buffer);

/**
 * Returns the length of the content in bytes: that of the loaded range, or of the whole buffer if a
 * load did not create it.
 */
uint64_t dmabuf_dio_buffer_data_length(const struct dmabuf_dio_buffer *buffer);

/**
 * Returns the kind of the buffer, a `DMABUF_DIO_KIND_*` other than `ANY`; 0 for a null pointer.
 */
uint32_t dmabuf_dio_buffer_kind(const struct dmabuf_dio_buffer *buffer);

/**
 * Names a dma-buf: at most 31 bytes, shown in /proc/PID/fdinfo and debugfs.
 *
 * Returns 0; `-EINVAL` for a longer name; `-EOPNOTSUPP` if the buffer has no dma-buf.
 */
int dmabuf_dio_buffer_set_name(const struct dmabuf_dio_buffer *buffer, const char *name);

/**
 * Seals a memfd permanently against writing: its content can no longer be changed through any of its
 * descriptors. A transfer into it that is running in another thread may fail. If the buffer also has a
 * dma-buf, as with `DMABUF_DIO_KIND_FILE`, the content can still be written through the dma-buf's
 * descriptor.
 *
 * Returns 0; `-EBUSY` while it is mapped for writing, or a map or gather of it exists; `-EPERM` if it
 * does not allow sealing; `-EINVAL` for a dma-buf; `-EMFILE`.
 */
int dmabuf_dio_buffer_seal(struct dmabuf_dio_buffer *buffer);

/**
 * Returns the path at which programs open the memfd of a buffer, `/proc/PID/fd/N` of the process that
 * made the buffer; a null pointer if it has no memfd. The string belongs to the buffer.
 *
 * It works for processes of the same user that have no fewer capabilities, as long as that process
 * runs, is dumpable (prctl(2)) and keeps the buffer. It is a link whose target is not a valid path:
 * programs must open it without resolving it. Seal the buffer with `dmabuf_dio_buffer_seal`, so that
 * programs can only read it.
 */
const char *dmabuf_dio_buffer_path(const struct dmabuf_dio_buffer *buffer);

/**
 * Returns the descriptor of a buffer's memfd, which processes share. It belongs to the buffer, like that of
 * `dmabuf_dio_buffer_fd`.
 *
 * Returns the descriptor; `-EOPNOTSUPP` if the buffer has none; `-EFAULT`.
 */
int dmabuf_dio_buffer_memfd_fd(const struct dmabuf_dio_buffer *buffer);

/**
 * Returns the descriptor of a buffer's dma-buf, which devices import. It belongs to the buffer, like that of
 * `dmabuf_dio_buffer_fd`.
 *
 * A buffer that was loaded with `DMABUF_DIO_KIND_FILE` has a dma-buf over the pages of its memfd where
 * /dev/udmabuf can be used. It is as long as the content, rounded up to whole pages: see
 * `dmabuf_dio_buffer_shared_length`. Stock kernels do not synchronise it with devices: import it into
 * those that are coherent and not behind bounce buffers.
 *
 * Returns the descriptor; `-EOPNOTSUPP` if there is none: the message says why, and the hint is a
 * remedy; `-EFAULT`.
 */
int dmabuf_dio_buffer_dmabuf_fd(const struct dmabuf_dio_buffer *buffer);

/**
 * Returns how many bytes, from the start, the memfd and the dma-buf of a buffer share: those in
 * whole pages. The dma-buf has a copy of the rest, followed by zeros. 0 if the buffer does not have
 * both.
 */
uint64_t dmabuf_dio_buffer_shared_length(const struct dmabuf_dio_buffer *buffer);

/**
 * Maps a buffer and begins CPU access, so that data written by devices is visible. Blocks until
 * devices that use the buffer have finished.
 *
 * `access` is `DMABUF_DIO_ACCESS_READ`, `DMABUF_DIO_ACCESS_WRITE` or both. Without `WRITE` the mapping
 * is read-only.
 *
 * Returns 0; `-EINVAL` for `access`; `-EACCES` if the buffer cannot be written; `-ENODEV` if its
 * exporter does not support mapping; `-ENOMEM`.
 */
int dmabuf_dio_map(const struct dmabuf_dio_buffer *buffer, uint32_t access, struct dmabuf_dio_map **map);

/**
 * Returns the address of the buffer's first byte, a multiple of the page size; a null pointer if `map`
 * is one. It does not change until the buffer is unmapped.
 *
 * The content is at `dmabuf_dio_buffer_data_offset`, and the mapping is as long as the buffer.
 * Accessing a page of a memfd that was shrunk, or in which a hole was punched, can raise `SIGBUS`, as
 * with mmap(2).
 */
void *dmabuf_dio_map_address(const struct dmabuf_dio_map *map);

/**
 * Ends CPU access without unmapping: devices may use the buffer, and the memory must not be touched
 * until `dmabuf_dio_map_begin`.
 *
 * Returns 0; `-EALREADY` if it has ended already; or the kernel's error.
 */
int dmabuf_dio_map_end(struct dmabuf_dio_map *map);

/**
 * Begins CPU access again, as `dmabuf_dio_map` did.
 *
 * Returns 0; `-EALREADY` if it has not ended; or the kernel's error.
 */
int dmabuf_dio_map_begin(struct dmabuf_dio_map *map);

/**
 * Ends CPU access, if it has not ended, unmaps the buffer and frees the handle, even if it returns an
 * error. Does nothing for a null pointer.
 *
 * Returns 0, or the kernel's error at the end of the access: then a device may not see the written
 * data.
 */
int dmabuf_dio_unmap(struct dmabuf_dio_map *map);

/**
 * Begins CPU access to a buffer without mapping it: for the program's own mappings, and for its own
 * requests on lent memory, which count as CPU access for the devices that have imported the buffer.
 * Does nothing for a memfd.
 *
 * Returns 0; `-EINVAL` for `access`; or the kernel's error.
 */
int dmabuf_dio_access_begin(const struct dmabuf_dio_buffer *buffer, uint32_t access);

/**
 * Ends CPU access that `dmabuf_dio_access_begin` has begun with the same `access`.
 *
 * Returns 0; `-EINVAL` for `access`; or the kernel's error.
 */
int dmabuf_dio_access_end(const struct dmabuf_dio_buffer *buffer, uint32_t access);

/**
 * Saves `length` bytes of a buffer, from `buf_offset` on, to the file at `path`. Blocks until they are
 * durable.
 *
 * If the path names a regular file or nothing, a new file is written next to it and renamed to it when
 * it is complete; until then the old file is unchanged. A block device is written in place, from
 * `offset` of the options on. `options` and `report` may be null pointers.
 *
 * Returns 0. On error the path still names its old file, unless only making the new name durable
 * failed: `-ENOENT`, `-EACCES`, `-ENOSPC`, `-EFBIG`, `-EIO` and others; `-ERANGE` if the range exceeds
 * the buffer; `-EINVAL` if it is empty, or for an invalid setting; `-EBUSY` and `-EINPROGRESS` as for
 * `dmabuf_dio_load_into`; `-ECANCELED`.
 */
int dmabuf_dio_save(const struct dmabuf_dio_buffer *buffer,
                    uint64_t buf_offset,
                    uint64_t length,
                    const char *path,
                    const struct dmabuf_dio_options *options,
                    struct dmabuf_dio_report **report);

/**
 * Saves like `dmabuf_dio_save`, but in place, to the regular file or block device of a descriptor that
 * is open for writing, from `offset` of the options on. The descriptor still belongs to the
 * caller, its position is neither used nor changed, and the file is not truncated.
 *
 * Returns 0, or errors as for `dmabuf_dio_save`, and `-EBADF`. After an error the range of the file is
 * undefined after the first `dmabuf_dio_error_done` bytes.
 */
int dmabuf_dio_save_fd(const struct dmabuf_dio_buffer *buffer,
                       uint64_t buf_offset,
                       uint64_t length,
                       int descriptor,
                       const struct dmabuf_dio_options *options,
                       struct dmabuf_dio_report **report);

/**
 * Sets up gathers from the regular file or block device at `path` into `buffer`. `options` may be a
 * null pointer; the pointer for its callback must stay valid until the gather is freed. All pages of a
 * memfd are allocated.
 *
 * Returns 0, or errors as for `dmabuf_dio_load_into`.
 */
int dmabuf_dio_gather_open(const struct dmabuf_dio_buffer *buffer,
                           const char *path,
                           const struct dmabuf_dio_options *options,
                           struct dmabuf_dio_gather **gather);

/**
 * Sets up gathers like `dmabuf_dio_gather_open`, from a descriptor that is open for reading and still
 * belongs to the caller.
 *
 * Returns 0, or errors as for `dmabuf_dio_load_into_fd`.
 */
int dmabuf_dio_gather_open_fd(const struct dmabuf_dio_buffer *buffer,
                              int descriptor,
                              const struct dmabuf_dio_options *options,
                              struct dmabuf_dio_gather **gather);

/**
 * Stores the alignment that a piece needs to be read to its place, in bytes: in `file` that of its
 * file offset and length, in `buf` that of its buffer offset. Other pieces are read to the spare
 * bytes. Both are 1 if no alignment is needed. Either may be a null pointer.
 *
 * Returns 0.
 */
int dmabuf_dio_gather_alignment(const struct dmabuf_dio_gather *gather, uint64_t *file, uint64_t *buf);

/**
 * Stores in `bytes` how many spare bytes these pieces need, in a range that starts at a multiple of the
 * page size: 0 if all are aligned.
 *
 * Returns 0; `-EOVERFLOW` if the range of a piece overflows.
 */
int dmabuf_dio_gather_room(struct dmabuf_dio_gather *gather,
                           const struct dmabuf_dio_piece *pieces,
                           size_t count,
                           uint64_t *bytes);

/**
 * Sets the range of the buffer, in bytes, for the blocks that enclose pieces that are not aligned.
 * Every call uses it from its start. Without spare bytes such pieces fail with `-ENOBUFS` if direct
 * I/O is used.
 *
 * Returns 0; `-ERANGE` or `-EOVERFLOW` if it exceeds the buffer: the old range stays in use.
 */
int dmabuf_dio_gather_set_spare(struct dmabuf_dio_gather *gather, uint64_t offset, uint64_t length);

/**
 * Reads `count` pieces of the file into the buffer. Blocks until each is read or has failed. `results`
 * has room for `count` results, in the order of the pieces, or is a null pointer. `report` may be a
 * null pointer, too.
 *
 * Pieces may be in any order; identical ones are read once. A piece that fails does not affect the
 * others.
 *
 * Returns the number of pieces that are not complete; their results say why. On error no result is
 * filled in: `-ERANGE` or `-EOVERFLOW` if a piece exceeds the buffer, `-EINVAL` if two that are not
 * identical overlap there or one is in the spare bytes, each before anything was read; `-ECANCELED`
 * and others, as for `dmabuf_dio_load_into`, after which the places of all pieces are undefined.
 */
int64_t dmabuf_dio_gather_read(struct dmabuf_dio_gather *gather,
                               const struct dmabuf_dio_piece *pieces,
                               size_t count,
                               struct dmabuf_dio_piece_result *results,
                               struct dmabuf_dio_report **report);

/**
 * Frees a gather, with its descriptors and its ring. Does nothing for a null pointer.
 */
void dmabuf_dio_gather_free(struct dmabuf_dio_gather *gather);

/**
 * Creates a sink for the file at `path`, which is created, or truncated if it exists. A block device
 * is written from its start. If the kernel module is loaded (Linux 7.3), the pages of the blocks are
 * lent to the kernel and written by direct I/O, if `size` is a multiple of 4096; else a thread writes
 * one block at a time.
 *
 * `blocks` are the descriptors of `count` dma-bufs, 1 to 4096, such as `iio_block_get_dmabuf_fd` of
 * libiio returns. The first `size` bytes of each are used. The library has duplicates of the
 * descriptors. At any time the file contains the first part of the written data and nothing else.
 *
 * Returns 0; `-EINVAL` if a descriptor is not a dma-buf, or for an invalid `count` or `size`;
 * `-ERANGE` if a block is shorter; `-ENOENT`, `-EACCES` and others for the file; `-EBADF`; `-EMFILE`.
 */
int dmabuf_dio_sink_file(const char *path,
                         const int *blocks,
                         size_t count,
                         uint64_t size,
                         struct dmabuf_dio_sink **sink);

/**
 * Creates a sink for a connected socket. TCP sends the pages of the blocks without a copy if the
 * kernel module is loaded (Linux 7.3) and the network card supports scatter-gather. Otherwise, and for
 * a Unix socket, the CPU copies them. The blocks are as for `dmabuf_dio_sink_file`.
 *
 * The library has a duplicate of the descriptor, may make the socket non-blocking, and shuts it down
 * for writing at the end, by `dmabuf_dio_sink_finish`.
 *
 * Returns 0, or errors as for `dmabuf_dio_sink_file`, and `-ENOTSOCK`.
 */
int dmabuf_dio_sink_socket(int descriptor,
                           const int *blocks,
                           size_t count,
                           uint64_t size,
                           struct dmabuf_dio_sink **sink);

/**
 * Creates a sink for a USB host: describes a function with one bulk endpoint in `folder`, where an
 * instance of functionfs is mounted, and blocks until a host has chosen its configuration. Bind the
 * gadget meanwhile: that is possible as soon as `folder` has a file `ep1`. The function exists until
 * the sink is freed. The controller reads the blocks by DMA; it must support scatter-gather. The
 * blocks are as for `dmabuf_dio_sink_file`.
 *
 * Returns 0; `-ENOENT` if functionfs is not mounted there; `-EBUSY` if another function is described
 * there; errors as for `dmabuf_dio_sink_file` for the blocks, and `-EINVAL` or `-ENOTTY` if the
 * controller or the kernel cannot use them.
 */
int dmabuf_dio_sink_usb(const char *folder,
                        const int *blocks,
                        size_t count,
                        uint64_t size,
                        struct dmabuf_dio_sink **sink);

/**
 * Queues the first `length` bytes of a block, named by its index in the array of blocks, from 0. They
 * follow those of the blocks before. Does not block. Until `dmabuf_dio_sink_wait` returns the block,
 * its content must not change: do not queue it on the device. A block that a device has filled is
 * complete once the program has waited for it, as `iio_block_dequeue` does; the CPU need not have
 * accessed it.
 *
 * Returns 0; `-EINVAL` if there is no such block, for a length of 0, or after
 * `dmabuf_dio_sink_finish`; `-ERANGE` for more than the blocks' size; `-ENOSPC`, `-EIO`,
 * `-ECONNRESET`, `-ESHUTDOWN` and others of an earlier block: nothing more can be written then.
 */
int dmabuf_dio_sink_write(struct dmabuf_dio_sink *sink, size_t block, uint64_t length);

/**
 * Waits until the block that was queued first is delivered, and returns its index in the array of
 * blocks: the device may fill it again. Blocks for at most `milliseconds`; 0 does not block, a
 * negative number waits until the block is delivered.
 *
 * Small blocks are held back, for up to 100 ms, until they make a request of 16 MiB or a quarter of
 * all blocks. So do not wait for each one: keep some queued on the device.
 *
 * Returns the block; `-EAGAIN` if it is not delivered yet; `-ENODATA` if none is queued; `-ENOSPC`,
 * `-EIO`, `-ECONNRESET`, `-ESHUTDOWN` and others if it cannot be.
 */
int64_t dmabuf_dio_sink_wait(struct dmabuf_dio_sink *sink, int milliseconds);

/**
 * Waits until all queued blocks are delivered, and makes a file durable. Nothing can be written
 * afterwards. A second call does nothing.
 *
 * Returns 0; `-ENOSPC`, `-EIO` and others if something is not delivered.
 */
int dmabuf_dio_sink_finish(struct dmabuf_dio_sink *sink);

/**
 * Returns a short text that says how the blocks are delivered: `"io_uring, O_DIRECT"`, or why the CPU
 * copies. The string is valid until the next call of this function for the sink. An empty string for a
 * null pointer.
 */
const char *dmabuf_dio_sink_how(struct dmabuf_dio_sink *sink);

/**
 * Frees a sink, with its file, endpoint and function. Blocks that were not delivered are lost: call
 * `dmabuf_dio_sink_finish` before. The blocks still belong to the caller. Does nothing for a null
 * pointer.
 */
void dmabuf_dio_sink_free(struct dmabuf_dio_sink *sink);

/**
 * Fills in the fields of a report, as many as the caller's structure has.
 *
 * Returns 0; `-EINVAL` if `size` is too small; `-E2BIG` if it is more than 4096.
 */
int dmabuf_dio_report_fields(const struct dmabuf_dio_report *report, struct dmabuf_dio_report_fields *fields);

/**
 * Returns the report as one line of text: bytes, backend, mode, time, rate. The string belongs to the
 * report.
 */
const char *dmabuf_dio_report_line(const struct dmabuf_dio_report *report);

/**
 * Returns the whole report as a JSON object, with the evidence for the mode, notes, and why preferred
 * backends were not available. The string belongs to the report.
 */
const char *dmabuf_dio_report_json(const struct dmabuf_dio_report *report);

/**
 * Frees a report and its strings. Does nothing for a null pointer.
 */
void dmabuf_dio_report_free(struct dmabuf_dio_report *report);

/**
 * Tests what this kernel and its devices support and, unless `path` is a null pointer, what the
 * file or block device there supports. Stores the result as a JSON object in `json`, to be freed
 * with `dmabuf_dio_string_free`: what works, what does not, and the remedies. `dmabuf-dio doctor
 * --json` prints the same. Blocks for some milliseconds and changes nothing.
 *
 * Returns 0; `-ENOENT`, `-EACCES`, `-EINVAL` and others for the file.
 */
int dmabuf_dio_doctor(const char *path, char **json);

/**
 * Frees a string that the library has returned for the caller to free. Does nothing for a null
 * pointer.
 */
void dmabuf_dio_string_free(char *string);

/**
 * Attaches a dma-buf to the kernel module, which borrows its pages, and returns the module's
 * descriptor for `dmabuf_dio_prep_register`. It belongs to the caller, who closes it; registered
 * ranges stay registered. The buffer may be freed, too.
 *
 * Needs the module `dmabuf_dio` and Linux 7.3. A ring's requests on a lent buffer are CPU access: put
 * them between `dmabuf_dio_access_begin` and `dmabuf_dio_access_end`.
 *
 * Returns the descriptor; `-ENOENT` if the module is not loaded; `-EACCES` if this user may not open
 * it; `-EOPNOTSUPP` if this kernel cannot lend pages to rings, or the module does not borrow this
 * buffer: its exporter is none that it knows, or its memory was never filled or has a hardware error;
 * `-EINVAL` for a memfd; `-ENOMEM`; `-EMFILE`.
 */
int dmabuf_dio_attach(const struct dmabuf_dio_buffer *buffer);

/**
 * Fills in a submission queue entry that registers a range of the attached buffer as a registered buffer
 * of the ring. All 64 bytes are set: set `user_data` and flags afterwards.
 *
 * The ring needs a table of registered buffers with a free entry, such as
 * `io_uring_register_buffers_sparse` makes. `range` must not change until the completion, whose result
 * is 0; `-EINVAL`, `-ERANGE` for the range; `-EBUSY` if the entry of the table is in use; `-EACCES` if
 * the buffer cannot be written; `-EOPNOTSUPP`; `-ENOMEM`. Requests on the registered buffer then use
 * an offset in the range in place of an address. It stays until its entry of the table is emptied, by
 * `io_uring_register_buffers_update_tag` with an address of null and a length of 0, or the ring is
 * closed, and its last request is done.
 *
 * Returns 0; `-EFAULT` for a null pointer.
 */
int dmabuf_dio_prep_register(struct io_uring_sqe *sqe, int device, const struct dmabuf_dio_lent_range *range);

/**
 * Stores handles of the IIO devices of this system, in the order of their numbers, in `devices`, which
 * has room for `room` of them. Each belongs to the caller, who frees it with `dmabuf_dio_device_free`.
 *
 * Returns the number of devices, which may exceed `room`; 0 if the kernel has no IIO.
 */
int64_t dmabuf_dio_device_list(struct dmabuf_dio_device **devices, size_t room);

/**
 * Finds the device with this name, label or number: `cf-ad9361-lpc`, `iio:device0`, `0`.
 *
 * Returns 0; `-ENODEV` if there is none.
 */
int dmabuf_dio_device_find(const char *name, struct dmabuf_dio_device **device);

/**
 * Frees a device and its strings. Does nothing for a null pointer.
 */
void dmabuf_dio_device_free(struct dmabuf_dio_device *device);

/**
 * Returns the number of the device with a prefix, `iio:device0`. The string belongs to the device.
 */
const char *dmabuf_dio_device_id(const struct dmabuf_dio_device *device);

/**
 * Returns the name that the device reports. The string belongs to the device.
 */
const char *dmabuf_dio_device_name(const struct dmabuf_dio_device *device);

/**
 * Returns the label of the device, which distinguishes devices with the same name; a null pointer if
 * it has none. The string belongs to the device.
 */
const char *dmabuf_dio_device_label(const struct dmabuf_dio_device *device);

/**
 * Stores the channels of a buffer in `channels`, which has room for `room` of them, in the order of
 * their samples in a frame. Buffers are numbered from 0; most devices have one.
 *
 * Returns the number of channels, which may exceed `room`; `-ENOENT` if there is no such buffer;
 * `-EPROTO` for an unknown format.
 */
int64_t dmabuf_dio_device_channels(const struct dmabuf_dio_device *device,
                                   uint32_t buffer,
                                   struct dmabuf_dio_channel *channels,
                                   size_t room);

/**
 * Returns 1 if the buffer is an output, 0 if it is an input or does not exist, `-EFAULT`.
 */
int dmabuf_dio_device_is_output(const struct dmabuf_dio_device *device, uint32_t buffer);

/**
 * Stores the rate of a buffer in `hertz`, in frames per second; 0 if the device does not report it.
 *
 * Returns 0.
 */
int dmabuf_dio_device_rate(const struct dmabuf_dio_device *device, uint32_t buffer, double *hertz);

/**
 * Sets the rate of a buffer, in frames per second. The device may choose a similar rate, at most 1 %
 * away: `dmabuf_dio_device_rate` returns it.
 *
 * Returns 0; `-ENOENT` if the device has no rate; `-EINVAL` if it does not support this one, in which
 * case the rate is unchanged; `-EACCES`; `-EBUSY` while samples flow.
 */
int dmabuf_dio_device_set_rate(const struct dmabuf_dio_device *device, uint32_t buffer, double hertz);

/**
 * Stores the rates that the device supports for a buffer in `rates`, in the form of
 * `dmabuf_dio_attribute_available`; a null pointer if the device does not list them.
 *
 * Returns 0.
 */
int dmabuf_dio_device_rates(const struct dmabuf_dio_device *device, uint32_t buffer, char **rates);

/**
 * Reads an attribute of the device, or of a channel, and stores its value in `value`, to be freed with
 * `dmabuf_dio_string_free`.
 *
 * The name is that in sysfs, `in_voltage0_hardwaregain`, or the name or label of a channel, with or
 * without its direction, and an attribute: `voltage0.hardwaregain`, `RX_LO.frequency`. An attribute
 * that channels share can be named by each of them.
 *
 * Returns 0; `-ENOENT` if there is no such attribute; `-EINVAL` if the name is ambiguous; `-EACCES` if
 * it cannot be read; or the driver's error.
 */
int dmabuf_dio_attribute_read(const struct dmabuf_dio_device *device, const char *name, char **value);

/**
 * Stores the values that an attribute accepts in `values`, to be freed with `dmabuf_dio_string_free`:
 * separated by spaces, or `[MIN STEP MAX]` for a range of numbers. A null pointer if the driver does
 * not list them.
 *
 * Returns 0, or errors as for `dmabuf_dio_attribute_read`.
 */
int dmabuf_dio_attribute_available(const struct dmabuf_dio_device *device, const char *name, char **values);

/**
 * Sets an attribute. The driver may round the value: `dmabuf_dio_attribute_read` returns the result.
 * The attribute keeps its value after the program ends.
 *
 * Returns 0; `-ENOENT` if there is no such attribute; `-EINVAL` if the name is ambiguous, the driver
 * does not offer the value, or the attribute can only be read or only be written; `-EACCES`; `-EBUSY`;
 * or the driver's error, after which the former value is restored if the driver permits it.
 */
int dmabuf_dio_attribute_set(const struct dmabuf_dio_device *device, const char *name, const char *value);

/**
 * Opens a buffer of the IIO device with this name, label or number, selects its channels, sets its
 * rate and allocates the blocks from the system heap. No samples flow until
 * `dmabuf_dio_capture_start`.
 *
 * If the device or the kernel (before 6.11) does not support dma-bufs, samples are read with `read()`
 * into the same blocks: see `dmabuf_dio_capture_how`.
 *
 * Returns 0; `-ENODEV` if there is no such device; `-ENOENT` if it has no such buffer or no rate;
 * `-EACCES`; `-EBUSY` if the buffer is in use; `-EOPNOTSUPP` if it is an output; `-EINVAL` if a
 * channel does not exist or there is none, or the device does not support the rate or the block size;
 * `-ENOMEM` if less than 64 MiB would be left; `-EMFILE`. After an error the device is closed; its
 * channels or rate may have been set.
 */
int dmabuf_dio_capture_open(const char *device,
                            const struct dmabuf_dio_capture_options *options,
                            struct dmabuf_dio_capture **capture);

/**
 * Starts the flow of samples. After a stop, positions and counts begin at 0 again, and blocks filled
 * before are dropped. Does nothing if the capture is running.
 *
 * Returns 0; `-ENOBUFS` if the program holds all blocks; `-EINVAL` if the device refuses the channels,
 * or needs a trigger; `-ENODEV`.
 */
int dmabuf_dio_capture_start(struct dmabuf_dio_capture *capture);

/**
 * Waits for the next full block and begins CPU access to it, so that the samples can be read at once.
 * The program owns the block until `dmabuf_dio_capture_release`: it is not written to until then.
 * Other devices may import its dma-buf. Blocks are returned in the order of their samples.
 *
 * Blocks for at most `timeout_us` microseconds; 0 does not block, a negative number waits
 * indefinitely. A signal does not end the wait. A device that has no free block loses samples.
 *
 * Returns 0; `-ETIMEDOUT`; `-ENODATA` if the capture is not started, or is stopped and has no more
 * full blocks; `-ENOBUFS` if the program holds all blocks; `-ENODEV` if the device is gone or was
 * stopped by another program; `-EINVAL` or `-E2BIG` for the structure's size.
 */
int dmabuf_dio_capture_next(struct dmabuf_dio_capture *capture,
                            int64_t timeout_us,
                            struct dmabuf_dio_block *block);

/**
 * Stores the descriptor and the address of a block in `block`, even if it is not filled, so that the
 * program can prepare its importers. The other fields are 0. Read the memory only while the program
 * holds the block.
 *
 * Returns 0; `-EINVAL` if there is no such block, or for the structure's size; `-E2BIG`.
 */
int dmabuf_dio_capture_block(const struct dmabuf_dio_capture *capture,
                             uint32_t number,
                             struct dmabuf_dio_block *block);

/**
 * Ends CPU access to a block and returns it to the device, which may fill it again. The program, and
 * any device or process that it passed the dma-buf to, must no longer use it. Blocks may be released
 * in any order.
 *
 * Returns 0; `-EINVAL` if the program does not hold the block; `-ENODEV` and others if the device does
 * not accept it: the program no longer owns the block in that case, either.
 */
int dmabuf_dio_capture_release(struct dmabuf_dio_capture *capture, uint32_t number);

/**
 * Fills in the fields of a capture, as many as the caller's structure has.
 *
 * Returns 0; `-EINVAL` if `size` is too small; `-E2BIG` if it is more than 4096.
 */
int dmabuf_dio_capture_fields(const struct dmabuf_dio_capture *capture,
                              struct dmabuf_dio_capture_fields *fields);

/**
 * Returns a line of text that says how samples get into the blocks: by the device's DMA, or copied by
 * the CPU, with the reason. The string belongs to the capture.
 */
const char *dmabuf_dio_capture_how(const struct dmabuf_dio_capture *capture);

/**
 * Stops the flow of samples. Full blocks can still be taken, and the program keeps those that it
 * holds. Samples in a partly filled block are lost.
 *
 * Returns 0, or the kernel's error.
 */
int dmabuf_dio_capture_stop(struct dmabuf_dio_capture *capture);

/**
 * Stops the capture, closes the device, unmaps and closes the blocks. Does nothing for a null pointer.
 */
void dmabuf_dio_capture_free(struct dmabuf_dio_capture *capture);

/**
 * Prepares a conversion of frames. `channels` are the `count` channels of a frame, in its order, as
 * stored by `dmabuf_dio_device_channels`: exactly the channels of the capture.
 *
 * `picked` has the indexes, from 0, of the `picked_count` values of a frame that the result contains,
 * in this order and without gaps. Pairs of channels can thus be converted separately. A channel has
 * one value unless it repeats. If `picked` is a null pointer, the result contains all values in order.
 *
 * `to` is the format of the result: a SigMF name such as `i16`, `f32` or `u8` (a leading `c` has no
 * effect), or a format as in sysfs: `le:s12/16>>4`.
 *
 * Returns 0; `-EINVAL` for an unknown format, an index that does not exist, or no values;
 * `-EOPNOTSUPP` for a format that is not converted.
 */
int dmabuf_dio_converter_open(const struct dmabuf_dio_channel *channels,
                              size_t count,
                              const uint32_t *picked,
                              size_t picked_count,
                              const char *to,
                              struct dmabuf_dio_converter **converter);

/**
 * Converts `frames` frames. `from` has that many whole frames, and `to` has room for as many converted
 * ones; memory beyond these is not changed. They must not overlap. Neither needs to be aligned.
 *
 * Returns 0.
 */
int dmabuf_dio_convert(struct dmabuf_dio_converter *converter, const void *from, void *to, size_t frames);

/**
 * Frees a converter. Does nothing for a null pointer.
 */
void dmabuf_dio_converter_free(struct dmabuf_dio_converter *converter);

/**
 * Reads the tensors of the model at `path`: a safetensors or GGUF file, an index, or a folder with a model.
 * Passes each to `each`, in the order of the files. Those that follow are read meanwhile, by direct I/O.
 *
 * `names` are `count` names of the tensors to read, or a null pointer for all. `window` is how many bytes
 * are in memory at most before they are passed on, or one tensor; 0: chosen from the speed of the disk
 * and the free memory. So the model may be larger than the memory.
 *
 * Returns 0. On error, tensors that were passed on before it were complete: `-ENOENT`, `-EACCES` and
 * others for the files, `-ENOENT` also for a name that the model does not have; `-EINVAL` for files that
 * are no model, or malformed; otherwise as for `dmabuf_dio_load`; `-ECANCELED`.
 */
int dmabuf_dio_each_tensor(const char *path,
                           const char *const *names,
                           size_t count,
                           uint64_t window,
                           dmabuf_dio_tensor_callback each,
                           void *data);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DMABUF_DIO_H */
