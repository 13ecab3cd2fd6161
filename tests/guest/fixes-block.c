// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fixes in kernel/series/block: the alignment of data to its encryption data unit is checked, also
 * if the data is within a page. Skipped on other kernels.
 */
#include "lib.h"

#define READ_AT	"/sys/module/crypt_disk/parameters/read_at"
#define UNIT	512

static int read_at(unsigned int offset)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", offset);
	return proc_try_write(READ_AT, text) ? 0 : -errno;
}

int main(void)
{
	if (!guest_with_fixes())
		skip("this kernel does not have the fixes");
	if (access(READ_AT, W_OK))
		skip("this kernel has no inline encryption");
	trying("a data unit that is aligned");
	expect(read_at(0), 0);
	expect(read_at(UNIT), 0);
	expect(read_at(PAGE - UNIT), 0);
	trying("a data unit that is not aligned");
	expect(read_at(UNIT / 2), -EINVAL);
	expect(read_at(4), -EINVAL);
	expect(read_at(PAGE - UNIT - 4), -EINVAL);
	return 0;
}
