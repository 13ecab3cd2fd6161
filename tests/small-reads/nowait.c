// SPDX-License-Identifier: GPL-2.0-only
/* RWF_NOWAIT reads data that is on disk, and returns EAGAIN for data that must be written first. */
#include <sys/uio.h>

#include "small.h"

#define LENGTH	KIB(64)

static ssize_t read_nowait(int fd, void *memory, uint64_t position)
{
	struct iovec vector = { memory, 4096 };
	ssize_t ret = preadv2(fd, &vector, 1, position, RWF_NOWAIT);

	return ret < 0 ? -errno : ret;
}

int main(void)
{
	unsigned char *memory = allocate(4096);
	int direct, plain, on;

	hits();
	test_fs();
	file_pattern("data", LENGTH, 1);
	plain = file_open("data", O_RDWR);
	direct = file_open("data", O_RDONLY | O_DIRECT);
	for (on = 0; on < 2; on++) {
		struct hits before = hits();

		trying("clean, switch %u", on);
		small_switch(on);
		expect(read_nowait(direct, memory, 8192), 4096);
		pattern_check(memory, 8192, 4096, 1);
		expect_path(hits_since(before), on ? SHORT : LONG, 1);

		trying("dirty, switch %u", on);
		fd_pattern_write(plain, 8192, 4096, 2);
		before = hits();
		memset(memory, 0, 4096);
		expect(read_nowait(direct, memory, 8192), -EAGAIN);
		zero_check(memory, 4096);
		expect_path(hits_since(before), on ? REFUSED : LONG, 1);

		trying("written back, switch %u", on);
		check(!fdatasync(plain));
		before = hits();
		expect(read_nowait(direct, memory, 8192), 4096);
		pattern_check(memory, 8192, 4096, 2);
		expect_path(hits_since(before), on ? SHORT : LONG, 1);
		fd_pattern_write(plain, 8192, 4096, 1);
		file_settle("data");
	}
	close(direct);
	close(plain);
	return 0;
}
