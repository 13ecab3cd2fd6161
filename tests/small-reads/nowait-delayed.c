// SPDX-License-Identifier: GPL-2.0-only
/*
 * A disk that cannot be told not to wait, as those of the device mapper that delay or encrypt: a direct
 * read with RWF_NOWAIT of one block is done as one of two blocks is. timeout=60
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
	/* How long does not matter, but that the target may wait. */
	disk_slow(1);
	for (length = 4096; length <= 8192; length *= 2) {
		struct iovec vector = { data, length };
		ssize_t ret;

		trying("%u bytes", length);
		/* What the read needs to know of the file may have to be read first. */
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
