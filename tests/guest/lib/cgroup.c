// SPDX-License-Identifier: GPL-2.0-only
/*
 * A control group of its own for a process
 */
#include <sys/mount.h>
#include <sys/stat.h>

#include "cgroup.h"

#define ROOT	"cgroup"
#define GROUP	ROOT "/dio-test"

void cgroup_create(const char *controller)
{
	char text[256];

	mkdir(ROOT, 0700);
	if (mount("none", ROOT, "cgroup2", 0, NULL))
		skip("no control groups: %s", strerror(errno));
	if (controller) {
		check(proc_read(ROOT "/cgroup.controllers", text, sizeof(text)));
		if (!strstr(text, controller)) {
			check(!umount(ROOT));
			skip("no control groups for %s", controller);
		}
		snprintf(text, sizeof(text), "+%s", controller);
		proc_write(ROOT "/cgroup.subtree_control", text);
	}
	rmdir(GROUP);
	check(!mkdir(GROUP, 0700));
}

void cgroup_set(const char *file, const char *value)
{
	char path[256];

	snprintf(path, sizeof(path), GROUP "/%s", file);
	proc_write(path, value);
}

void cgroup_enter(pid_t pid)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", pid);
	cgroup_set("cgroup.procs", text);
}

uint64_t cgroup_get_of(const char *file, const char *key)
{
	char path[256], text[8192], *at;

	snprintf(path, sizeof(path), GROUP "/%s", file);
	check(proc_read(path, text, sizeof(text)));
	at = strstr(text, key);
	check(at);
	return strtoull(at + strlen(key), NULL, 10);
}

uint64_t cgroup_get(const char *file)
{
	return cgroup_get_of(file, "");
}

void cgroup_remove(void)
{
	int i;

	/* An exited process stays in the group for a moment. */
	for (i = 0; i < 50 && rmdir(GROUP); i++)
		sleep_ms(100);
	check(access(GROUP, F_OK));
	check(!umount(ROOT));
}
