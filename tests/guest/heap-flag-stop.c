// SPDX-License-Identifier: GPL-2.0-only
/*
 * The heap flag of the patch series zeroes what the file does not fill, which may be gigabytes:
 * a killed process does not wait for all of it. memory=1500 timeout=300
 */
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "lib.h"

#define LENGTH	GIB(1)
#define TRIES	4

/* struct dma_heap_allocation_data of kernels with the series */
struct allocation {
	uint64_t len;
	uint32_t fd;
	uint32_t fd_flags;
	uint64_t heap_flags;
	uint64_t file_offset;
	uint64_t read_len;
	int32_t file_fd;
	uint32_t reserved;
};

#define ALLOC		_IOWR('H', 0, struct allocation)
#define READ_FILE	1

static int allocate_and_read(int heap, int file, uint64_t length)
{
	struct allocation data = {
		.len = length, .fd_flags = O_RDWR | O_CLOEXEC, .heap_flags = READ_FILE,
		.file_fd = file,
	};

	return ioctl(heap, ALLOC, &data) ? -errno : (int)data.fd;
}

/* Returns the duration of a whole call, after which the rest of the buffer must be zero. */
static double whole(int heap, int file)
{
	double start = seconds(), spent;
	unsigned char *map;
	int fd = allocate_and_read(heap, file, LENGTH);

	spent = seconds() - start;
	check(fd >= 0);
	map = map_dmabuf(fd, LENGTH, PROT_READ);
	pattern_check(map, 0, PAGE, 0);
	zero_check_at(__FILE__, __LINE__, map + LENGTH - MIB(1), MIB(1));
	unmap(map, LENGTH);
	close(fd);
	return spent;
}

/* The seconds from SIGKILL after @delay to the end of the process */
static double killed(int heap, int file, double delay)
{
	pid_t pid = spawn();
	double start;

	if (!pid) {
		allocate_and_read(heap, file, LENGTH);
		/* The call had ended before the signal. */
		for (;;)
			pause();
	}
	sleep_ms(delay * 1000);
	start = seconds();
	kill_child(pid);
	return seconds() - start;
}

int main(void)
{
	double full, freed, best = 1000;
	int heap, file, i, fd;

	heap = open("/dev/dma_heap/system", O_RDONLY | O_CLOEXEC);
	if (heap < 0)
		skip("no system heap");
	file_pattern("data", PAGE, 0);
	file = file_open("data", O_RDONLY);
	fd = allocate_and_read(heap, file, PAGE);
	if (fd == -EINVAL)
		skip("the heaps of this kernel do not read files");
	check(fd >= 0);
	close(fd);

	/* The first use of memory may be slow in a virtual machine. */
	whole(heap, file);
	full = whole(heap, file);
	/* Measures how long the memory takes to be freed after the call. */
	freed = killed(heap, file, 2 * full);
	for (i = 0; i < TRIES; i++) {
		double spent = killed(heap, file, full / 4);

		if (spent < best)
			best = spent;
	}
	printf("whole %.3f s, freeing %.3f s, killed %.3f s\n", full, freed, best);
	if (best > freed + full / 4)
		fail("it ends %.3f s after it was killed, of %.3f s in all", best, full);
	return 0;
}
