// SPDX-License-Identifier: GPL-2.0-only
/* Invalid arguments, structures of other versions, bad pointers */
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "lib.h"

static struct buffer buf;
static int dev, file;

static const struct {
	const char *name;
	unsigned long request;
	unsigned int size;
} calls[] = {
	{ "INFO", DMABUF_DIO_IOC_INFO, sizeof(struct dmabuf_dio_info) },
	{ "ATTACH", DMABUF_DIO_IOC_ATTACH, sizeof(struct dmabuf_dio_attach) },
	{ "READ", DMABUF_DIO_IOC_READ, sizeof(struct dmabuf_dio_rw) },
	{ "WRITE", DMABUF_DIO_IOC_WRITE, sizeof(struct dmabuf_dio_rw) },
	{ "LOAD", DMABUF_DIO_IOC_LOAD, sizeof(struct dmabuf_dio_load) },
};

static unsigned long resized(unsigned long request, unsigned int size)
{
	return _IOC(_IOC_DIR(request), _IOC_TYPE(request), _IOC_NR(request), size);
}

static void both(const char *what, struct dmabuf_dio_rw wanted, int error)
{
	struct dmabuf_dio_rw rw = wanted;

	trying("%s", what);
	rw.done = rw.direct = 99;
	expect(dio_read(dev, &rw), error);
	expect(rw.done, 0);
	expect(rw.direct, 0);
	rw = wanted;
	rw.done = rw.direct = 99;
	expect(dio_write(dev, &rw), error);
	expect(rw.done, 0);
	expect(rw.direct, 0);
	pattern_check(buf.map, 0, buf.length, 1);
}

static void ranges(void)
{
	struct dmabuf_dio_rw ok = { .file_fd = file, .length = PAGE }, rw;
	uint64_t length = buf.length;

	rw = ok, rw.flags = 1;
	both("flag 0", rw, -EINVAL);
	rw = ok, rw.flags = 0x80000000;
	both("flag 31", rw, -EINVAL);
	rw = ok, rw.buf_offset = length;
	both("at the end of the buffer", rw, -ERANGE);
	rw = ok, rw.buf_offset = length - PAGE + 1;
	both("one byte beyond the buffer", rw, -ERANGE);
	rw = ok, rw.length = length + 1;
	both("longer than the buffer", rw, -ERANGE);
	rw = ok, rw.buf_offset = UINT64_MAX - 5;
	both("buffer range wraps", rw, -EOVERFLOW);
	rw = ok, rw.length = UINT64_MAX, rw.buf_offset = 1;
	both("length wraps", rw, -EOVERFLOW);
	rw = ok, rw.length = UINT64_MAX;
	both("longest length", rw, -ERANGE);
	rw = ok, rw.file_offset = UINT64_MAX;
	both("file range wraps", rw, -EOVERFLOW);
	rw = ok, rw.file_offset = 1ULL << 63;
	both("file offset is negative", rw, -EOVERFLOW);
	rw = ok, rw.file_offset = INT64_MAX - PAGE + 1;
	both("file range ends beyond the largest offset", rw, -EOVERFLOW);
	rw = ok, rw.length = 0;
	both("length 0", rw, 0);
	rw = ok, rw.length = 0, rw.buf_offset = length;
	both("length 0 at the end", rw, 0);
	rw = ok, rw.length = 0, rw.buf_offset = length + 1;
	both("length 0 beyond the end", rw, -ERANGE);
	rw = ok, rw.length = 0, rw.file_fd = -1;
	both("length 0 of no file", rw, -EBADF);

	/* Output fields are ignored on input. */
	trying("out fields");
	rw = ok, rw.align = 77, rw.done = UINT64_MAX, rw.direct = 3, rw.refusal = 4;
	expect(dio_write(dev, &rw), 0);
	expect(rw.done, PAGE);
	expect(rw.align, 0);
	expect(rw.direct, 0);
	expect(rw.refusal, 0);
}

static void reserved(void)
{
	struct dmabuf_dio_info info = { .reserved = 1 };
	struct dmabuf_dio_attach attach = { .dmabuf_fd = buf.fd };
	struct dmabuf_dio_load load = { .file_fd = file, .length = 1, .flags = 1 };
	int fresh = dio_open();

	trying("reserved fields");
	expect(dio_call(dev, DMABUF_DIO_IOC_INFO, &info), -EINVAL);
	info = (struct dmabuf_dio_info){ .reserved2 = 1 };
	expect(dio_call(dev, DMABUF_DIO_IOC_INFO, &info), -EINVAL);
	info = (struct dmabuf_dio_info){ .features = -1, .max_depth = 7 };
	expect(dio_call(dev, DMABUF_DIO_IOC_INFO, &info), 0);
	check(!(info.features & ~(DMABUF_DIO_FEATURE_SLOTS | DMABUF_DIO_FEATURE_JOIN |
				  DMABUF_DIO_FEATURE_PREMAP)));

	attach.flags = 1;
	expect(dio_call(fresh, DMABUF_DIO_IOC_ATTACH, &attach), -EINVAL);
	attach.flags = 0, attach.refusal = 1;
	expect(dio_call(fresh, DMABUF_DIO_IOC_ATTACH, &attach), -EINVAL);
	attach.refusal = 0;
	expect(dio_call(fresh, DMABUF_DIO_IOC_ATTACH, &attach), 0);
	expect(dio_load(dev, &load), -EINVAL);
	load.flags = 0, load.reserved = 1;
	expect(attach.refusal, 0);
	expect(dio_load(dev, &load), -EINVAL);
	close(fresh);

	both("a reserved field",
	     (struct dmabuf_dio_rw){ .file_fd = file, .length = PAGE, .reserved = 1 }, -EINVAL);
}

