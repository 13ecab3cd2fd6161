// SPDX-License-Identifier: GPL-2.0-only
/*
 * A page of a CMA region that is still referenced when its buffer is closed, for example by a
 * network packet, is freed only with the last reference. timeout=60
 */
#include "odd.h"
#include "ring.h"

#define LENGTH	KIB(64)

/* The page has two references: the buffer's and the one taken here. */
static void expect_let_go(void)
{
	sleep_ms(500);
	expect(odd_let_go(), 2);
	/* The page must be freed now, or the modules cannot be unloaded. */
	sleep_ms(500);
}

static void call(int file)
{
	int dev = dio_open(), fd = odd_buffer(LENGTH, ODD_CMA);

	trying("READ");
	expect(dio_attach(dev, fd), 0);
	expect(dio_read(dev, &(struct dmabuf_dio_rw){ .file_fd = file, .length = LENGTH }), 0);
	odd_hold(fd);
	close(fd);
	close(dev);
	expect_let_go();
}

static void slot(int file)
{
	int dev = dio_open(), fd = odd_buffer(LENGTH, ODD_CMA);
	struct io_uring ring;

	trying("slot");
	expect(dio_attach(dev, fd), 0);
	ring_create(&ring, 1, 1);
	expect(slot_register(&ring, dev, 0, 0, LENGTH, SLOT_BOTH), 0);
	close(dev);
	expect(slot_io(&ring, false, file, 0, 0, LENGTH, 0), LENGTH);
	odd_hold(fd);
	close(fd);
	io_uring_queue_exit(&ring);
	expect_let_go();
}

/*
 * The heap of the series leaves the page to whoever refers to it, and everything else is free at once. Most of the
 * region can be allocated again, without that page, and all of it after that.
 */
static void expect_left_alone(size_t length)
{
	struct buffer again;

	sleep_ms(500);
	expect(buffer_try(&again, BUFFER_CMA, length), 0);
	memset(again.map, 0x55, length);
	expect(odd_let_go(), 1);
	buffer_destroy(&again);
	expect(buffer_try(&again, BUFFER_CMA, length), 0);
	buffer_destroy(&again);
}

/* A buffer of the heap, whose exporter lends pages to the module and to copy_file_range() */
static void heap(int file)
{
	size_t length = guest_with_series() ? memory_of_cma() / 16 * 9 & -MIB(1) : LENGTH;
	struct buffer buf;
	off_t in = 0, out = 0;
	int way;

	for (way = 0; way < 2; way++) {
		trying("CMA heap, %s", way ? "copy_file_range" : "READ");
		if (buffer_try(&buf, BUFFER_CMA, length))
			return;
		if (!way) {
			int dev = dio_context(&buf);

			expect(dio_read(dev, &(struct dmabuf_dio_rw){ .file_fd = file, .length = LENGTH }), 0);
			close(dev);
		} else if (copy_file_range(file, &in, buf.fd, &out, LENGTH, 0) != LENGTH) {
			buffer_destroy(&buf);
			return;
		}
		odd_hold(buf.fd);
		buffer_destroy(&buf);
		if (guest_with_series())
			expect_left_alone(length);
		else
			expect_let_go();
	}
}

static void nothing(void)
{
	int dev = dio_open(), fd = odd_buffer(LENGTH, ODD_CMA);

	trying("attached only");
	expect(dio_attach(dev, fd), 0);
	close(fd);
	close(dev);
}

int main(void)
{
	int file, fd = odd_try(LENGTH, ODD_CMA);

	if (fd < 0)
		skip("no buffer of a CMA region: %s", strerror(-fd));
	close(fd);
	file_pattern("data", LENGTH, 1);
	file = file_open("data", O_RDONLY | direct_flag(direct_possible()));
	call(file);
	if (dio_has_slots())
		slot(file);
	nothing();
	heap(file);
	close(file);
	return 0;
}
