// SPDX-License-Identifier: GPL-2.0-only
/*
 * While a transfer stores into a buffer, a device maps and unmaps it and
 * another process begins and ends CPU access: the stored data survives. With a
 * device that is not coherent (DMABUF_DIO_IMPORTER=/dev/shadow_importer), or
 * bounce buffers (swiotlb=force), either could restore old data. Otherwise the
 * device is QEMU's edu. On kernels with file I/O on dma-bufs, data that the
 * device stores outside the range of a transfer survives as well. timeout=300
 */
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include <linux/dma-buf.h>

#include "edu_importer/edu_importer.h"
#include "dm.h"
#include "lib.h"

#define LENGTH	KIB(256)	/* maximum size of one bounce buffer mapping */
#define ROUNDS	20

/* Stores the file by READ in requests of a page, or by copy_file_range(). */
static int64_t store(const struct buffer *buf, int dev, int file, bool copy)
{
	struct dmabuf_dio_rw rw = {
		.file_fd = file, .length = LENGTH, .chunk = PAGE, .depth = 1,
	};
	off_t from = 0, to = 0;

	if (!copy)
		return dio_read(dev, &rw) ?: (int64_t)rw.done;
	while (to < (off_t)LENGTH) {
		ssize_t ret = copy_file_range(file, &from, buf->fd, &to, LENGTH - to, 0);

		if (ret <= 0)
			return ret ? -errno : to;
	}
	return to;
}

static const char *device(void)
{
	return getenv("DMABUF_DIO_IMPORTER") ?: "/dev/edu_importer";
}

/* Opens the device and maps the buffer for it. */
static int import(const struct buffer *buf)
{
	int edu = open(device(), O_RDWR | O_CLOEXEC);

	check(edu >= 0);
	check(!ioctl(edu, EDU_IMPORT, buf->fd));
	return edu;
}

static void come_and_go(const struct buffer *buf)
{
	int edu = import(buf);

	for (;;) {
		check(!ioctl(edu, EDU_DROP, 0));
		check(!ioctl(edu, EDU_IMPORT, buf->fd));
	}
}

static void look(const struct buffer *buf)
{
	for (;;) {
		check(!buffer_sync(buf->fd, DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ));
		check(!buffer_sync(buf->fd, DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ));
	}
}

static pid_t start(void (*child)(const struct buffer *), const struct buffer *buf)
{
	pid_t pid = spawn();

	if (!pid)
		child(buf);
	return pid;
}

static void end(pid_t pid)
{
	int status;

	expect(waitpid(pid, &status, WNOHANG), 0);
	kill(pid, SIGKILL);
	expect(waitpid(pid, &status, 0), pid);
}

static void meanwhile(struct buffer *buf, bool copy, void (*child)(const struct buffer *))
{
	int edu = -1, file, dev = dio_context(buf);
	unsigned int round;
	pid_t other;

	for (round = 0; round < ROUNDS; round++) {
		trying("%s, %s, while %s, round %u", buffer_names[buf->kind],
		       copy ? "copy_file_range" : "READ",
		       child == look ? "another process looks" : "a device comes and goes", round);
		file_pattern("data", LENGTH, round);
		file = file_open("data", O_RDONLY | direct_flag(round % 4));
		/* The device still has the old data. */
		if (child == look)
			edu = import(buf);
		other = start(child, buf);
		expect(store(buf, dev, file, copy), LENGTH);
		end(other);
		buffer_check(buf, 0, 0, LENGTH, round);
		if (edu >= 0)
			close(edu);
		close(file);
	}
	close(dev);
}

/* Stores the file in the second half of the buffer. */
static void store_half(const struct buffer *buf, bool copy)
{
	int file = file_open(DM_PATH, O_RDONLY | direct_flag(true));
	struct dmabuf_dio_rw rw = {
		.file_fd = file, .buf_offset = LENGTH / 2, .length = LENGTH / 2,
	};
	off_t from = 0, to = LENGTH / 2;

	if (copy) {
		expect(copy_file_range(file, &from, buf->fd, &to, LENGTH / 2, 0), LENGTH / 2);
	} else {
		expect(dio_read(dio_context(buf), &rw), 0);
		expect(rw.done, LENGTH / 2);
	}
	_exit(0);
}

