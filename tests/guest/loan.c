// SPDX-License-Identifier: GPL-2.0-only
/*
 * ATTACH borrows only from known exporters, whose pages do not move. Buffers of other
 * exporters are refused without being mapped. Buffers of exporters named by the administrator
 * are mapped, and refused if their pages cannot be lent.
 */
#include <endian.h>

#include "odd.h"

#define LENGTH	MIB(3)

static const struct {
	const char *name;
	unsigned int oddities;
} kinds[] = {
	{ "ordinary pages", 0 },
	{ "uncounted pages", ODD_UNCOUNTED },
	{ "reserved pages", ODD_RESERVED },
	{ "uncounted, reserved pages", ODD_UNCOUNTED | ODD_RESERVED },
	{ "no mapping", ODD_NO_VMAP },
	{ "write-combined mapping", ODD_WRITE_COMBINED },
};

/*
 * Memory without a linear mapping: memmap=4M$ADDRESS reserves some on x86, "no-map" in the device
 * tree (vm/run --reserved-memory) elsewhere.
 */
static bool unmapped_memory(void)
{
	static const char reg[] =
		"/sys/firmware/devicetree/base/reserved-memory/unmapped@60000000/reg";
	char line[4096], *at;
	uint64_t address;
	int fd;

	fd = open(reg, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		check(read(fd, &address, sizeof(address)) == sizeof(address));
		close(fd);
		snprintf(line, sizeof(line), "%llu", (unsigned long long)be64toh(address));
		proc_write("/sys/module/odd_exporter/parameters/unmapped", line);
		return true;
	}
	check(proc_read("/proc/cmdline", line, sizeof(line)));
	at = strstr(line, "memmap=4M$");
	if (!at)
		return false;
	at += strlen("memmap=4M$");
	at[strcspn(at, " \n")] = '\0';
	proc_write("/sys/module/odd_exporter/parameters/unmapped", at);
	return true;
}

static int odd_pattern(unsigned int oddities, uint64_t seed)
{
	int fd = odd_buffer(LENGTH, oddities);
	unsigned char *map = map_dmabuf(fd, LENGTH, 3);

	pattern_fill(map, 0, LENGTH, seed);
	unmap(map, LENGTH);
	return fd;
}

static void odd_check(int fd, uint64_t position, size_t length, uint64_t seed)
{
	unsigned char *map = map_dmabuf(fd, LENGTH, 1);

	pattern_check(map + position, position, length, seed);
	unmap(map, LENGTH);
}

/* Unknown exporter: nothing is mapped, so later actions of the exporter do no harm. */
static void unknown(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		int fd = odd_pattern(kinds[i].oddities, 1);

		trying("%s", kinds[i].name);
		expect_refused(fd, EXPORTER);
		expect(odd_vmaps(fd), 0);
		odd_move(fd);
		expect_refused(fd, EXPORTER);
		odd_check(fd, 0, LENGTH, 1);
		odd_free(fd);
		expect_refused(fd, EXPORTER);
		expect(odd_vmaps(fd), 0);
		close(fd);
	}
}

/*
 * The CPU copies only through the exporter's mapping, which has the right caching, unless it is
 * known to be that of the linear mapping: then none is kept.
 */
static void expect_touched(int fd, int least, int most)
{
	int touched = odd_touched(fd);

	if (touched >= 0)
		check(touched >= least && touched <= most);
}

static void both_ways(int fd, bool kept, bool direct)
{
	struct dmabuf_dio_rw rw = { .length = LENGTH, .chunk = KIB(256) };
	int data, dev = dio_open(), most = kept ? LENGTH / PAGE : 0, all = direct ? 0 : most;

	file_pattern("data", LENGTH, 2);
	rw.file_fd = data = file_open("data", O_RDWR | direct_flag(direct));
	expect(dio_attach(dev, fd), 0);
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, LENGTH);
	odd_check(fd, 0, LENGTH, 2);
	expect_touched(fd, all, all);

	/* The CPU copies the partial blocks at both ends. */
	file_pattern("data", LENGTH, 3);
	rw.file_offset = rw.buf_offset = PAGE + 12;
	rw.length = MIB(1) + 1001;
	expect(dio_read(dev, &rw), 0);
	expect(rw.done, MIB(1) + 1001);
	expect_touched(fd, kept ? 2 : 0, most);
	odd_check(fd, 0, PAGE + 12, 2);
	odd_check(fd, PAGE + 12, rw.done, 3);
	odd_check(fd, PAGE + 12 + rw.done, LENGTH - PAGE - 12 - rw.done, 2);

	rw = (struct dmabuf_dio_rw){ .file_fd = data, .length = LENGTH };
	expect(dio_write(dev, &rw), 0);
	expect(rw.done, LENGTH);
	check(!fsync(data));
	close(data);
	data = file_open("data", O_RDONLY);
	fd_pattern_check(data, 0, PAGE + 12, 2);
	fd_pattern_check(data, PAGE + 12, MIB(1) + 1001, 3);
	fd_pattern_check(data, PAGE + MIB(1) + 1013, LENGTH - PAGE - MIB(1) - 1013, 2);
	close(data);
	close(dev);
}

