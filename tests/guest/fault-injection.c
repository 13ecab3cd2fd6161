// SPDX-License-Identifier: GPL-2.0-only
/*
 * Every allocation of a call fails once: the call either returns ENOMEM or manages
 * without it, and leaks nothing. timeout=600
 */
#include <sys/mman.h>
#include <sys/ioctl.h>

#include "edu_importer/edu_importer.h"
#include "ring.h"

#define LENGTH	(MIB(2) + 1234)

static int fail_nth;
static struct buffer *buf;
static bool direct;
static int file, copy, context;
static int edu;

/* Returns false once the call makes fewer allocations than @n. */
static void arm(unsigned int n)
{
	char text[16];
	int length = snprintf(text, sizeof(text), "%u", n);

	check(pwrite(fail_nth, text, length, 0) == length);
}

static bool disarm(void)
{
	char text[16] = "";

	check(pread(fail_nth, text, sizeof(text) - 1, 0) > 0);
	check(pwrite(fail_nth, "0", 1, 0) == 1);
	return atoi(text) == 0;
}

static bool try_attach(unsigned int n, int *ret)
{
	struct dmabuf_dio_attach attach = { .dmabuf_fd = buf->fd };
	int dev = dio_open();
	bool failed;

	arm(n);
	*ret = ioctl(dev, DMABUF_DIO_IOC_ATTACH, &attach) ? -errno : 0;
	failed = disarm();
	/* A failed attempt is not counted. */
	if (*ret) {
		expect(attach.refusal, 0);
		expect(dio_attach(dev, buf->fd), 0);
	} else {
		expect(attach.length, buf->length);
	}
	close(dev);
	return failed;
}

static bool try_read(unsigned int n, int *ret)
{
	struct dmabuf_dio_rw rw = {
		.file_fd = file, .file_offset = 100, .buf_offset = 100,
		.length = LENGTH - 100, .chunk = KIB(256), .depth = 4,
	};
	bool failed;

	buffer_pattern(buf, 2);
	arm(n);
	*ret = ioctl(context, DMABUF_DIO_IOC_READ, &rw) ? -errno : 0;
	failed = disarm();
	if (!*ret)
		expect(rw.done, rw.length);
	check(rw.done <= rw.length);
	pattern_check(buf->map, 0, 100, 2);
	pattern_check(buf->map + 100, 100, rw.done, 1);
	pattern_check(buf->map + LENGTH, LENGTH, buf->length - LENGTH, 2);
	return failed;
}

static bool try_write(unsigned int n, int *ret)
{
	struct dmabuf_dio_rw rw = {
		.file_fd = copy, .file_offset = 100, .buf_offset = 100,
		.length = LENGTH - 100, .chunk = KIB(256), .depth = 4,
	};
	bool failed;
	int plain;

	buffer_pattern(buf, n);
	arm(n);
	*ret = ioctl(context, DMABUF_DIO_IOC_WRITE, &rw) ? -errno : 0;
	failed = disarm();
	if (!*ret)
		expect(rw.done, rw.length);
	check(rw.done <= rw.length);
	plain = file_open("copy", O_RDONLY);
	fd_pattern_check(plain, 100, rw.done, n);
	close(plain);
	return failed;
}

static bool try_load(unsigned int n, int *ret)
{
	struct dmabuf_dio_load load = {
		.file_fd = file, .fd_flags = O_RDWR, .length = LENGTH,
		.chunk = KIB(256), .gather = n % 2 ? PAGE : 0,
	};
	unsigned int fds = count_fds();
	bool failed;

	arm(n);
	*ret = ioctl(context, DMABUF_DIO_IOC_LOAD, &load) ? -errno : 0;
	failed = disarm();
	if (!*ret) {
		unsigned char *map = map_dmabuf(load.dmabuf_fd, load.buf_length, PROT_READ);

		pattern_check(map, 0, LENGTH, 1);
		zero_check(map + LENGTH, load.buf_length - LENGTH);
		unmap(map, load.buf_length);
		close(load.dmabuf_fd);
	}
	expect(count_fds(), fds);
	return failed;
}

static bool try_register(unsigned int n, int *ret)
{
	struct io_uring ring;
	bool failed;

	ring_create(&ring, 4, 1);
	arm(n);
	*ret = slot_register(&ring, context, 0, PAGE, buf->length - PAGE, SLOT_BOTH);
	failed = disarm();
	if (!*ret)
		expect(slot_io(&ring, false, file, 0, 0, KIB(64), 0), KIB(64));
	else
		expect(slot_register(&ring, context, 0, 0, PAGE, SLOT_BOTH), 0);
	io_uring_queue_exit(&ring);
	return failed;
}

