// SPDX-License-Identifier: GPL-2.0-only
/*
 * The pages of a direct read are unpinned when it completes, on each path, so that the caller can
 * seal, move or free them. Needs kernel/sim/iomap_caller.
 */
#include <sys/ioctl.h>

#include "dm.h"
#include "iomap_caller/iomap_caller.h"
#include "tight.h"
#include "small.h"

#define LENGTH	KIB(256)

static int caller;

static void read_at(int fd, size_t length, uint64_t position, size_t shift, bool slow)
{
	unsigned char *memory = allocate(LENGTH + PAGE);
	struct iomap_async call = {
		.file_fd = fd, .memory = (uintptr_t)memory + shift, .length = length,
		.position = position,
	};

	trying("%zu bytes at %llu to %#zx%s", length, (unsigned long long)position, shift,
	       slow ? ", slow disk" : "");
	memset(memory, 0x5a, LENGTH + PAGE);
	check(!ioctl(caller, IOMAP_ASYNC, &call));
	/* Several pieces may all be done by the time that the last one is submitted. */
	if (slow)
		expect(call.queued, 1);
	expect(call.result, (ssize_t)length);
	/* Otherwise the test shows nothing. A fast disk may be done by then. */
	if (slow)
		expect(call.pinned_before, 1);
	expect(call.pinned, 0);
	pattern_check(memory + shift, position, length, 1);
	free(memory);
}

static void read_file(const char *path, bool slow)
{
	static const size_t lengths[] = { 512, BLOCK, KIB(16), KIB(64), KIB(128) };
	int fd = file_open(path, O_RDONLY | O_DIRECT);
	size_t i;

	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		read_at(fd, lengths[i], 0, 0, slow);
		/* Again, as mappings are remembered now */
		read_at(fd, lengths[i], LENGTH - lengths[i], 512, slow);
	}
	close(fd);
}

int main(void)
{
	test_fs();
	caller = open("/dev/iomap_caller", O_RDWR | O_CLOEXEC);
	if (caller < 0)
		skip("no /dev/iomap_caller: %s", strerror(errno));
	file_pattern("data", LENGTH, 1);
	read_file("data", false);

	disk_begin();
	if (!dm_delays())
		skip("no device mapper target that delays");
	file_pattern("mnt/data", LENGTH, 1);
	fs_sync();
	disk_slow(50);
	read_file("mnt/data", true);
	disk_slow(0);
	disk_end();
	return 0;
}
