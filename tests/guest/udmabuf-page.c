// SPDX-License-Identifier: GPL-2.0-only
/*
 * A udmabuf over only the first page of a huge page is refused, because Linux
 * 6.12 maps this page in place of the others; one over other pages of it works
 */
#include <sys/mman.h>

#include "odd.h"

#define HUGE	huge_page()

static void one(int memfd, unsigned char *map, uint64_t offset, size_t length)
{
	int fd = udmabuf_over(memfd, offset, length), dev, file;
	struct dmabuf_dio_rw rw = { .length = length };

	trying("%zu bytes at %llu", length, (unsigned long long)offset);
	check(fd >= 0);
	if (udmabuf_is_wrong() || (length == PAGE && !offset && !guest_with_series())) {
		expect_refused(fd, MAPPING);
		close(fd);
		return;
	}

	pattern_fill(map, 0, HUGE, 2);
	dev = dio_open();
	expect(dio_attach(dev, fd), 0);
	file = rw.file_fd = file_open("data", O_RDWR | direct_flag(direct_possible()));
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, length);
	pattern_check(map, 0, offset, 2);
	pattern_check(map + offset, 0, length, 1);
	pattern_check(map + offset + length, offset + length, HUGE - offset - length, 2);

	pattern_fill(map + offset, 0, length, 3);
	expect(dio_write(dev, &rw), 0);
	expect(rw.done, length);
	close(file);
	file = file_open("data", O_RDONLY);
	fd_pattern_check(file, 0, length, 3);
	close(file);
	file_pattern("data", HUGE, 1);
	close(dev);
	close(fd);
}

int main(void)
{
	int memfd = memfd_for_udmabuf(HUGE, MFD_HUGETLB);
	unsigned char *map;

	if (memfd < 0)
		skip("no huge pages: %s", strerror(-memfd));
	if (access("/dev/udmabuf", F_OK))
		skip("no /dev/udmabuf");
	map = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	check(map != MAP_FAILED);
	memset(map, 0, HUGE);
	file_pattern("data", HUGE, 1);

	one(memfd, map, 0, PAGE);
	one(memfd, map, 0, 2 * PAGE);
	one(memfd, map, PAGE, PAGE);
	one(memfd, map, HUGE - PAGE, PAGE);
	one(memfd, map, 5 * PAGE, 10 * PAGE);
	return 0;
}
