// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Measures copy_file_range() from a dma-buf to cached pages of a file, 64 KiB at
 * a time, by the distance of the two in physical memory. Needs root and a kernel
 * with the series; writes copy-distance.data in the current directory:
 *
 *   cc -O2 -o build/copy-distance bench/copy-distance.c
 *   vm/run --kernel 7.3-series --memory 3072 -- sh -c \
 *	'echo 80 >/proc/sys/vm/nr_overcommit_hugepages; $DMABUF_DIO_REPO/build/copy-distance'
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/memfd.h>
#include <linux/udmabuf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define LENGTH	(128UL << 20)
#define PIECE	(64UL << 10)
#define PIECES	(LENGTH / PIECE)
#define RUNS	4
/* Distances that are a multiple of 64 KiB and no more, of 128 KiB, ... of 8 MiB */
#define CLASSES	8
#define SHARE	256

static uint64_t from[PIECES], to[PIECES];
static double taken[CLASSES][SHARE];
static unsigned int count[CLASSES];

static void need(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static double microseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static uint64_t page_of(int pagemap, const char *address)
{
	uint64_t entry = 0;

	(void)*(volatile const char *)address;
	need(pread(pagemap, &entry, 8, (uintptr_t)address / sysconf(_SC_PAGESIZE) * 8) == 8, "pagemap");
	entry &= (1ULL << 55) - 1;
	need(entry != 0, "page number");
	return entry;
}

static int udmabuf(int memfd)
{
	struct udmabuf_create create = { .memfd = memfd, .size = LENGTH };
	int device = open("/dev/udmabuf", O_RDWR);
	int dmabuf = ioctl(device, UDMABUF_CREATE, &create);

	need(dmabuf >= 0, "udmabuf");
	return dmabuf;
}

static double copy(int from, int to, loff_t in, loff_t out)
{
	double least = 1e18;
	int run;

	for (run = 0; run < RUNS; run++) {
		loff_t in_at = in, out_at = out;
		double start = microseconds();

		need(copy_file_range(from, &in_at, to, &out_at, PIECE, 0) == PIECE,
		     "copy_file_range");
		start = microseconds() - start;
		if (start < least)
			least = start;
	}
	return least;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

int main(void)
{
	int pagemap = open("/proc/self/pagemap", O_RDONLY);
	int file = open("copy-distance.data", O_RDWR | O_CREAT | O_TRUNC, 0600);
	int memfd = memfd_create("copy-distance", MFD_ALLOW_SEALING | MFD_HUGETLB | MFD_HUGE_2MB);
	char *memory, *cached;
	unsigned int class;
	unsigned long at, i;
	int dmabuf;

	need(memfd >= 0 && !ftruncate(memfd, LENGTH), "memfd");
	need(!fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK), "seal");
	memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	need(memory != MAP_FAILED, "huge pages: see nr_overcommit_hugepages");
	memset(memory, 7, LENGTH);
	dmabuf = udmabuf(memfd);
	for (at = 0; at < LENGTH; at += PIECE)
		need(write(file, memory + at, PIECE) == PIECE, "file");
	cached = mmap(NULL, LENGTH, PROT_READ, MAP_SHARED, file, 0);
	need(cached != MAP_FAILED, "mmap");

	for (i = 0; i < PIECES; i++) {
		from[i] = page_of(pagemap, memory + i * PIECE);
		to[i] = page_of(pagemap, cached + i * PIECE);
	}
	/* Alternate between the classes, because the load of the machine varies. */
	for (i = 0; i < PIECES * PIECES; i++) {
		unsigned long a = i % PIECES, b = (i / PIECES + a * 37) % PIECES;
		uint64_t apart = from[a] > to[b] ? from[a] - to[b] : to[b] - from[a];

		if (!apart || apart % 16)
			continue;
		class = __builtin_ctzll(apart / 16);
		if (class >= CLASSES)
			class = CLASSES - 1;
		if (count[class] < SHARE)
			taken[class][count[class]++] = copy(dmabuf, file, a * PIECE, b * PIECE);
	}
	printf("multiple of, KiB  pieces  median us  least us  most us\n");
	for (class = 0; class < CLASSES; class++) {
		double *times = taken[class];
		unsigned int n = count[class];

		if (!n)
			continue;
		qsort(times, n, sizeof(*times), compare);
		printf("%16u  %6u  %9.1f  %8.1f  %7.1f\n", 64 << class, n, times[n / 2],
		       times[0], times[n - 1]);
	}
	return unlink("copy-distance.data");
}
