// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages of a memfd that were allocated and never filled: ATTACH refuses a
 * udmabuf over them. They show old memory, and the first write to the memfd, or
 * an access by a mapping, zeroes data that READ has stored. Pages that were
 * filled in a way that the refusal names are accepted.
 */
#include <sys/mman.h>

#include "odd.h"

#define LENGTH	MIB(4)

enum filling { NOT, BUT_ONE_PAGE, WRITTEN, POPULATED, BY_UDMABUF, PUNCHED, WRITTEN_LATER, FILLINGS };

static const char * const fillings[FILLINGS] = {
	"fallocate", "fallocate, and all but a page written", "fallocate, written",
	"fallocate, MADV_POPULATE_WRITE", "nothing", "fallocate, and punched later",
	"fallocate, written after UDMABUF_CREATE",
};

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE	23
#endif

static int filled(enum filling filling, unsigned int flags)
{
	int memfd = memfd_for_udmabuf(LENGTH, flags);
	unsigned char *map;

	if (memfd < 0 || filling == BY_UDMABUF)
		return memfd;
	/* Memory that is not zero, for the pages to be made of */
	map = mmap(NULL, 4 * LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(map != MAP_FAILED);
	memset(map, 0x5a, 4 * LENGTH);
	check(!munmap(map, 4 * LENGTH));
	check(!fallocate(memfd, 0, 0, LENGTH));
	map = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	check(map != MAP_FAILED);
	if (filling == WRITTEN)
		pattern_fill(map, 0, LENGTH, 2);
	if (filling == BUT_ONE_PAGE) {
		pattern_fill(map, 0, LENGTH / 2, 2);
		pattern_fill(map + LENGTH / 2 + PAGE, 0, LENGTH / 2 - PAGE, 2);
	}
	if (filling == POPULATED)
		check(!madvise(map, LENGTH, MADV_POPULATE_WRITE));
	check(!munmap(map, LENGTH));
	return memfd;
}

/* Data that READ stored is visible in every way, also afterwards. */
static void transfers(int memfd, int fd)
{
	int file = file_open("data", O_RDONLY | direct_flag(direct_possible())), dev = dio_open();
	struct dmabuf_dio_rw rw = { .file_fd = file, .length = LENGTH };
	unsigned char *map = map_dmabuf(fd, LENGTH, PROT_READ), *of_memfd;

	expect(dio_attach(dev, fd), 0);
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, LENGTH);
	pattern_check(map, 0, LENGTH, 1);
	of_memfd = mmap(NULL, LENGTH, PROT_READ, MAP_SHARED, memfd, 0);
	check(of_memfd != MAP_FAILED);
	pattern_check(of_memfd, 0, LENGTH, 1);
	unmap(of_memfd, LENGTH);
	pattern_check(map, 0, LENGTH, 1);
	unmap(map, LENGTH);
	close(dev);
	close(file);
}

static void write_all(int memfd)
{
	unsigned char *map = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);

	check(map != MAP_FAILED);
	pattern_fill(map, 0, LENGTH, 2);
	unmap(map, LENGTH);
}

/* The kernel's pages show old memory, so they must not reach a file either. */
static void one(enum filling filling, unsigned int flags)
{
	/* hugetlbfs and the fix of memfd_pin_folios() zero at once. */
	bool zeroed = (flags & MFD_HUGETLB) || guest_with_fixes();
	int memfd = filled(filling, flags), fd;

	trying("%s%s", fillings[filling], flags & MFD_HUGETLB ? ", huge pages" : "");
	if (memfd < 0)
		return;
	fd = udmabuf_over(memfd, 0, LENGTH);
	/* Linux 6.12 takes huge pages only if they are reserved. */
	if (fd == -ENOMEM && (flags & MFD_HUGETLB) && filling == BY_UDMABUF) {
		close(memfd);
		return;
	}
	check(fd >= 0);
	if (filling == PUNCHED)
		fd_punch(memfd, 0, LENGTH);
	if (filling == WRITTEN_LATER)
		write_all(memfd);
	if (zeroed ? filling == PUNCHED :
		     filling == NOT || filling == BUT_ONE_PAGE || filling == PUNCHED) {
		if (!zeroed)
			expect_refused(fd, UNFILLED);
	} else if (!(flags & MFD_HUGETLB) || !udmabuf_is_wrong()) {
		transfers(memfd, fd);
	}
	close(fd);
	close(memfd);
}

int main(void)
{
	enum filling filling;

	if (access("/dev/udmabuf", F_OK))
		skip("no /dev/udmabuf");
	file_pattern("data", LENGTH, 1);
	for (filling = 0; filling < FILLINGS; filling++) {
		one(filling, 0);
		one(filling, MFD_HUGETLB);
	}
	return 0;
}
