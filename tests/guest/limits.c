// SPDX-License-Identifier: GPL-2.0-only
/*
 * Allocations of LOAD and ATTACH are charged to the caller. A caller at its limit gets
 * ENOMEM and does not invoke the OOM killer. memory=1600
 */
#include "cgroup.h"

#define LARGE		MIB(1200)
#define LENGTH		MIB(32)
#define CONTEXTS	40

/* Memory in as many segments as possible: pages are allocated in a scattered order. */
static int scattered(void)
{
	int memfd = memfd_for_udmabuf(LENGTH, 0), fd;
	uint64_t i, page = 0;

	check(memfd >= 0);
	for (i = 0; i < LENGTH / PAGE; i++) {
		/* 1021 and the number of pages have no common divisor. */
		page = (page + 1021) % (LENGTH / PAGE);
		fd_write(memfd, "", 1, page * PAGE);
	}
	fd = udmabuf_over(memfd, 0, LENGTH);
	check(fd >= 0);
	close(memfd);
	return fd;
}

static void child_loads(const char *limit, uint64_t length)
{
	struct dmabuf_dio_load load = { .fd_flags = O_RDWR, .length = length };
	int dev = dio_open(), file = file_open("data", O_RDONLY);
	unsigned int fds = count_fds();

	trying("LOAD of %llu MiB", (unsigned long long)(length >> 20));
	load.file_fd = file;
	cgroup_set("memory.max", limit);
	cgroup_enter(getpid());
	expect(dio_load(dev, &load), -ENOMEM);
	expect(count_fds(), fds);

	/* The caller still works afterwards. */
	load.length = 5 * PAGE;
	expect(dio_load(dev, &load), 0);
	close(load.dmabuf_fd);
	exit(0);
}

static void no_killing(const char *limit, uint64_t length)
{
	pid_t pid;

	cgroup_create("memory");
	pid = spawn();
	if (!pid)
		child_loads(limit, length);
	reap(pid);
	expect(cgroup_get_of("memory.events", "oom_kill "), 0);
	cgroup_remove();
}

static void child_attaches(int fd)
{
	struct dmabuf_dio_attach attach = { .dmabuf_fd = fd };
	int devs[CONTEXTS], i;
	uint64_t before, after, table;

	cgroup_enter(getpid());
	for (i = 0; i < CONTEXTS; i++)
		devs[i] = dio_open();
	before = cgroup_get("memory.current");
	for (i = 0; i < CONTEXTS; i++) {
		attach.refusal = 0;
		expect(dio_call(devs[i], DMABUF_DIO_IOC_ATTACH, &attach), 0);
	}
	after = cgroup_get("memory.current");

	/* 16 bytes per segment; charges are batched, so allow for a little more or less. */
	table = attach.segments * 16ULL;
	check(table > KIB(32));
	if (after < before + CONTEXTS * table * 3 / 4)
		fail("%u tables of %llu KiB: %llu KiB charged", CONTEXTS,
		     (unsigned long long)(table >> 10), (unsigned long long)(after - before) >> 10);
	exit(0);
}

static void charged(void)
{
	pid_t pid;
	int fd = scattered();

	trying("charging");
	cgroup_create("memory");
	pid = spawn();
	if (!pid)
		child_attaches(fd);
	reap(pid);
	cgroup_remove();
	close(fd);
}

int main(void)
{
	file_sparse("data", LARGE);
	no_killing("4M", LARGE);
	no_killing("40M", MIB(100));
	if (!guest_without_udmabuf())
		charged();
	return 0;
}
