// SPDX-License-Identifier: GPL-2.0-only
/*
 * The importing device's view of a dma-buf, from user space
 *
 *   edu-check cat
 *	lets the device read DMABUF_DIO_LEN bytes of the dma-buf DMABUF_DIO_FD,
 *	and writes them to stdout
 *   edu-check sync KIND DIR [unsynced]
 *	checks that device, CPU and file I/O see each other's data in a buffer,
 *	and that no data next to a transfer, or stored before it, is lost
 *
 * KIND is "own" (allocated by LOAD), "udmabuf", "udmabuf-huge" (over huge
 * pages), or the name of a heap. "unsynced" means that this kernel's udmabuf does
 * not synchronise devices: READ and WRITE must then be refused with this reason
 * while the device has the buffer attached, and change nothing.
 *
 * DMABUF_DIO_IMPORTER names the device (default: /dev/edu_importer). Exits 0,
 * 1, or 77 if there is no device.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/memfd.h>
#include <linux/udmabuf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../module/include/uapi/linux/dmabuf_dio.h"
#include "edu_importer.h"

#define LARGE	(2UL << 20)
/* Bytes compared: the device takes a second for 20 KiB. */
#define LENGTH	(24 * 1024)
/* A range in it that does not end at a block boundary */
#define PART_AT	5632
#define PART	2500

#define check(ok, what)							\
	do {								\
		if (!(ok)) {						\
			fprintf(stderr, "edu-check: %s:%d: %s: %s\n",	\
				__FILE__, __LINE__, what, strerror(errno)); \
			exit(1);					\
		}							\
	} while (0)

struct test {
	const char *kind;
	bool unsynced;
	bool refused;		/* while the device has the buffer attached */
	int context;
	int dmabuf;
	int memfd;		/* of a udmabuf, else -1 */
	int edu;		/* the device */
	int direct;		/* the file, open with O_DIRECT */
	int file;		/* the same, through the page cache */
	size_t length;		/* of the buffer */
	off_t base;		/* offset of the LENGTH bytes that are compared */
	unsigned char *memory;	/* these bytes, mapped through the memfd if there is one */
	unsigned char want[LENGTH];
};

static unsigned char got[LENGTH];

static void fill(unsigned char *data, unsigned int seed)
{
	unsigned int i;

	for (i = 0; i < LENGTH; i++)
		data[i] = (seed = seed * 1664525 + 1013904223) >> 24;
}

static void same(const struct test *t, const char *what)
{
	unsigned int i;

	for (i = 0; i < LENGTH && got[i] == t->want[i];)
		i++;
	if (i == LENGTH)
		return;
	fprintf(stderr, "edu-check: %s: %s: byte %u is %#x, not %#x\n",
		t->kind, what, i, got[i], t->want[i]);
	exit(1);
}

static int open_device(void)
{
	const char *device = getenv("DMABUF_DIO_IMPORTER") ?: "/dev/edu_importer";
	int edu = open(device, O_RDWR);

	if (edu < 0 && errno == ENOENT) {
		printf("skipped: no %s\n", device);
		exit(77);
	}
	check(edu >= 0, device);
	return edu;
}

static unsigned long env_number(const char *name)
{
	const char *value = getenv(name);

	errno = EINVAL;
	check(value, name);
	return strtoul(value, NULL, 10);
}

static int cat(void)
{
	int edu = open_device();
	unsigned long left = env_number("DMABUF_DIO_LEN");
	static char block[1 << 16];

	check(!ioctl(edu, EDU_IMPORT, env_number("DMABUF_DIO_FD")), "import");
	while (left) {
		ssize_t n = read(edu, block, left < sizeof(block) ? left : sizeof(block));

		check(n > 0, "device read");
		check(fwrite(block, 1, n, stdout) == (size_t)n, "stdout");
		left -= n;
	}
	check(!fflush(stdout), "stdout");
	return 0;
}

