// SPDX-License-Identifier: GPL-2.0-only
/*
 * On a disk that ignores RWF_NOWAIT, such as the device mapper's delay and crypt targets, a direct read
 * of one block with that flag behaves as one of two blocks does. timeout=60
 */
#include <sys/uio.h>

#include "dm.h"
#include "tight.h"
#include "small.h"

#define LENGTH	KIB(64)

int main(void)
{
	unsigned char *data = allocate(LENGTH);
	unsigned int length;
	int direct;

	disk_begin();
	if (!dm_delays())
		skip("no device mapper target that delays");
	file_pattern("mnt/file", LENGTH, 1);
	fs_sync();
	direct = file_open("mnt/file", O_RDONLY | O_DIRECT);
	/* The target may wait; how long does not matter. */
	disk_slow(1);
	for (length = 4096; length <= 8192; length *= 2) {
		struct iovec vector = { data, length };
		ssize_t ret;

		trying("%u bytes", length);
		/* The file's mapping may have to be read first. */
		check(pread(direct, data, length, 0) == length);
		memset(data, 0, length);
		ret = preadv2(direct, &vector, 1, 0, RWF_NOWAIT);
		if (ret < 0)
			fail("%s", strerror(errno));
		expect(ret, length);
		pattern_check(data, 0, length, 1);
	}
	disk_slow(0);
	close(direct);
	disk_end();
	free(data);
	return 0;
}
