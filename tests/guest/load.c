// SPDX-License-Identifier: GPL-2.0-only
/* LOAD returns a dma-buf with the file's content and zeros in the last page. */
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "lib.h"

static const unsigned int lengths[] = {
	1, 511, 512, 4095, 4096, 4097, 65536, 70001, 1048576 + 1, 8 << 20,
	(20 << 20) + 4095,
};

#define SOURCE	(MIB(21))

static void verify(const struct dmabuf_dio_load *load)
{
	unsigned char *map = map_dmabuf(load->dmabuf_fd, load->buf_length, PROT_READ);

	pattern_check(map, load->file_offset, load->length, 1);
	zero_check(map + load->length, load->buf_length - load->length);
	unmap(map, load->buf_length);
}

/* Recently freed memory is filled with non-zero data. */
static void dirty_memory(void)
{
	size_t length = MIB(24);
	void *data = mmap(NULL, length, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(data != MAP_FAILED);
	memset(data, 0xa5, length);
	munmap(data, length);
}

static void contents(bool direct)
{
	int file = file_open("data", O_RDONLY | direct_flag(direct));
	int dev = dio_open();
	unsigned int i, offset;

	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		for (offset = 0; offset < 3; offset++) {
			struct dmabuf_dio_load load = {
				.file_fd = file,
				.fd_flags = O_RDWR,
				.file_offset = offset * PAGE,
				.length = lengths[i],
				.dmabuf_fd = 12345,
			};
			unsigned int fds = count_fds();
			off_t size;

			trying("%s, offset %u pages, length %u",
			       direct ? "direct" : "buffered", offset, lengths[i]);
			dirty_memory();
			expect(dio_load(dev, &load), 0);
			expect(count_fds(), fds + 1);
			expect(load.done, load.length);
			expect(load.direct, direct ? load.length : 0);
			expect(load.align, 0);
			expect(load.buf_length, (load.length + PAGE - 1) & -PAGE);
			check(load.segments >= 1);
			check(load.segments <= load.buf_length / PAGE);
			size = lseek(load.dmabuf_fd, 0, SEEK_END);
			expect(size, load.buf_length);
			verify(&load);
			close(load.dmabuf_fd);
		}
	}

	/* Buffered files need no aligned offset. */
	if (!direct) {
		struct dmabuf_dio_load load = {
			.file_fd = file, .fd_flags = O_RDWR, .file_offset = 4321,
			.length = MIB(2) + 5,
		};

		expect(dio_load(dev, &load), 0);
		verify(&load);
		close(load.dmabuf_fd);
	}

	/* The buffer is independent of context, file and module calls. */
	{
		struct dmabuf_dio_load load = {
			.file_fd = file, .fd_flags = O_RDWR, .length = MIB(9) + 77,
		};

		expect(dio_load(dev, &load), 0);
		close(dev);
		close(file);
		verify(&load);
		close(load.dmabuf_fd);
	}
}

static void gathers_chunks(bool direct)
{
	const uint64_t gathers[] = {
		0, 1, PAGE, 12345, MIB(1), SOURCE, GIB(1) * 1024, UINT64_MAX,
	};
	const uint64_t chunks[] = { 0, PAGE, KIB(64), MIB(4), MIB(64) };
	int file = file_open("data", O_RDONLY | direct_flag(direct));
	int dev = dio_open();
	unsigned int g, c;

	for (g = 0; g < ARRAY_SIZE(gathers); g++) {
		for (c = 0; c < ARRAY_SIZE(chunks); c++) {
			struct dmabuf_dio_load load = {
				.file_fd = file,
				.fd_flags = O_RDWR,
				.length = MIB(6) + 4097,
				.gather = gathers[g],
				.chunk = chunks[c],
				.depth = (g + c) % 5 * 16,
			};

			trying("gather %llu, chunk %llu", load.gather, load.chunk);
			expect(dio_load(dev, &load), 0);
			verify(&load);
			close(load.dmabuf_fd);
		}
	}
	close(dev);
	close(file);
}

static void fd_flags(void)
{
	int file = file_open("data", O_RDONLY);
	int dev = dio_open();
	struct dmabuf_dio_load load = { .file_fd = file, .length = 10000 };
	void *map;

	trying("flags of the new fd");
	load.fd_flags = O_RDWR | O_CLOEXEC;
	expect(dio_load(dev, &load), 0);
	check(fcntl(load.dmabuf_fd, F_GETFD) & FD_CLOEXEC);
	expect(fcntl(load.dmabuf_fd, F_GETFL) & O_ACCMODE, O_RDWR);
	close(load.dmabuf_fd);

	load.fd_flags = O_RDONLY;
	expect(dio_load(dev, &load), 0);
	check(!(fcntl(load.dmabuf_fd, F_GETFD) & FD_CLOEXEC));
	expect(fcntl(load.dmabuf_fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	map = mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, load.dmabuf_fd, 0);
	check(map == MAP_FAILED && errno == EACCES);
	map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, load.dmabuf_fd, 0);
	check(map != MAP_FAILED);
	check(mprotect(map, PAGE, PROT_READ | PROT_WRITE) && errno == EACCES);
	verify(&load);
	munmap(map, PAGE);
	close(load.dmabuf_fd);

	load.fd_flags = O_WRONLY;
	expect(dio_load(dev, &load), -EINVAL);
	load.fd_flags = O_RDWR | O_NONBLOCK;
	expect(dio_load(dev, &load), -EINVAL);
	load.fd_flags = O_ACCMODE;
	expect(dio_load(dev, &load), -EINVAL);
	load.fd_flags = 0x80000000;
	expect(dio_load(dev, &load), -EINVAL);
	close(dev);
	close(file);
}

int main(void)
{
	file_pattern("data", SOURCE, 1);
	contents(false);
	gathers_chunks(false);
	if (direct_possible()) {
		contents(true);
		gathers_chunks(true);
	}
	fd_flags();
	return 0;
}
