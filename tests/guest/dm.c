// SPDX-License-Identifier: GPL-2.0-only
/*
 * A device whose sectors fail on demand
 */
#include "dm.h"

static uint64_t size;

static void dm_table(const char *command, uint64_t start, uint64_t length)
{
	const char *disk = raw_disk();
	uint64_t end = start + length;
	char table[512];
	int n = 0;

	if (start)
		n += snprintf(table + n, sizeof(table) - n, "0 %llu linear %s 0\n",
			      (unsigned long long)start / 512, disk);
	if (length)
		n += snprintf(table + n, sizeof(table) - n, "%llu %llu error\n",
			      (unsigned long long)start / 512,
			      (unsigned long long)length / 512);
	if (end < size)
		n += snprintf(table + n, sizeof(table) - n, "%llu %llu linear %s %llu\n",
			      (unsigned long long)end / 512,
			      (unsigned long long)(size - end) / 512, disk,
			      (unsigned long long)end / 512);
	expect(run_command("dmsetup --noudevsync %s dio-test <<'END'\n%sEND\n",
			   command, table), 0);
}

void dm_create(uint64_t bytes)
{
	size = bytes;
	raw_disk();
	run_command("modprobe -q dm_mod 2>/dev/null");
	if (run_command("dmsetup version >/dev/null 2>&1"))
		skip("no device mapper");
	run_command("dmsetup --noudevsync remove dio-test 2>/dev/null");
	dm_table("create", 0, 0);
	expect(run_command("dmsetup mknodes dio-test >/dev/null"), 0);
	check(!access(DM_PATH, F_OK));
}

void dm_break(uint64_t start, uint64_t length)
{
	dm_table("reload", start, length);
	/* Without flushing: what is in flight may fail, too. */
	expect(run_command("dmsetup --noudevsync --nolockfs resume dio-test"), 0);
}

void dm_remove(void)
{
	int i;

	for (i = 0; i < 50; i++) {
		if (!run_command("dmsetup --noudevsync remove dio-test 2>/dev/null"))
			return;
		sleep_ms(100);
	}
	fail("the mapped device cannot be removed");
}
