// SPDX-License-Identifier: GPL-2.0-only
/*
 * A dma-buf with a read-only fd is a valid source for WRITE but not a target for READ; with a
 * write-only fd it is the other way round.
 */
#include <fcntl.h>
#include <linux/dma-heap.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "ring.h"

#define LENGTH	(MIB(1) + 99)

static void write_only(void)
{
	struct dma_heap_allocation_data heap = { .len = MIB(1), .fd_flags = O_WRONLY };
	int system = open("/dev/dma_heap/system", O_RDONLY | O_CLOEXEC), dev = dio_open();
	struct dmabuf_dio_rw rw = { .length = MIB(1) };

	if (system < 0)
		return;
	check(!ioctl(system, DMA_HEAP_IOCTL_ALLOC, &heap));
	expect(dio_attach(dev, heap.fd), 0);
	rw.file_fd = file_open("from", O_RDWR | O_CREAT | O_TRUNC);
	expect(dio_write(dev, &rw), -EACCES);
	expect(rw.done, 0);
	expect(lseek(rw.file_fd, 0, SEEK_END), 0);
	file_pattern("from", MIB(1), 3);
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, MIB(1));
	if (dio_has_slots()) {
		struct io_uring ring;

		ring_create(&ring, 4, 2);
		expect(slot_register(&ring, dev, 0, 0, MIB(1), DMABUF_DIO_SLOT_WRITE), -EACCES);
		expect(slot_register(&ring, dev, 0, 0, MIB(1), DMABUF_DIO_SLOT_READ), 0);
		io_uring_queue_exit(&ring);
	}
	close(heap.fd);
	close(system);
	close(rw.file_fd);
	close(dev);
}

int main(void)
{
	struct dmabuf_dio_load load = { .fd_flags = O_RDONLY, .length = LENGTH };
	struct dmabuf_dio_rw rw = { .length = LENGTH };
	int dev = dio_open(), file, copy;
	unsigned char *map;

	file_pattern("data", LENGTH, 1);
	file_pattern("other", LENGTH, 2);
	load.file_fd = file_open("data", O_RDONLY);
	expect(dio_load(dev, &load), 0);
	expect(dio_attach(dev, load.dmabuf_fd), 0);
	map = map_dmabuf(load.dmabuf_fd, load.buf_length, PROT_READ);

	file = file_open("other", O_RDWR);
	rw.file_fd = file;
	expect(dio_read(dev, &rw), -EACCES);
	expect(rw.done, 0);
	pattern_check(map, 0, LENGTH, 1);

	copy = file_open("copy", O_RDWR | O_CREAT);
	rw.file_fd = copy;
	expect(dio_write(dev, &rw), 0);
	expect(rw.done, LENGTH);
	fd_pattern_check(copy, 0, LENGTH, 1);

	if (dio_has_slots()) {
		struct io_uring ring;

		ring_create(&ring, 4, 2);
		expect(slot_register(&ring, dev, 0, 0, LENGTH, SLOT_BOTH), -EACCES);
		expect(slot_register(&ring, dev, 0, 0, LENGTH, DMABUF_DIO_SLOT_READ), -EACCES);
		expect(slot_register(&ring, dev, 0, 0, LENGTH, DMABUF_DIO_SLOT_WRITE), 0);
		expect(slot_io(&ring, false, file, 0, 0, PAGE, 0), -EFAULT);
		check(!ftruncate(copy, 0));
		expect(slot_io(&ring, true, copy, 0, 0, MIB(1), 0), MIB(1));
		fd_pattern_check(copy, 0, MIB(1), 1);
		io_uring_queue_exit(&ring);
	}
	pattern_check(map, 0, LENGTH, 1);
	write_only();
	return 0;
}
