// SPDX-License-Identifier: GPL-2.0-only
/*
 * A device whose sectors fail or are slow on demand
 */
#include <stdarg.h>

#include "dm.h"

static unsigned long long sectors;

static void load(const char *command, const char *table)
{
	expect(run_command("dmsetup --noudevsync %s dio-test <<'END'\n%sEND\n", command, table), 0);
}

void dm_stop(void)
{
	expect(run_command("dmsetup --noudevsync --nolockfs --noflush suspend dio-test"), 0);
}

void dm_go_on(void)
{
	expect(run_command("dmsetup --noudevsync --nolockfs resume dio-test"), 0);
}

static void reload(const char *table)
{
	load("reload", table);
	/* Without flushing: requests in flight may fail, too. */
	dm_go_on();
}

void dm_create(uint64_t bytes)
{
	const char *disk = raw_disk();
	char table[128];

	run_command("modprobe -q dm_mod 2>/dev/null");
	if (run_command("dmsetup version >/dev/null 2>&1"))
		skip("no device mapper");
	run_command("dmsetup --noudevsync remove dio-test 2>/dev/null");
	sectors = bytes / 512;
	snprintf(table, sizeof(table), "0 %llu linear %s 0\n", sectors, disk);
	load("create", table);
	expect(run_command("dmsetup mknodes dio-test >/dev/null"), 0);
	check(!access(DM_PATH, F_OK));
}

void dm_break(uint64_t start, uint64_t length)
{
	unsigned long long from = start / 512, count = length / 512, end = from + count;
	const char *disk = raw_disk();
	char table[512];
	int n = 0;

	if (from)
		n += snprintf(table + n, sizeof(table) - n, "0 %llu linear %s 0\n", from, disk);
	if (count)
		n += snprintf(table + n, sizeof(table) - n, "%llu %llu error\n", from, count);
	if (end < sectors)
		snprintf(table + n, sizeof(table) - n, "%llu %llu linear %s %llu\n", end,
			 sectors - end, disk, end);
	reload(table);
}

void dm_reload(const char *format, ...)
{
	char table[256];
	va_list args;
	int n = snprintf(table, sizeof(table), "0 %llu ", sectors);

	va_start(args, format);
	vsnprintf(table + n, sizeof(table) - n, format, args);
	va_end(args);
	strcat(table, "\n");
	reload(table);
}

void dm_delay(const struct dm_part *parts, unsigned int nr)
{
	unsigned int i;
	char table[512];
	int n = 0;

	for (i = 0; i < nr; i++) {
		unsigned long long from = parts[i].from / 512;
		unsigned long long end = i + 1 < nr ? parts[i + 1].from / 512 : sectors;

		n += snprintf(table + n, sizeof(table) - n, "%llu %llu delay %s %llu %u\n", from,
			      end - from, raw_disk(), from, parts[i].ms);
		check(n < (int)sizeof(table));
	}
	reload(table);
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

bool dm_delays(void)
{
	run_command("modprobe -q dm_mod 2>/dev/null; modprobe -q dm_delay 2>/dev/null");
	return !run_command("dmsetup targets 2>/dev/null | grep -q '^delay '");
}
