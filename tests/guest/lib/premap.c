// SPDX-License-Identifier: GPL-2.0-only
/*
 * Buffers that stay mapped for a disk behind an IOMMU (kernel/series-mapped)
 */
#include "plug.h"
#include "premap.h"

#define STATE	"/sys/kernel/debug/block/premap"

void need_premap(void)
{
	char path[128], type[32];

	if (access(STATE, F_OK)) {
		if (strstr(guest_kernel(), "-mapped"))
			fail("%s is missing", STATE);
		skip("this kernel does not keep buffers mapped");
	}
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu_group/type", plug_pci());
	if (!proc_read(path, type, sizeof(type)) || strncmp(type, "DMA", 3))
		skip("%s is not behind an IOMMU", raw_disk());
}

struct premap premap_now(void)
{
	struct premap now = {};
	char text[4096], *line;

	check(proc_read(STATE, text, sizeof(text)));
	line = strstr(text, plug_pci());
	if (line)
		check(sscanf(strchr(line, ' '), " tables %u bytes %llu used %llu", &now.tables,
			     &now.bytes, &now.used) == 3);
	return now;
}

void premap_expect_tables(unsigned int tables)
{
	int i;

	for (i = 0; i < 200 && premap_now().tables != tables; i++)
		sleep_ms(50);
	expect(premap_now().tables, tables);
	if (!tables)
		expect(premap_now().bytes, 0);
}

void premap_begin(int file)
{
	struct buffer buf;
	int dev;

	buffer_create(&buf, BUFFER_LOAD, MIB(1));
	dev = dio_context(&buf);
	expect(dio_read(dev, &(struct dmabuf_dio_rw){ .file_fd = file, .length = MIB(1) }), 0);
	premap_expect_tables(1);
	close(dev);
	buffer_destroy(&buf);
	premap_expect_tables(0);
}

uint64_t disk_requests(void)
{
	unsigned long long reads, writes, in_flight;
	char path[128], text[512];

	snprintf(path, sizeof(path), "/sys/block/%s/stat", strrchr(raw_disk(), '/') + 1);
	do {
		check(proc_read(path, text, sizeof(text)));
		check(sscanf(text, "%llu %*u %*u %*u %llu %*u %*u %*u %llu", &reads, &writes,
			     &in_flight) == 3);
	} while (in_flight && !usleep(1000));
	return reads + writes;
}