/* This program's file is on 9p, which takes and drops references on the pages. */
static void referenced(int fd)
{
	int file = open("/proc/self/exe", O_RDONLY | O_DIRECT | O_CLOEXEC), dev = dio_open();
	struct dmabuf_dio_rw rw = { .file_fd = file, .length = KIB(64) };
	unsigned char *map, want[KIB(64)];

	if (file < 0)
		return;
	expect(dio_attach(dev, fd), 0);
	expect(dio_read(dev, &rw), 0);
	close(file);
	file = file_open("/proc/self/exe", O_RDONLY);
	check(rw.done);
	fd_read(file, want, rw.done, 0);
	map = map_dmabuf(fd, LENGTH, 1);
	bytes_check(map, want, rw.done);
	unmap(map, LENGTH);
	close(file);
	close(dev);
}

/* Each page has a struct page, but no linear mapping. */
static void unmapped(void)
{
	int fd;

	if (!unmapped_memory())
		return;
	trying("pages without a linear mapping, exporter named");
	fd = odd_pattern(ODD_UNMAPPED, 1);
	expect_refused(fd, PAGES);
	odd_check(fd, 0, LENGTH, 1);
	close(fd);
}

/* A region of the device tree or cma=, if the kernel has one that modules can allocate from */
static void contiguous(void)
{
	char text[8192], *at;
	int fd;

	check(proc_read("/proc/meminfo", text, sizeof(text)));
	at = strstr(text, "CmaTotal:");
	if (!at || strtoull(at + strlen("CmaTotal:"), NULL, 10) * 1024 < LENGTH)
		return;
	trying("pages of a CMA region");
	fd = odd_try(LENGTH, ODD_CMA);
	if (fd == -EOPNOTSUPP)
		return;
	check(fd >= 0);
	both_ways(fd, false, false);
	both_ways(fd, false, direct_possible());
	close(fd);
}

static bool attachable(int fd)
{
	int dev = dio_open(), ret = dio_attach(dev, fd);

	close(dev);
	return !ret;
}

static void named(void)
{
	unsigned int i;
	int fd;

	trying("a memory error in the tail of a folio, exporter named");
	fd = odd_try(ODD_UNIT * PAGE, ODD_POISONED);
	if (fd != -EOPNOTSUPP) {
		check(fd >= 0);
		expect_refused(fd, POISONED);
		close(fd);
	}
	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		unsigned int oddities = kinds[i].oddities;
		int fd = odd_pattern(oddities, 1);

		trying("%s, exporter named", kinds[i].name);
		if (oddities & (ODD_UNCOUNTED | ODD_RESERVED)) {
			expect_refused(fd, PAGES);
		} else if (oddities & ODD_NO_VMAP) {
			expect_refused(fd, MAPPING);
			expect(odd_vmaps(fd), 0);
		} else if (oddities & ODD_WRITE_COMBINED && !attachable(fd)) {
			expect_refused(fd, MAPPING);
		} else {
			both_ways(fd, true, false);
			both_ways(fd, true, direct_possible());
			referenced(fd);
		}
		close(fd);
	}
	unmapped();
	contiguous();
}

static void one_among_others(void)
{
	int fd = odd_buffer(LENGTH, 0), dev = dio_open();

	expect(dio_attach(dev, fd), 0);
	check(odd_vmaps(fd));
	close(dev);
	close(fd);
}

static void still_unknown(void)
{
	struct buffer buf;

	unknown();
	/* Names in the parameter do not affect exporters that need none. */
	buffer_create(&buf, !guest_without_heaps() ? BUFFER_HEAP :
			    !guest_without_udmabuf() ? BUFFER_UDMABUF : BUFFER_LOAD, LENGTH);
	close(dio_context(&buf));
	buffer_destroy(&buf);
}

int main(void)
{
	unknown();
	with_exporters(ODD_NAME, named);
	with_exporters("one," ODD_NAME ",other", one_among_others);
	with_exporters("", still_unknown);
	with_exporters("odd," ODD_NAME "2,odd_exporte,dd_exporter", still_unknown);
	unknown();
	return 0;
}
