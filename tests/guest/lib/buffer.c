// SPDX-License-Identifier: GPL-2.0-only
/*
 * dma-bufs of every kind that the module has to accept
 */
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>

#include "drm.h"
#include "lib.h"

const char * const buffer_names[BUFFER_KINDS] = {
	[BUFFER_HEAP] = "heap",
	[BUFFER_UDMABUF] = "udmabuf",
	[BUFFER_HUGE] = "hugetlb udmabuf",
	[BUFFER_CMA] = "CMA heap",
	[BUFFER_LOAD] = "load",
	[BUFFER_VGEM] = "vgem",
};

static int heap_fd(const char *path, size_t length)
{
	struct dma_heap_allocation_data data = {
		.len = length,
		.fd_flags = O_RDWR | O_CLOEXEC,
	};
	int heap, ret;

	heap = open(path, O_RDONLY | O_CLOEXEC);
	if (heap < 0)
		return -errno;
	ret = ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &data) ? -errno : (int)data.fd;
	close(heap);
	return ret;
}

/* The heap has other names before Linux 6.18. */
static int cma_fd(size_t length)
{
	static const char * const paths[] = {
		"/dev/dma_heap/default_cma_region", "/dev/dma_heap/linux,cma",
		"/dev/dma_heap/reserved",
	};
	unsigned int i;
	int fd = -ENOENT;

	for (i = 0; i < ARRAY_SIZE(paths) && fd == -ENOENT; i++)
		fd = heap_fd(paths[i], length);
	return fd;
}

int udmabuf_over(int memfd, uint64_t offset, size_t length)
{
	struct udmabuf_create create = {
		.memfd = memfd,
		.flags = UDMABUF_FLAGS_CLOEXEC,
		.offset = offset,
		.size = length,
	};
	int dev, ret;

	/* The limit is 64 MiB by default before Linux 7.3. */
	proc_try_write("/sys/module/udmabuf/parameters/size_limit_mb", "8192");

	dev = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	if (dev < 0)
		return -errno;
	ret = ioctl(dev, UDMABUF_CREATE, &create);
	if (ret < 0)
		ret = -errno;
	close(dev);
	return ret;
}

int memfd_for_udmabuf(size_t length, unsigned int flags)
{
	int memfd = memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC | flags);

	/* Room for huge pages, where available */
	if (flags & MFD_HUGETLB)
		proc_try_write("/proc/sys/vm/nr_overcommit_hugepages", "256");
	if (memfd < 0)
		return -errno;
	check(!ftruncate(memfd, length) && !fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK));
	return memfd;
}

static int udmabuf_fd(size_t length, unsigned int memfd_flags)
{
	int memfd = memfd_for_udmabuf(length, memfd_flags), ret;

	if (memfd < 0)
		return memfd;
	ret = udmabuf_over(memfd, 0, length);
	close(memfd);
	return ret;
}

static int load_fd(size_t length)
{
	static const char name[] = "load-source";
	int dev = dio_open();
	int file, fd;

	file_sparse(name, length);
	file = file_open(name, O_RDONLY);
	fd = dio_load_fd(dev, file, 0, length);
	close(file);
	unlink(name);
	close(dev);
	return fd;
}

static int vgem_fd(size_t length)
{
	int card = vgem_open(), fd;
	__u32 handle;

	if (card < 0)
		return card;
	fd = drm_buffer(card, length, &handle);
	close(card);
	return fd;
}

/* The module refuses such a buffer on this machine. */
static int refused(int fd, __u32 refusal)
{
	struct dmabuf_dio_attach attach = { .dmabuf_fd = fd };
	int dev = dio_open();

	expect(dio_call(dev, DMABUF_DIO_IOC_ATTACH, &attach), -EOPNOTSUPP);
	expect(attach.refusal, refusal);
	close(dev);
	close(fd);
	return -EOPNOTSUPP;
}

