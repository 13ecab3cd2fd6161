/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A ring of the caller's, with registered buffers that are lent from a dma-buf */
#include "lib.h"

#include <liburing.h>
#include <linux/dmabuf_dio.h>

#define LENGTH MIB(4)

static int completion(struct io_uring *ring, uint64_t user_data)
{
	struct io_uring_cqe *cqe;
	int result;

	expect(io_uring_submit_and_wait(ring, 1), 1);
	expect(io_uring_wait_cqe(ring, &cqe), 0);
	expect(cqe->user_data, user_data);
	result = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return result;
}

static int command(struct io_uring *ring, int device, const struct dmabuf_dio_lent_range *range)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	memset(sqe, 0xff, sizeof(*sqe));
	expect(dmabuf_dio_prep_register(sqe, device, range), 0);
	sqe->user_data = 77;
	return completion(ring, 77);
}

static int transfer(struct io_uring *ring, int write, int file, unsigned int index, uint64_t offset,
		    unsigned int length, uint64_t position)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	io_uring_prep_rw(write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED, sqe, file,
			 (void *)(uintptr_t)offset, length, position);
	sqe->buf_index = (uint16_t)index;
	sqe->user_data = 5;
	return completion(ring, 5);
}

int main(void)
{
	const uint32_t both = DMABUF_DIO_ACCESS_READ | DMABUF_DIO_ACCESS_WRITE;
	struct dmabuf_dio_lent_range range[2];
	struct iovec none = { NULL, 0 };
	struct dmabuf_dio_buffer *buffer, *memfd = memfd_of(4096, 0);
	struct dmabuf_dio_map *map;
	struct io_uring ring;
	unsigned int i, descriptors;
	int device, in, out;

	/* Both headers say the same. */
	expect(sizeof(struct dmabuf_dio_lent_range), sizeof(struct dmabuf_dio_slot));
	expect(DMABUF_DIO_LEND_READ, DMABUF_DIO_SLOT_READ);
	expect(DMABUF_DIO_LEND_WRITE, DMABUF_DIO_SLOT_WRITE);

	device = dmabuf_dio_attach(memfd);
	check(device < 0 && *dmabuf_dio_error_message() && *dmabuf_dio_error_hint());
	dmabuf_dio_buffer_free(memfd);
	if (!getenv("DMABUF_DIO_KERNEL")) {
		expect(device, -ENOENT);
		skip(dmabuf_dio_error_message());
	}
	expect(device, -EINVAL);

	descriptors = open_descriptors();
	expect(dmabuf_dio_buffer_alloc(NULL, LENGTH, &buffer), 0);
	device = dmabuf_dio_attach(buffer);
	if (!strcmp(getenv("DMABUF_DIO_KERNEL"), "6.12")) {
		expect(device, -EOPNOTSUPP);
		check(strstr(dmabuf_dio_error_hint(), "7.3"));
		skip(dmabuf_dio_error_message());
	}
	check(device >= 0);
	expect(fcntl(device, F_GETFD), FD_CLOEXEC);
	expect(io_uring_queue_init(8, &ring, 0), 0);
	expect(io_uring_register_buffers_sparse(&ring, 2), 0);
	for (i = 0; i < 2; i++) {
		range[i].buf_offset = i * LENGTH / 2;
		range[i].length = LENGTH / 2;
		range[i].index = i;
		range[i].directions = DMABUF_DIO_LEND_READ | DMABUF_DIO_LEND_WRITE;
		expect(command(&ring, device, &range[i]), 0);
	}
	expect(command(&ring, device, &range[0]), -EBUSY);
	range[0].buf_offset = 1;
	expect(command(&ring, device, &range[0]), -EINVAL);
	range[0].buf_offset = LENGTH;
	expect(command(&ring, device, &range[0]), -ERANGE);

	make_file("data", LENGTH, 1);
	in = open("data", O_RDONLY | O_DIRECT);
	check(in >= 0);
	expect(dmabuf_dio_map(buffer, both, &map), 0);
	memset(dmabuf_dio_map_address(map), 0xee, LENGTH);
	expect(dmabuf_dio_map_end(map), 0);
	/* The second half of the file into the first half of the buffer, and the other way round */
	expect(dmabuf_dio_access_begin(buffer, both), 0);
	expect(transfer(&ring, 0, in, 0, 0, LENGTH / 2, LENGTH / 2), LENGTH / 2);
	expect(transfer(&ring, 0, in, 1, 4096, LENGTH / 2 - 4096, 4096), LENGTH / 2 - 4096);
	expect(dmabuf_dio_access_end(buffer, both), 0);
	expect(dmabuf_dio_map_begin(map), 0);
	check_pattern(dmabuf_dio_map_address(map), LENGTH / 2, LENGTH / 2, 1);
	check_byte((char *)dmabuf_dio_map_address(map) + LENGTH / 2, 4096, 0xee);
	check_pattern((char *)dmabuf_dio_map_address(map) + LENGTH / 2 + 4096, 4096, LENGTH / 2 - 4096, 1);
	pattern(dmabuf_dio_map_address(map), 0, LENGTH, 2);
	expect(dmabuf_dio_unmap(map), 0);

	/* A registered slot outlives the device and the buffer. */
	out = open("copy", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0644);
	expect(dmabuf_dio_access_begin(buffer, both), 0);
	dmabuf_dio_buffer_free(buffer);
	expect(io_uring_register_buffers_update_tag(&ring, 0, &none, NULL, 1), 1);
	expect(transfer(&ring, 0, in, 0, 0, 4096, 0), -EFAULT);
	expect(close(device), 0);
	expect(transfer(&ring, 1, out, 1, 0, LENGTH / 2, LENGTH / 2), LENGTH / 2);
	io_uring_queue_exit(&ring);
	expect(lseek(out, 0, SEEK_END), LENGTH);
	close(out);
	close(in);
	expect(open_descriptors(), descriptors);

	out = open("copy", O_RDONLY);
	{
		static unsigned char half[LENGTH / 2];

		expect(pread(out, half, LENGTH / 2, LENGTH / 2), LENGTH / 2);
		check_pattern(half, LENGTH / 2, LENGTH / 2, 2);
	}
	close(out);
	return 0;
}
