// SPDX-License-Identifier: GPL-2.0-only
/*
 * No allocation of a transfer may invoke the OOM killer: each is allowed to fail instead. The kernel's trace
 * shows how memory was asked for.
 */
#include "lib.h"

#define TRACING	"/sys/kernel/tracing"
#define EVENT	TRACING "/events/kmem/kmalloc/enable"
#define LENGTH	MIB(4)

/* Counts the transfer's allocations in the trace. Each must be allowed to fail. */
static int transfers(void)
{
	FILE *trace = fopen(TRACING "/trace", "r");
	char line[512];
	int count = 0;

	check(trace);
	while (fgets(line, sizeof(line), trace)) {
		if (!strstr(line, "call_site=dbx_transfer"))
			continue;
		count++;
		if (!strstr(line, "__GFP_RETRY_MAYFAIL") && !strstr(line, "__GFP_NORETRY"))
			fail("may invoke the OOM killer: %s", line);
		if (!strstr(line, "ACCOUNT"))
			fail("is not charged to the memory cgroup: %s", line);
	}
	fclose(trace);
	return count;
}

int main(void)
{
	struct dmabuf_dio_rw rw = { .length = LENGTH, .chunk = LARGEST_PAGE, .depth = 64 };
	struct buffer buf;
	char pid[16];
	int dev;

	file_pattern("data", LENGTH, 1);
	buffer_create(&buf, BUFFER_LOAD, LENGTH);
	dev = dio_context(&buf);
	rw.file_fd = file_open("data", O_RDWR);
	if (access(TRACING "/trace", F_OK))
		run_command("mount -t tracefs tracefs " TRACING " 2>/dev/null");
	if (access(EVENT, W_OK))
		skip("this kernel cannot trace allocations");
	snprintf(pid, sizeof(pid), "%d", getpid());
	proc_write(TRACING "/set_event_pid", pid);
	proc_write(TRACING "/trace", "\n");
	proc_write(EVENT, "1");
	expect(dio_read(dev, &rw), 0);
	expect(dio_write(dev, &rw), 0);
	close(dio_load_fd(dev, rw.file_fd, 0, LENGTH));
	proc_write(EVENT, "0");
	expect(transfers(), 3);
	proc_write(TRACING "/set_event_pid", "\n");
	return 0;
}
