/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * ring FILE: reads a file through an io_uring of its own into a dma-buf, whose pages are lent to the ring, and
 * writes the content to standard output. Needs the kernel module and Linux 7.3.
 */
#include <dmabuf_dio.h>

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK (1u << 20)
#define DEPTH 8

static int failed(const char *what, int status)
{
	fprintf(stderr, "ring: %s: %s\n", what, strerror(-status));
	return 1;
}

static int ours(void)
{
	fprintf(stderr, "ring: %s\n  %s\n", dmabuf_dio_error_message(), dmabuf_dio_error_hint());
	return 1;
}

static int complete(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	int status = io_uring_submit_and_wait(ring, 1);

	if (status < 0 || (status = io_uring_wait_cqe(ring, &cqe)) < 0)
		return status;
	status = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return status;
}

/* Blocks of the file, DEPTH of them in flight. The offset in the lent range stands for an address. */
static int read_all(struct io_uring *ring, int file, uint64_t length)
{
	uint64_t asked = 0, done = 0;
	unsigned int in_flight = 0;

	while (asked < length || in_flight) {
		for (; asked < length && in_flight < DEPTH; asked += BLOCK, in_flight++) {
			struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

			io_uring_prep_rw(IORING_OP_READ_FIXED, sqe, file, (void *)(uintptr_t)asked, BLOCK, asked);
			sqe->buf_index = 0;
		}
		int status = complete(ring);
		if (status < 0)
			return status;
		done += status;
		in_flight--;
	}
	return done == length ? 0 : -EIO;
}

int main(int count, char **arguments)
{
	struct dmabuf_dio_buffer *buffer;
	struct dmabuf_dio_map *map;
	struct io_uring ring;
	struct stat stat;
	int status, file = open(count == 2 ? arguments[1] : "", O_RDONLY | O_DIRECT);

	if (file < 0 || fstat(file, &stat) < 0)
		return failed("FILE", -errno);
	uint64_t length = stat.st_size;
	uint64_t whole = (length + BLOCK - 1) / BLOCK * BLOCK;

	/* The module borrows the buffer's pages; the descriptor is for the registration only. */
	if (dmabuf_dio_buffer_alloc(NULL, whole, &buffer) < 0)
		return ours();
	int device = dmabuf_dio_attach(buffer);
	if (device < 0)
		return ours();

	if ((status = io_uring_queue_init(DEPTH, &ring, 0)) < 0 ||
	    (status = io_uring_register_buffers_sparse(&ring, 1)) < 0)
		return failed("io_uring", status);
	struct dmabuf_dio_lent_range range = { .length = whole, .directions = DMABUF_DIO_LEND_READ };
	dmabuf_dio_prep_register(io_uring_get_sqe(&ring), device, &range);
	if ((status = complete(&ring)) < 0)
		return failed("lend", status);
	close(device);

	/* Devices that have imported the buffer see the disk's writes like writes by the CPU. */
	dmabuf_dio_access_begin(buffer, DMABUF_DIO_ACCESS_WRITE);
	status = read_all(&ring, file, length);
	dmabuf_dio_access_end(buffer, DMABUF_DIO_ACCESS_WRITE);
	if (status < 0)
		return failed("read", status);
	io_uring_queue_exit(&ring);

	if (dmabuf_dio_map(buffer, DMABUF_DIO_ACCESS_READ, &map) < 0)
		return ours();
	fwrite(dmabuf_dio_map_address(map), 1, length, stdout);
	dmabuf_dio_unmap(map);
	dmabuf_dio_buffer_free(buffer);
	return fflush(stdout) ? 1 : 0;
}