static void make_udmabuf(struct test *t, unsigned int flags)
{
	struct udmabuf_create create = { .size = t->length };
	int device = open("/dev/udmabuf", O_RDWR);

	check(device >= 0, "/dev/udmabuf");
	t->memfd = memfd_create("edu-check", MFD_ALLOW_SEALING | flags);
	check(t->memfd >= 0, "memfd_create");
	check(!ftruncate(t->memfd, t->length), "ftruncate");
	check(!fcntl(t->memfd, F_ADD_SEALS, F_SEAL_SHRINK), "seal");
	create.memfd = t->memfd;
	t->dmabuf = ioctl(device, UDMABUF_CREATE, &create);
	check(t->dmabuf >= 0, "UDMABUF_CREATE");
	close(device);
}

static void heap(struct test *t)
{
	struct dma_heap_allocation_data heap = { .len = t->length, .fd_flags = O_RDWR };
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "/dev/dma_heap/%s", t->kind);
	fd = open(path, O_RDONLY);
	check(fd >= 0, path);
	check(!ioctl(fd, DMA_HEAP_IOCTL_ALLOC, &heap), "heap");
	close(fd);
	t->dmabuf = heap.fd;
}

/* The size of a huge page, in bytes */
static unsigned long huge_page(void)
{
	FILE *meminfo = fopen("/proc/meminfo", "r");
	unsigned long kib = 0;
	char line[128];

	check(meminfo, "/proc/meminfo");
	while (!kib && fgets(line, sizeof(line), meminfo))
		sscanf(line, "Hugepagesize: %lu kB", &kib);
	fclose(meminfo);
	check(kib, "Hugepagesize");
	return kib << 10;
}

static void allocate(struct test *t)
{
	t->length = 64 * 1024;
	t->base = 20 * 1024;
	if (!strcmp(t->kind, "udmabuf")) {
		make_udmabuf(t, 0);
	} else if (!strcmp(t->kind, "udmabuf-huge")) {
		/* Around the end of the longest piece that bounce buffers hold */
		t->length = huge_page();
		t->base = (1 << 20) - 12 * 1024;
		make_udmabuf(t, MFD_HUGETLB);
	} else if (!strcmp(t->kind, "own")) {
		struct dmabuf_dio_load load = {
			.file_fd = t->direct, .fd_flags = O_RDWR, .length = t->length,
		};

		check(!ioctl(t->context, DMABUF_DIO_IOC_LOAD, &load), "LOAD");
		t->dmabuf = load.dmabuf_fd;
	} else {
		heap(t);
	}
}