/*
 * A device stores outside the range of a transfer that waits for the disk, and inside it, where
 * the file wins; then the device unmaps, or another begins CPU access.
 */
static void outside(struct buffer *buf, bool copy, bool drop)
{
	unsigned char *page = malloc(PAGE);
	int edu, status;
	pid_t pid;

	trying("%s, %s, a device stores outside the range, then %s", buffer_names[buf->kind],
	       copy ? "copy_file_range" : "READ", drop ? "unmaps" : "others look");
	buffer_begin(buf);
	pattern_fill(buf->map, 0, LENGTH, 2);
	buffer_end(buf);
	edu = import(buf);

	check(page);
	dm_stop();
	pid = spawn();
	if (!pid)
		store_half(buf, copy);
	sleep_ms(300);
	pattern_fill(page, 0, PAGE, 3);
	expect(pwrite(edu, page, PAGE, 0), PAGE);
	expect(pwrite(edu, page, PAGE, LENGTH / 2), PAGE);
	if (drop)
		check(!ioctl(edu, EDU_DROP, 0));
	buffer_begin(buf);
	pattern_check(buf->map, 0, PAGE, 3);
	pattern_check(buf->map + PAGE, PAGE, LENGTH / 2 - PAGE, 2);
	buffer_end(buf);
	expect(waitpid(pid, &status, WNOHANG), 0);
	dm_go_on();
	reap(pid);

	free(page);
	close(edu);
	buffer_begin(buf);
	pattern_check(buf->map, 0, PAGE, 3);
	pattern_check(buf->map + PAGE, PAGE, LENGTH / 2 - PAGE, 2);
	pattern_check(buf->map + LENGTH / 2, 0, LENGTH / 2, 1);
	buffer_end(buf);
}

static void outside_each_way(struct buffer *buf)
{
	int way;

	file_pattern(raw_disk(), LENGTH, 1);
	dm_create(LENGTH);
	for (way = 0; way < 4; way++)
		outside(buf, way & 1, way & 2);
	dm_remove();
}

/* Does this kernel copy between files and dma-bufs? Then udmabuf and heaps check the flag. */
static bool kernel_lends(const struct buffer *buf)
{
	int file;
	bool lends;

	file_pattern("data", LENGTH, 0);
	file = file_open("data", O_RDONLY);
	lends = store(buf, -1, file, true) == (int64_t)LENGTH;
	close(file);
	return lends;
}

/* Does the device need synchronisation? */
static bool bounces(void)
{
	char line[4096];

	if (!strcmp(device(), "/dev/shadow_importer"))
		return true;
	return proc_read("/proc/cmdline", line, sizeof(line)) && strstr(line, "swiotlb=force");
}

int main(void)
{
	enum buffer_kind kind;
	struct buffer buf;
	bool lends;

	if (access(device(), F_OK))
		skip("no %s", device());

	buffer_create(&buf, BUFFER_LOAD, LENGTH);
	lends = kernel_lends(&buf);
	buffer_destroy(&buf);
	for (kind = 0; kind < BUFFER_KINDS; kind++) {
		/* The exporters of an unmodified kernel do not check the flag. */
		if (!lends && bounces() && kind != BUFFER_LOAD)
			continue;
		if (buffer_try(&buf, kind, LENGTH))
			continue;
		/* Its exporter ignores devices altogether, with or without bounce buffers. */
		if (!buffer_synced(&buf)) {
			buffer_destroy(&buf);
			continue;
		}
		meanwhile(&buf, false, come_and_go);
		meanwhile(&buf, false, look);
		if (lends) {
			meanwhile(&buf, true, come_and_go);
			meanwhile(&buf, true, look);
			outside_each_way(&buf);
		}
		buffer_destroy(&buf);
	}
	return 0;
}
