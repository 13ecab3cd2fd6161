// SPDX-License-Identifier: GPL-2.0-only
/* A failing LOAD returns no fd and frees its memory. */
#include <sys/resource.h>

#include "lib.h"

#define LENGTH	MIB(64)

static int dev, file, small;

/* Enough repetitions to detect a leak */
static void refused(const char *what, struct dmabuf_dio_load wanted, int error,
		    uint64_t done)
{
	unsigned int fds = count_fds(), i;
	uint64_t before = memory_available();

	trying("%s", what);
	for (i = 0; i < 8; i++) {
		struct dmabuf_dio_load load = wanted;

		expect(dio_load(dev, &load), error);
		expect(load.dmabuf_fd, wanted.dmabuf_fd);
		if (done != UINT64_MAX)
			expect(load.done, done);
	}
	expect(count_fds(), fds);
	expect_memory_back(before, MIB(48));
}

static void memory_still_there(void)
{
	struct dmabuf_dio_load load = {
		.file_fd = file, .fd_flags = O_RDWR, .length = LENGTH,
	};
	uint64_t before = memory_available();
	unsigned int i;

	for (i = 0; i < 8; i++) {
		unsigned char *map;

		trying("LOAD after the refusals, round %u", i);
		expect(dio_load(dev, &load), 0);
		map = map_dmabuf(load.dmabuf_fd, LENGTH, 1);
		pattern_check(map, 0, LENGTH, 1);
		unmap(map, LENGTH);
		close(load.dmabuf_fd);
	}
	expect_memory_back(before, MIB(48));
}

int main(void)
{
	int direct = direct_flag(direct_possible());
	struct dmabuf_dio_load load = { .fd_flags = O_RDWR, .dmabuf_fd = -1 };
	struct rlimit limit;
	uint64_t total = memory_total();
	int huge;

	dev = dio_open();
	file_pattern("data", LENGTH, 1);
	file_pattern("small", 5000, 1);
	file_sparse("huge", total + GIB(1));
	file = file_open("data", O_RDONLY | direct);
	small = file_open("small", O_RDONLY | direct);
	huge = file_open("huge", O_RDONLY | direct);

	load.file_fd = file;
	load.length = 0;
	refused("length 0", load, -EINVAL, 0);
	load.length = LENGTH + 1;
	refused("one byte too many", load, -ENODATA, LENGTH);
	load.length = LENGTH;
	load.file_offset = PAGE;
	refused("one page too many", load, -ENODATA, LENGTH - PAGE);
	load.file_offset = LENGTH;
	refused("at the end", load, -ENODATA, 0);
	load.file_offset = LENGTH * 100;
	refused("beyond the end", load, -ENODATA, 0);
	load.file_offset = 0;
	load.file_fd = small;
	refused("short file", load, -ENODATA, 5000);

	/* Larger than memory: an error, and no process is killed. */
	load.file_fd = huge;
	load.length = total + GIB(1);
	refused("more than there is", load, -ENOMEM, 0);
	load.length = GIB(1) << 20;
	refused("much more than there is", load, -ENOMEM, 0);
	load.length = INT64_MAX - 2 * PAGE;
	refused("nearly everything", load, -ENOMEM, 0);
	load.length = INT64_MAX;
	refused("more than a file can have", load, -EOVERFLOW, 0);
	load.length = PAGE;
	load.file_offset = UINT64_MAX;
	refused("wrapping range", load, -EOVERFLOW, 0);
	load.file_offset = 0;
	memory_still_there();

	load.length = PAGE;
	load.flags = 1;
	refused("flags", load, -EINVAL, 0);
	load.flags = 0;
	load.reserved = 1;
	refused("reserved", load, -EINVAL, 0);
	load.reserved = 0;

	/* The process has no free fd. */
	check(!getrlimit(RLIMIT_NOFILE, &limit));
	trying("no fd left");
	load.file_fd = file;
	load.length = LENGTH;
	limit.rlim_cur = huge + 1;
	check(!setrlimit(RLIMIT_NOFILE, &limit));
	expect(dio_load(dev, &load), -EMFILE);
	limit.rlim_cur = 1024;
	check(!setrlimit(RLIMIT_NOFILE, &limit));

	memory_still_there();
	return 0;
}