static void map(struct test *t)
{
	int fd = t->memfd < 0 ? t->dmabuf : t->memfd;

	t->memory = mmap(NULL, t->length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(t->memory != MAP_FAILED, "mmap");
	t->memory += t->base;
}

/* Begin and end of CPU access, for the mapping and the memfd */
static void bracket(struct test *t, uint64_t flags)
{
	struct dma_buf_sync sync = { .flags = flags };

	check(!ioctl(t->dmabuf, DMA_BUF_IOCTL_SYNC, &sync), "DMA_BUF_IOCTL_SYNC");
}

static void cpu_stores(struct test *t, unsigned int seed)
{
	fill(t->want, seed);
	memcpy(t->memory, t->want, LENGTH);
}

static void cpu_sees(struct test *t, const char *what)
{
	memcpy(got, t->memory, LENGTH);
	same(t, what);
}

static void file_gets(struct test *t, unsigned int seed)
{
	fill(t->want, seed);
	check(pwrite(t->file, t->want, LENGTH, 0) == LENGTH, "file");
}

static void file_has(struct test *t, const char *what)
{
	check(pread(t->file, got, LENGTH, 0) == LENGTH, "file");
	same(t, what);
}

static void device_stores(struct test *t, unsigned int seed)
{
	fill(t->want, seed);
	check(lseek(t->edu, t->base, SEEK_SET) == t->base, "seek");
	check(write(t->edu, t->want, LENGTH) == LENGTH, "device write");
}

static void device_sees(struct test *t, const char *what)
{
	check(lseek(t->edu, t->base, SEEK_SET) == t->base, "seek");
	check(read(t->edu, got, LENGTH) == LENGTH, "device read");
	same(t, what);
}

static void import(struct test *t, unsigned long how)
{
	check(!ioctl(t->edu, how, t->dmabuf), "import");
}

static void drop(struct test *t)
{
	check(!ioctl(t->edu, EDU_DROP, 0), "drop");
	t->refused = false;
}

/* READ or WRITE of a range at the same offset in file and buffer */
static void move(struct test *t, unsigned long call, off_t at, size_t length)
{
	struct dmabuf_dio_rw rw = {
		.file_fd = t->direct, .file_offset = at,
		.buf_offset = t->base + at, .length = length,
	};
	int ret = ioctl(t->context, call, &rw);

	if (!t->refused) {
		check(!ret && rw.done == length, call == DMABUF_DIO_IOC_READ ? "READ" : "WRITE");
		return;
	}
	check(ret && errno == EBUSY && !rw.done, "READ or WRITE is not refused");
#ifdef DMABUF_DIO_REFUSED_UNSYNCED
	check(rw.refusal == DMABUF_DIO_REFUSED_UNSYNCED, "refused for what else");
#endif
}

static void move_all(struct test *t, unsigned long call)
{
	move(t, call, 0, LENGTH);
}

/* READ into part of the data that was stored last; @seed is the file's content. */
static void read_part(struct test *t, unsigned int seed, off_t at, size_t length)
{
	fill(got, seed);
	memcpy(t->want + at, got + at, length);
	move(t, DMABUF_DIO_IOC_READ, at, length);
}

static void without_device(struct test *t)
{
	file_gets(t, 1);
	move_all(t, DMABUF_DIO_IOC_READ);
	cpu_sees(t, "READ without a device");
	cpu_stores(t, 2);
	move_all(t, DMABUF_DIO_IOC_WRITE);
	cpu_sees(t, "WRITE without a device changes the memory");
	file_has(t, "WRITE without a device");
	/* An unsynchronised udmabuf loses this data by itself. */
	if (t->unsynced)
		return;

	bracket(t, DMA_BUF_SYNC_START | DMA_BUF_SYNC_RW);
	bracket(t, DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW);
	file_gets(t, 3);
	move_all(t, DMABUF_DIO_IOC_READ);
	bracket(t, DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ);
	cpu_sees(t, "READ between two accesses of the CPU");
	bracket(t, DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ);
}

static void with_device(struct test *t)
{
	import(t, EDU_IMPORT);

	file_gets(t, 4);
	move_all(t, DMABUF_DIO_IOC_READ);
	device_sees(t, "what READ stored");

	device_stores(t, 5);
	move_all(t, DMABUF_DIO_IOC_WRITE);
	file_has(t, "what the device stored, by WRITE");

	device_stores(t, 6);
	read_part(t, 5, 8192, 4096);
	device_sees(t, "READ of a page beside what the device stored");
	device_stores(t, 7);
	read_part(t, 5, PART_AT, PART);
	device_sees(t, "READ of some bytes beside what the device stored");

	bracket(t, DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ);
	device_stores(t, 8);
	bracket(t, DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ);
	device_sees(t, "what the device stored while the CPU was reading");
	move_all(t, DMABUF_DIO_IOC_WRITE);
	file_has(t, "what the device stored while the CPU was reading, by WRITE");

	bracket(t, DMA_BUF_SYNC_START | DMA_BUF_SYNC_WRITE);
	cpu_stores(t, 9);
	bracket(t, DMA_BUF_SYNC_END | DMA_BUF_SYNC_WRITE);
	move_all(t, DMABUF_DIO_IOC_WRITE);
	cpu_sees(t, "WRITE changes what the CPU stored");
	file_has(t, "what the CPU stored, by WRITE");
	device_sees(t, "what the CPU stored");

	device_stores(t, 10);
	drop(t);
	cpu_sees(t, "what the device stored before it left");
	file_gets(t, 11);
	move_all(t, DMABUF_DIO_IOC_READ);
	cpu_sees(t, "READ after the device has left");
}

/* Refused without effect; allowed once the device is detached */
static void with_unsynced_device(struct test *t)
{
	if (ioctl(t->edu, EDU_IMPORT, t->dmabuf) < 0) {
		/* Contiguous memory in one segment: more than bounce buffers hold */
		check(t->length >= LARGE, "import");
		return;
	}
	t->refused = true;
	cpu_stores(t, 12);
	move_all(t, DMABUF_DIO_IOC_READ);
	cpu_sees(t, "READ that was refused");
	file_gets(t, 13);
	move_all(t, DMABUF_DIO_IOC_WRITE);
	file_has(t, "WRITE that was refused");
	drop(t);

	move_all(t, DMABUF_DIO_IOC_READ);
	cpu_sees(t, "READ after the device has left");
	cpu_stores(t, 14);
	move_all(t, DMABUF_DIO_IOC_WRITE);
	file_has(t, "WRITE after the device has left");
}

/* A device that only reads changes nothing; one that only writes may write a part. */
static void one_way(struct test *t)
{
	import(t, EDU_IMPORT_READER);
	if (t->memfd >= 0) {
		/* Nothing is copied back from it, neither inside nor outside a CPU access. */
		cpu_stores(t, 15);
		move_all(t, DMABUF_DIO_IOC_WRITE);
		cpu_sees(t, "WRITE while a device reads changes the memory");
		file_has(t, "WRITE while a device reads");
	}
	file_gets(t, 16);
	move_all(t, DMABUF_DIO_IOC_READ);
	device_sees(t, "READ while a device reads");
	drop(t);

	import(t, EDU_IMPORT_WRITER);
	device_stores(t, 17);
	read_part(t, 16, 8192, 4096);
	read_part(t, 16, PART_AT, PART);
	move_all(t, DMABUF_DIO_IOC_WRITE);
	file_has(t, "what a device that only writes stored, and READ beside it");
	drop(t);
	cpu_sees(t, "what a device that only writes left");
}

/* Contiguous memory is mapped in segments that the device and its bounce buffers support. */
static void large(struct test *t)
{
	struct dmabuf_dio_load load = {
		.file_fd = t->direct, .fd_flags = O_RDWR, .length = 8 * LARGE,
	};

	check(!ftruncate(t->file, load.length), "ftruncate");
	check(!ioctl(t->context, DMABUF_DIO_IOC_LOAD, &load), "LOAD");
	check(!ioctl(t->edu, EDU_IMPORT, load.dmabuf_fd), "import of 16 MiB");
	drop(t);
	close(load.dmabuf_fd);
}

static int sync_kind(const char *kind, const char *dir, bool unsynced)
{
	struct test t = { .kind = kind, .unsynced = unsynced, .memfd = -1 };
	struct dmabuf_dio_attach attach = {};
	char path[4096];

	t.edu = open_device();
	t.context = open(DMABUF_DIO_DEVICE, O_RDWR);
	check(t.context >= 0, DMABUF_DIO_DEVICE);

	snprintf(path, sizeof(path), "%s/edu-check.data", dir);
	t.file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	check(t.file >= 0 && !ftruncate(t.file, 64 * 1024), path);
	t.direct = open(path, O_RDWR | O_DIRECT);
	check(t.direct >= 0, path);

	allocate(&t);
	map(&t);
	attach.dmabuf_fd = t.dmabuf;
	check(!ioctl(t.context, DMABUF_DIO_IOC_ATTACH, &attach), "ATTACH");

	without_device(&t);
	if (unsynced) {
		with_unsynced_device(&t);
	} else {
		with_device(&t);
		/*
		 * The heaps synchronise such a mapping in the CPU's direction, to
		 * which DMA_API_DEBUG objects.
		 */
		if (t.memfd >= 0 || !strcmp(kind, "own"))
			one_way(&t);
	}
	if (!strcmp(kind, "own"))
		large(&t);
	unlink(path);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "cat"))
		return cat();
	if (argc == 4 && !strcmp(argv[1], "sync"))
		return sync_kind(argv[2], argv[3], false);
	if (argc == 5 && !strcmp(argv[1], "sync") && !strcmp(argv[4], "unsynced"))
		return sync_kind(argv[2], argv[3], true);
	fprintf(stderr, "usage: edu-check cat | edu-check sync KIND DIR [unsynced]\n");
	return 2;
}
