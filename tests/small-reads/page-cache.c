// SPDX-License-Identifier: GPL-2.0-only
/* A read returns dirty data in the page cache, from write() or a mapping. */
#include <sys/mman.h>

#include "small.h"

#define LENGTH	KIB(64)
#define ROUNDS	20

int main(void)
{
	unsigned char *content = allocate(LENGTH), *map;
	int direct, plain;
	unsigned int i;

	hits();
	test_fs();
	file_pattern("data", LENGTH, 1);
	plain = file_open("data", O_RDWR);
	direct = file_open("data", O_RDONLY | O_DIRECT);
	map = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, plain, 0);
	check(map != MAP_FAILED);

	for (i = 0; i < ROUNDS; i++) {
		uint64_t at = i * 4096 % LENGTH;
		enum way way = i % WAYS;
		unsigned char *memory = allocate(4096);
		struct hits before;

		trying("round %u, %s", i, way_names[way]);
		pattern_fill(content, 0, 4096, 100 + i);
		if (i % 2)
			memcpy(map + at, content, 4096);
		else
			fd_write(plain, content, 4096, at);
		before = hits();
		expect(read_by(way, direct, memory, 4096, at), 4096);
		bytes_check(memory, content, 4096);
		/* io_uring tries twice, the first time without blocking. */
		expect_mostly_short(hits_since(before));
		expect(hits_since(before).ordinary, 0);
		free(memory);
	}
	munmap(map, LENGTH);
	close(direct);
	close(plain);
	return 0;
}
