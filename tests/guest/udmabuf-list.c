// SPDX-License-Identifier: GPL-2.0-only
/*
 * A udmabuf of huge pages with a small page at its end. Linux 6.12's udmabuf maps the first page
 * of a huge page in place of each of its pages; checking the last page does not reveal it.
 */
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <linux/udmabuf.h>

#include "odd.h"

#define HUGE	huge_page()
#define LENGTH	(HUGE + PAGE)

int main(void)
{
	int huge = memfd_for_udmabuf(HUGE, MFD_HUGETLB), small = memfd_for_udmabuf(PAGE, 0);
	int node = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), fd, dev;
	struct dmabuf_dio_rw rw = { .length = LENGTH };
	struct {
		struct udmabuf_create_list head;
		struct udmabuf_create_item items[2];
	} list = {
		.head = { .flags = UDMABUF_FLAGS_CLOEXEC, .count = 2 },
	};
	unsigned char *map;

	if (huge < 0)
		skip("no huge pages: %s", strerror(-huge));
	if (node < 0)
		skip("no /dev/udmabuf");
	map = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, huge, 0);
	check(map != MAP_FAILED);
	memset(map, 0, HUGE);
	list.items[0] = (struct udmabuf_create_item){ .memfd = huge, .size = HUGE };
	list.items[1] = (struct udmabuf_create_item){ .memfd = small, .size = PAGE };
	fd = ioctl(node, UDMABUF_CREATE_LIST, &list);
	check(fd >= 0);

	if (udmabuf_is_wrong()) {
		expect_refused(fd, MAPPING);
		return 0;
	}
	file_pattern("data", LENGTH, 1);
	rw.file_fd = file_open("data", O_RDONLY | direct_flag(direct_possible()));
	dev = dio_open();
	expect(dio_attach(dev, fd), 0);
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, LENGTH);
	pattern_check(map, 0, HUGE, 1);
	munmap(map, HUGE);
	map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, small, 0);
	check(map != MAP_FAILED);
	pattern_check(map, HUGE, PAGE, 1);
	return 0;
}
