// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fixes in kernel/series/udmabuf: memory that was only fallocated, and memfds that may only be
 * read. With init_on_alloc=0 (vm/run --append), the first also looks for old memory. timeout=60
 *
 * fixes-udmabuf [STEP]: one step only. Skipped on other kernels.
 */
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <linux/dma-buf.h>
#include <linux/udmabuf.h>

#include "lib.h"

#define LENGTH	MIB(4)
#define OLD	MIB(64)

/* Fills and frees memory, so that the next allocations get used pages. */
static void use_memory(void)
{
	int memfd = memfd_create("old", MFD_CLOEXEC);

	check(memfd >= 0 && !ftruncate(memfd, OLD));
	fd_pattern_write(memfd, 0, OLD, 0xa5);
	close(memfd);
}

static void access_cpu(int fd, uint64_t when)
{
	check(!buffer_sync(fd, when | DMA_BUF_SYNC_RW));
}

/* The memfd is only fallocated, except for a page at @written if that is within it. */
static void fallocated(unsigned int flags, uint64_t written, const char *what)
{
	int memfd, fd;
	unsigned char *map;

	use_memory();
	memfd = memfd_for_udmabuf(LENGTH, flags);
	if (memfd < 0)
		skip("no memfd: %s", strerror(-memfd));
	check(!fallocate(memfd, 0, 0, LENGTH));
	if (written < LENGTH)
		fd_pattern_write(memfd, written, PAGE, 1);
	fd = udmabuf_over(memfd, 0, LENGTH);
	check(fd >= 0);
	map = map_dmabuf(fd, LENGTH, PROT_READ | PROT_WRITE);

	trying("old memory in %s", what);
	access_cpu(fd, DMA_BUF_SYNC_START);
	if (written < LENGTH) {
		zero_check(map, written);
		pattern_check(map + written, written, PAGE, 1);
		zero_check(map + written + PAGE, LENGTH - written - PAGE);
	} else {
		zero_check(map, LENGTH);
	}

	trying("what is stored in %s", what);
	pattern_fill(map, 0, LENGTH, 2);
	access_cpu(fd, DMA_BUF_SYNC_END);
	fd_pattern_check(memfd, 0, LENGTH, 2);
	access_cpu(fd, DMA_BUF_SYNC_START);
	pattern_check(map, 0, LENGTH, 2);
	access_cpu(fd, DMA_BUF_SYNC_END);
	unmap(map, LENGTH);
	close(fd);
	fd_pattern_check(memfd, 0, LENGTH, 2);
	close(memfd);
}

static void uptodate(void)
{
	fallocated(0, LENGTH, "a memfd that was fallocated");
	fallocated(0, LENGTH / 2, "a memfd of which one page was written");
	/* Huge pages are zeroed when they are allocated. */
	fallocated(MFD_HUGETLB, LENGTH, "huge pages that were fallocated");
}

static int create_list(int first, int second)
{
	struct {
		struct udmabuf_create_list head;
		struct udmabuf_create_item items[2];
	} list = {
		.head = { .flags = UDMABUF_FLAGS_CLOEXEC, .count = 2 },
		.items = {
			{ .memfd = first, .size = PAGE },
			{ .memfd = second, .size = PAGE },
		},
	};
	int node = file_open("/dev/udmabuf", O_RDWR), fd;

	fd = ioctl(node, UDMABUF_CREATE_LIST, &list);
	if (fd < 0)
		fd = -errno;
	close(node);
	return fd;
}

static void read_only(void)
{
	int memfd = memfd_for_udmabuf(LENGTH, 0), other, fd;
	char path[32];

	check(memfd >= 0);
	fd_pattern_write(memfd, 0, LENGTH, 1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", memfd);
	other = open(path, O_RDONLY | O_CLOEXEC);
	check(other >= 0);

	trying("a memfd that is open for reading only");
	expect(udmabuf_over(other, 0, LENGTH), -EACCES);
	expect(create_list(memfd, other), -EACCES);
	expect(create_list(other, memfd), -EACCES);
	close(other);

	trying("the same memfd, open for writing");
	other = open(path, O_RDWR | O_CLOEXEC);
	check(other >= 0);
	fd = udmabuf_over(other, 0, LENGTH);
	check(fd >= 0);
	close(fd);
	fd = create_list(memfd, other);
	check(fd >= 0);
	close(fd);
	close(other);
	close(memfd);
}

int main(int argc, char **argv)
{
	static void (* const steps[])(void) = { uptodate, read_only };

	run_steps(argc, argv, steps, ARRAY_SIZE(steps));
	return 0;
}
