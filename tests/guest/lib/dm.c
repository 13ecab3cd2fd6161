// SPDX-License-Identifier: GPL-2.0-only
/*
 * A device whose sectors fail or are slow on demand. The calls of the device mapper are used as they are: to start
 * dmsetup takes an emulated processor tenths of a second.
 */
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <linux/dm-ioctl.h>

#include "dm.h"

#define CONTROL	"/dev/mapper/control"
#define NAME	"dio-test"

/* A call's argument, with room for a table or the list of targets */
struct argument {
	struct dm_ioctl head;
	char data[KIB(8)];
};

static unsigned long long sectors;

/* Opened when it is needed first; -1 without the device mapper */
static int control(void)
{
	static int fd = -1;

	if (fd >= 0)
		return fd;
	fd = open(CONTROL, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		run_command("modprobe -q dm_mod 2>/dev/null");
		fd = open(CONTROL, O_RDWR | O_CLOEXEC);
	}
	return fd;
}

/* Returns 0 or -errno. */
static int call(unsigned long request, struct argument *argument, const char *name, unsigned int flags)
{
	struct dm_ioctl *head = &argument->head;

	head->version[0] = DM_VERSION_MAJOR;
	head->data_size = sizeof(*argument);
	head->data_start = offsetof(struct argument, data);
	head->flags = flags;
	strcpy(head->name, name);
	return ioctl(control(), request, argument) ? -errno : 0;
}

static int simple_call(unsigned long request, unsigned int flags)
{
	struct argument argument = {};

	return call(request, &argument, NAME, flags);
}

/* Each line of @table: the first sector, their number, a target, its arguments */
static void load(const char *table)
{
	struct argument argument = {};
	char *at = argument.data;

	while (*table) {
		struct dm_target_spec *spec = (void *)at;
		unsigned long long start, count;
		int length = strcspn(table, "\n"), used;

		check(sscanf(table, "%llu %llu %15s%n", &start, &count, spec->target_type, &used) == 3);
		spec->sector_start = start;
		spec->length = count;
		at += sizeof(*spec);
		/* The rest of the argument is zero. */
		memcpy(at, table + used, length - used);
		at += (length - used + 8) & -8UL;
		spec->next = at - (char *)spec;
		check(at < argument.data + sizeof(argument.data) - sizeof(*spec));
		argument.head.target_count++;
		table += length + 1;
	}
	expect(call(DM_TABLE_LOAD, &argument, NAME, 0), 0);
}

void dm_stop(void)
{
	expect(simple_call(DM_DEV_SUSPEND, DM_SUSPEND_FLAG | DM_SKIP_LOCKFS_FLAG | DM_NOFLUSH_FLAG), 0);
}

void dm_go_on(void)
{
	expect(simple_call(DM_DEV_SUSPEND, DM_SKIP_LOCKFS_FLAG), 0);
}

static void reload(const char *table)
{
	load(table);
	/* Without flushing: requests in flight may fail, too. */
	dm_go_on();
}

void dm_create(uint64_t bytes)
{
	struct argument argument = {};
	char table[128];
	unsigned int number;

	if (control() < 0)
		skip("no device mapper");
	simple_call(DM_DEV_REMOVE, 0);
	expect(call(DM_DEV_CREATE, &argument, NAME, 0), 0);
	/* As the kernel packs a number of a device */
	number = argument.head.dev;
	unlink(DM_PATH);
	check(!mknod(DM_PATH, S_IFBLK | 0600,
		     makedev((number & 0xfff00) >> 8, (number & 0xff) | (number >> 12 & 0xfff00))));
	sectors = bytes / 512;
	snprintf(table, sizeof(table), "0 %llu linear %s 0\n", sectors, raw_disk());
	reload(table);
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
	int i, ret;

	for (i = 0; i < 50; i++) {
		ret = simple_call(DM_DEV_REMOVE, 0);
		if (!ret) {
			unlink(DM_PATH);
			return;
		}
		sleep_ms(100);
	}
	fail("the mapped device cannot be removed: %s", strerror(-ret));
}

static bool has_delay(void)
{
	struct argument argument = {};
	struct dm_target_versions *target = (void *)argument.data;

	if (call(DM_LIST_VERSIONS, &argument, "", 0))
		return false;
	while (strcmp(target->name, "delay")) {
		if (!target->next)
			return false;
		target = (void *)((char *)target + target->next);
	}
	return true;
}

bool dm_delays(void)
{
	if (control() < 0)
		return false;
	if (!has_delay())
		run_command("modprobe -q dm_delay 2>/dev/null");
	return has_delay();
}