int buffer_try(struct buffer *buf, enum buffer_kind kind, size_t length)
{
	int fd = -EINVAL;

	length = (length + PAGE - 1) & -PAGE;
	switch (kind) {
	case BUFFER_HEAP:
		fd = heap_fd("/dev/dma_heap/system", length);
		break;
	case BUFFER_UDMABUF:
		fd = udmabuf_fd(length, 0);
		break;
	case BUFFER_HUGE:
		length = (length + huge_page() - 1) & -huge_page();
		fd = udmabuf_fd(length, MFD_HUGETLB);
		break;
	case BUFFER_CMA:
		fd = cma_fd(length);
		break;
	case BUFFER_LOAD:
		fd = load_fd(length);
		break;
	case BUFFER_VGEM:
		fd = vgem_fd(length);
		break;
	case BUFFER_KINDS:
		break;
	}
	if (fd < 0)
		return fd;

	/* Linux 6.12's udmabuf maps large folios wrongly. */
	if (kind == BUFFER_HUGE && udmabuf_is_wrong())
		return refused(fd, DMABUF_DIO_REFUSED_MAPPING);
#ifndef __x86_64__
	/* Its mappings are write-combined, with stale lines in the kernel's. */
	if (kind == BUFFER_VGEM)
		return refused(fd, DMABUF_DIO_REFUSED_UNSYNCED);
#endif

	*buf = (struct buffer){ .kind = kind, .fd = fd, .length = length };
	buf->map = map_dmabuf(fd, length, PROT_READ | PROT_WRITE);
	return 0;
}

void buffer_create(struct buffer *buf, enum buffer_kind kind, size_t length)
{
	int ret = buffer_try(buf, kind, length);

	if (ret)
		skip("no %s buffer: %s", buffer_names[kind], strerror(-ret));
}

void buffer_destroy(struct buffer *buf)
{
	unmap(buf->map, buf->length);
	if (buf->fd >= 0)
		close(buf->fd);
}

void buffer_forget(struct buffer *buf)
{
	buffer_destroy(buf);
	buf->map = NULL;
	buf->fd = -1;
}

int buffer_sync(int fd, uint64_t flags)
{
	struct dma_buf_sync sync = { .flags = flags };
	int ret;

	do {
		ret = ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync);
	} while (ret && errno == EINTR);
	return ret ? -errno : 0;
}

void buffer_begin(struct buffer *buf)
{
	expect(buffer_sync(buf->fd, DMA_BUF_SYNC_START | DMA_BUF_SYNC_RW), 0);
}

void buffer_end(struct buffer *buf)
{
	expect(buffer_sync(buf->fd, DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW), 0);
}

bool buffer_synced(const struct buffer *buf)
{
	if (buf->kind == BUFFER_UDMABUF || buf->kind == BUFFER_HUGE)
		return guest_with_series();
	return buf->kind != BUFFER_VGEM;
}

void buffer_pattern(struct buffer *buf, uint64_t seed)
{
	buffer_begin(buf);
	pattern_fill(buf->map, 0, buf->length, seed);
	buffer_end(buf);
}

/* A kind that this kernel supports must not be skipped silently. */
static bool expected(enum buffer_kind kind)
{
	switch (kind) {
	case BUFFER_HEAP:
		return guest_kernel()[0] && !guest_without_heaps();
	case BUFFER_UDMABUF:
		return guest_kernel()[0] && !guest_without_udmabuf();
	case BUFFER_HUGE:
		return !strncmp(guest_kernel(), "7.3", 3);
	case BUFFER_CMA:
		return false;
	case BUFFER_VGEM:
		return guest_with_vgem();
	default:
		return guest_kernel()[0];
	}
}

void for_each_kind(size_t length, void (*test)(struct buffer *buf))
{
	unsigned int kind, made = 0;

	for (kind = 0; kind < BUFFER_KINDS; kind++) {
		struct buffer buf;
		int ret = buffer_try(&buf, kind, length);

		if (ret) {
			if (expected(kind))
				fail("no %s buffer: %s", buffer_names[kind], strerror(-ret));
			printf("no %s buffer: %s\n", buffer_names[kind],
			       strerror(-ret));
			continue;
		}
		made++;
		trying("%s", buffer_names[kind]);
		test(&buf);
		trying("%s", "");
		buffer_destroy(&buf);
	}
	if (!made)
		skip("this machine makes no dma-bufs");
}

void for_each_kind_and_way(size_t length, bool *direct, void (*test)(struct buffer *buf))
{
	*direct = false;
	for_each_kind(length, test);
	*direct = true;
	if (direct_possible())
		for_each_kind(length, test);
}
