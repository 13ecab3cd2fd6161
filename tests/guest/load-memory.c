// SPDX-License-Identifier: GPL-2.0-only
/*
 * LOAD with fragmented or barely sufficient memory; all of its memory is freed
 * afterwards. timeout=400
 */
#include <sys/mman.h>

#include "lib.h"

#define LENGTH	(MIB(160) + 123)
/* Enough where memory is not scarce */
#define SHORT	(MIB(40) + 123)

static int dev;

static unsigned int load_checked(uint64_t length)
{
	struct dmabuf_dio_load load = { .fd_flags = O_RDWR, .length = length };
	unsigned char *map;

	load.file_fd = file_open("data", O_RDONLY | direct_flag(direct_possible()));
	expect(dio_load(dev, &load), 0);
	map = map_dmabuf(load.dmabuf_fd, load.buf_length, PROT_READ);
	pattern_check(map, 0, length, 1);
	zero_check(map + length, load.buf_length - length);
	unmap(map, load.buf_length);
	close(load.dmabuf_fd);
	close(load.file_fd);
	return load.segments;
}

/* Leaves every second page of nearly all memory free. */
static void fragmented(void)
{
	uint64_t before = memory_available(), length, i;
	unsigned int normal = load_checked(LENGTH), segments;
	char *map;

	/* The other free memory is smaller than the file. */
	length = before - MIB(100) - memory_kept_free();
	if (length / 2 < LENGTH + MIB(64)) {
		printf("memory is too small to be fragmented\n");
		return;
	}
	map = mmap(NULL, length, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	check(map != MAP_FAILED);
	madvise(map, length, MADV_NOHUGEPAGE);
	for (i = 0; i < length; i += PAGE)
		map[i] = 1;
	for (i = 0; i < length; i += 2 * PAGE)
		check(!madvise(map + i, PAGE, MADV_DONTNEED));

	trying("fragmented");
	segments = load_checked(LENGTH);
	/* The degree of fragmentation depends on the machine. */
	printf("%u segments, fragmented %u\n", normal, segments);
	munmap(map, length);
	expect_memory_back(before, MIB(48));
}

/* LOADs about as much as is free: it succeeds or returns ENOMEM, and all memory is freed. */
static void squeezed(void)
{
	static const unsigned int shares[] = { 96, 130 };
	uint64_t before = memory_available(), share;
	unsigned int i;

	file_sparse("large", before);
	for (i = 0; i < ARRAY_SIZE(shares); i++) {
		struct dmabuf_dio_load load = {
			.fd_flags = O_RDWR, .length = before / 100 * shares[i],
		};
		int ret;

		share = shares[i];
		trying("%llu %% of the free memory", (unsigned long long)share);
		if (load.length > before)
			check(!truncate("large", load.length));
		load.file_fd = file_open("large", O_RDONLY | direct_flag(direct_possible()));
		ret = dio_load(dev, &load);
		if (ret)
			expect(ret, -ENOMEM);
		else
			close(load.dmabuf_fd);
		if (share > 100)
			expect(ret, -ENOMEM);
		close(load.file_fd);
		expect_memory_back(before, MIB(64));
	}
	unlink("large");
}

static void repeated(void)
{
	uint64_t before = memory_available();
	unsigned int i;

	trying("again and again");
	for (i = 0; i < 6; i++)
		load_checked(SHORT);
	expect_memory_back(before, MIB(48));
}

int main(void)
{
	dev = dio_open();
	file_pattern("data", LENGTH, 1);
	repeated();
	fragmented();
	squeezed();
	load_checked(SHORT);
	return 0;
}