static void numbers(void)
{
	unsigned char data[256] = { 0 };
	unsigned int nr, i;

	trying("unknown calls");
	for (nr = 6; nr < 256; nr++)
		expect(dio_call(dev, _IOC(3, DMABUF_DIO_IOC_MAGIC, nr, 16), data), -ENOTTY);
	expect(dio_call(dev, _IOWR('x', 0, struct dmabuf_dio_info), data), -ENOTTY);
	expect(dio_call(dev, 0, data), -ENOTTY);
	expect(dio_call(dev, 0x5401 /* TCGETS */, data), -ENOTTY);
	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		unsigned int n = _IOC_NR(calls[i].request), dir;

		for (dir = 0; dir < 3; dir++)
			expect(dio_call(dev, _IOC(dir, DMABUF_DIO_IOC_MAGIC, n,
						  calls[i].size), data), -ENOTTY);
	}
}

static void versions(void)
{
	struct dmabuf_dio_rw rw = { .file_fd = file, .length = PAGE };
	struct {
		struct dmabuf_dio_rw rw;
		unsigned char more[64];
	} longer = { .rw = rw };
	/* A hypothetical first version */
	unsigned int shorter = offsetof(struct dmabuf_dio_rw, chunk);
	struct dmabuf_dio_load load = {
		.file_fd = file, .fd_flags = O_RDWR, .length = 3 * PAGE, .reserved = 99,
	};
	unsigned char *page;
	unsigned int i;

	trying("shorter structure");
	rw.chunk = 1;		/* would be EINVAL if it were read */
	rw.done = 0x5555;
	expect(dio_call(dev, resized(DMABUF_DIO_IOC_READ, shorter), &rw), 0);
	expect(rw.chunk, 1);
	expect(rw.done, 0x5555);
	pattern_check(buf.map, 0, PAGE, 2);
	pattern_check(buf.map + PAGE, PAGE, buf.length - PAGE, 1);

	expect(dio_call(dev, resized(DMABUF_DIO_IOC_LOAD,
				     offsetof(struct dmabuf_dio_load, align)), &load), 0);
	expect(load.done, 3 * PAGE);
	expect(load.reserved, 99);
	page = map_dmabuf(load.dmabuf_fd, 3 * PAGE, PROT_READ);
	pattern_check(page, 0, 3 * PAGE, 2);
	unmap(page, 3 * PAGE);
	close(load.dmabuf_fd);

	/* The structure ends before the fd. */
	load.reserved = 0;
	expect(dio_call(dev, resized(DMABUF_DIO_IOC_LOAD,
				     offsetof(struct dmabuf_dio_load, dmabuf_fd)), &load),
	       -EINVAL);

	trying("longer structure");
	expect(dio_call(dev, resized(DMABUF_DIO_IOC_READ, sizeof(longer)), &longer), 0);
	expect(longer.rw.done, PAGE);
	for (i = 0; i < sizeof(longer.more); i += 9) {
		longer.more[i] = 1;
		longer.rw.done = 0x77;
		expect(dio_call(dev, resized(DMABUF_DIO_IOC_READ, sizeof(longer)),
				&longer), -E2BIG);
		expect(longer.rw.done, 0x77);
		longer.more[i] = 0;
	}

	/* Nothing beyond the structure is written. */
	trying("structure at the end of a page");
	page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(page != MAP_FAILED);
	check(!munmap(page + PAGE, PAGE));
	rw = (struct dmabuf_dio_rw){ .file_fd = file, .length = PAGE };
	memcpy(page + PAGE - sizeof(rw), &rw, sizeof(rw));
	expect(dio_call(dev, DMABUF_DIO_IOC_READ, page + PAGE - sizeof(rw)), 0);
	memcpy(page + PAGE - shorter, &rw, shorter);
	expect(dio_call(dev, resized(DMABUF_DIO_IOC_READ, shorter),
			page + PAGE - shorter), 0);
	expect(dio_call(dev, DMABUF_DIO_IOC_READ, page + PAGE - shorter), -EFAULT);
	check(!munmap(page, PAGE));
}

static void pointers(void)
{
	unsigned char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct dmabuf_dio_load load = {
		.file_fd = file, .fd_flags = O_RDWR, .length = MIB(1),
	};
	unsigned int i, fds = count_fds();
	uint64_t before;

	trying("bad pointers");
	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		expect(dio_call(dev, calls[i].request, NULL), -EFAULT);
		expect(dio_call(dev, calls[i].request, (void *)-4096L), -EFAULT);
		/* The address space of 32-bit programs ends at 4 GiB. */
		expect(dio_call(dev, calls[i].request, (void *)(UINTPTR_MAX / 2 + 1)), -EFAULT);
		if (sizeof(void *) > 4)
			expect(dio_call(dev, calls[i].request,
					(void *)(uintptr_t)0x123456789000), -EFAULT);
	}

	/* The result cannot be copied to the caller: no fd is left. */
	trying("read-only structure");
	memcpy(page, &load, sizeof(load));
	check(!mprotect(page, PAGE, PROT_READ));
	before = memory_available();
	for (i = 0; i < 100; i++)
		expect(dio_load(dev, (void *)page), -EFAULT);
	expect(count_fds(), fds);
	expect_memory_back(before, MIB(32));
	check(!munmap(page, PAGE));
}

int main(void)
{
	file_pattern("data", MIB(1), 2);
	file = file_open("data", O_RDWR);
	buffer_create(&buf, BUFFER_LOAD, MIB(1));
	dev = dio_context(&buf);
	buffer_pattern(&buf, 1);

	numbers();
	ranges();
	reserved();
	pattern_check(buf.map, 0, buf.length, 1);
	file_pattern("data", MIB(1), 2);
	versions();
	pointers();
	return 0;
}
