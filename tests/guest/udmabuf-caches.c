// SPDX-License-Identifier: GPL-2.0-only
/*
 * udmabuf invalidates the caches of all of its pages when CPU access begins for
 * the first time, on processors where DMA is not coherent by default. Data that
 * READ has stored through the caches has been cleaned by then. QEMU has no
 * caches, so this test watches the cache operations of Linux.
 */
#include <linux/dma-buf.h>

#include "lib.h"

#define LENGTH	MIB(1)
#define TRACING	"/sys/kernel/tracing/"

/* Bytes cleaned and invalidated by this process since the last look */
struct caches {
	uint64_t cleaned, invalidated;
};

/* Tracing clears these files when they are truncated, not when nothing is written to them. */
static void clear(const char *path)
{
	close(file_open(path, O_WRONLY | O_TRUNC));
}

/* In x2: enum dma_data_direction, where 1, to the device, invalidates nothing */
static void probe(void)
{
	char filter[64];

	if (run_command("grep -qw arch_sync_dma_for_cpu /proc/kallsyms"))
		skip("this processor's caches are coherent");
	if (access(TRACING "kprobe_events", W_OK))
		skip("no kprobe events");
	/* A failed run may have left these. Enabled events cannot be cleared. */
	proc_try_write(TRACING "events/dio/enable", "0");
	clear(TRACING "kprobe_events");
	proc_write(TRACING "kprobe_events",
		   "p:dio/clean arch_sync_dma_for_device size=%x1:u64 dir=%x2:u32\n"
		   "p:dio/invalidate arch_sync_dma_for_cpu size=%x1:u64 dir=%x2:u32\n");
	snprintf(filter, sizeof(filter), "common_pid == %d", getpid());
	proc_write(TRACING "events/dio/filter", filter);
	proc_write(TRACING "events/dio/enable", "1");
}

static struct caches look(void)
{
	struct caches caches = {};
	FILE *trace = fopen(TRACING "trace", "r");
	char line[256];

	check(trace);
	while (fgets(line, sizeof(line), trace)) {
		unsigned long long size;
		char *at = strstr(line, "size=");
		unsigned int dir;

		if (!at || sscanf(at, "size=%llu dir=%u", &size, &dir) != 2)
			continue;
		if (strstr(line, " clean:"))
			caches.cleaned += size;
		else if (dir != 1)
			caches.invalidated += size;
	}
	fclose(trace);
	clear(TRACING "trace");
	return caches;
}

int main(void)
{
	struct dmabuf_dio_rw rw = { .length = LENGTH };
	int memfd, fd, dev;
	struct caches was;

	probe();
	memfd = memfd_for_udmabuf(LENGTH, 0);
	check(memfd >= 0);
	fd = udmabuf_over(memfd, 0, LENGTH);
	check(fd >= 0);
	file_pattern("data", LENGTH, 1);
	rw.file_fd = file_open("data", O_RDONLY);
	/* Into the page cache: the disk's DMA would count, if its interrupt came during READ. */
	fd_pattern_check(rw.file_fd, 0, LENGTH, 1);
	dev = dio_open();
	expect(dio_attach(dev, fd), 0);

	look();
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, LENGTH);
	was = look();
	printf("READ: %llu bytes cleaned, %llu invalidated\n", (unsigned long long)was.cleaned,
	       (unsigned long long)was.invalidated);
	expect(was.invalidated, 0);
	check(!buffer_sync(fd, DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ));
	/* With kernel/series nothing is invalidated for a device that is not attached. */
	if (look().invalidated)
		expect(was.cleaned, LENGTH);
	proc_write(TRACING "events/dio/enable", "0");
	clear(TRACING "kprobe_events");
	return 0;
}