static bool try_join(unsigned int n, int *ret)
{
	const int contexts[] = { context, context };
	struct io_uring ring;
	bool failed;

	ring_create(&ring, 4, 1);
	arm(n);
	*ret = slot_join(&ring, context, 0, contexts, 2, SLOT_BOTH, 0);
	failed = disarm();
	if (!*ret)
		expect(slot_io(&ring, false, file, 0, buf->length, KIB(64), 0), KIB(64));
	else
		expect(slot_join(&ring, context, 0, contexts, 2, SLOT_BOTH, 0), 0);
	io_uring_queue_exit(&ring);
	return failed;
}

/* A device attaches the buffer. Where the kernel maps it as well, Linux warns if that fails. */
static bool try_import(unsigned int n, int *ret)
{
	bool failed;

	arm(n);
	*ret = ioctl(edu, EDU_IMPORT, buf->fd) ? -errno : 0;
	failed = disarm();
	if (*ret)
		check(!ioctl(edu, EDU_IMPORT, buf->fd));
	check(!ioctl(edu, EDU_DROP, 0));
	return failed;
}

/* Returns how many allocations the call depends on. */
static unsigned int every_allocation(const char *name, bool (*attempt)(unsigned int, int *))
{
	uint64_t before;
	unsigned int n, refused = 0;
	int ret;

	attempt(0, &ret);
	expect(ret, 0);
	before = memory_available();
	for (n = 1;; n++) {
		bool failed;

		trying("%s, %s, %s, allocation %u", name, buffer_names[buf->kind],
		       direct ? "direct" : "buffered", n);
		failed = attempt(n, &ret);
		if (ret) {
			expect(ret, -ENOMEM);
			check(failed);
			refused++;
		}
		if (!failed)
			break;
		if (n == 20000)
			fail("no end");
	}
	printf("%s, %s, %s: %u allocations, %u necessary\n", name, buffer_names[buf->kind],
	       direct ? "direct" : "buffered", n - 1, refused);
	expect_memory_back(before, MIB(16));
	return refused;
}

/* Without the series the first context on a buffer maps it. */
static bool mapped(enum buffer_kind kind)
{
	return kind != BUFFER_LOAD && !guest_with_series();
}

static void faults(struct buffer *buffer)
{
	unsigned int first = 0, more;

	buf = buffer;
	/* Linux warns where an exporter cannot map; those of the series are not asked to. */
	if (buf->kind != BUFFER_VGEM)
		first = every_allocation("ATTACH, the first", try_attach);
	context = dio_context(buf);
	more = every_allocation("ATTACH, one more", try_attach);
	if (first && mapped(buf->kind))
		check(first > more);

	file = file_open("data", O_RDONLY | direct_flag(direct));
	copy = file_open("copy", O_RDWR | O_CREAT | direct_flag(direct));
	every_allocation("READ", try_read);
	every_allocation("WRITE", try_write);
	every_allocation("LOAD", try_load);
	if (dio_has_slots() && slots_possible(buf)) {
		every_allocation("REGISTER", try_register);
		every_allocation("JOIN", try_join);
	}
	if (buf->kind == BUFFER_LOAD)
		every_allocation("import", try_import);
	close(context);
	close(copy);
	close(file);
}

int main(void)
{
	fail_nth = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	if (fail_nth < 0)
		skip("this kernel injects no faults");
	proc_try_write("/sys/kernel/debug/failslab/ignore-gfp-wait", "N");
	proc_try_write("/sys/kernel/debug/failslab/verbose", "0");
	proc_try_write("/sys/kernel/debug/fail_page_alloc/ignore-gfp-wait", "N");
	proc_try_write("/sys/kernel/debug/fail_page_alloc/ignore-gfp-highmem", "N");
	proc_try_write("/sys/kernel/debug/fail_page_alloc/min-order", "0");
	proc_try_write("/sys/kernel/debug/fail_page_alloc/verbose", "0");

	edu = open("/dev/edu_importer", O_RDWR | O_CLOEXEC);
	check(edu >= 0);
	file_pattern("data", LENGTH, 1);
	file_pattern("copy", LENGTH, 1);
	for_each_kind_and_way(LENGTH, &direct, faults);
	close(edu);
	return 0;
}
