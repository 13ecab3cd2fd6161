// SPDX-License-Identifier: GPL-2.0-only
/*
 * The raw disk, an NVMe device, is unplugged and comes back.
 */
#include "plug.h"

const char *plug_pci(void)
{
	static char address[32];
	char link[256], path[4096], *at;

	if (address[0])
		return address;
	snprintf(link, sizeof(link), "/sys/block/%s/device/device",
		 strrchr(raw_disk(), '/') + 1);
	if (!realpath(link, path))
		skip("%s is no NVMe disk", raw_disk());
	at = strrchr(path, '/');
	check(at && strlen(at + 1) < sizeof(address));
	strcpy(address, at + 1);
	return address;
}

void plug_remove(void)
{
	char file[128];

	snprintf(file, sizeof(file), "/sys/bus/pci/devices/%s/remove", plug_pci());
	proc_write(file, "1");
}

void plug_wait(const char *path)
{
	int i, fd = -1;

	for (i = 0; i < 400 && fd < 0; i++) {
		fd = open(path, O_RDWR);
		if (fd < 0)
			sleep_ms(50);
	}
	check(fd >= 0);
	close(fd);
}

void plug_rescan(const char *path)
{
	proc_write("/sys/bus/pci/rescan", "1");
	plug_wait(path);
}
