// SPDX-License-Identifier: GPL-2.0-only
/* CANCEL ends running calls, which report their progress, and every later one. */
#include <pthread.h>

#include "lib.h"

#define LENGTH	MIB(64)

enum { DO_READ, DO_WRITE, DO_LOAD };
static const char * const names[] = { "READ", "WRITE", "LOAD" };

static int dev;

/* One CANCEL is enough: a call that has not begun yet is cancelled, too. */
static void *cancel(void *arg)
{
	sleep_ms(*(unsigned int *)arg);
	expect(dio_call(dev, DMABUF_DIO_IOC_CANCEL, NULL), 0);
	return NULL;
}

static int call(int what, struct dmabuf_dio_rw *rw, struct dmabuf_dio_load *load)
{
	int ret;

	switch (what) {
	case DO_READ:
		return dio_read(dev, rw);
	case DO_WRITE:
		return dio_write(dev, rw);
	default:
		ret = dio_load(dev, load);
		rw->done = load->done;
		return ret;
	}
}

/* A fast machine may finish before CANCEL arrives: then try again. */
static int call_until_cancelled(int what, struct dmabuf_dio_rw *rw,
				struct dmabuf_dio_load *load)
{
	int ret;

	while (!(ret = call(what, rw, load)))
		if (what == DO_LOAD)
			close(load->dmabuf_fd);
	return ret;
}

/* After CANCEL no call does anything, whatever its arguments. */
static void for_good(struct buffer *buf, int file)
{
	struct dmabuf_dio_rw rw = { .file_fd = file, .length = PAGE };
	struct dmabuf_dio_load load = { .file_fd = file, .length = PAGE };
	unsigned int i, fds = count_fds(), what;
	int other;

	for (i = 0; i < 2; i++) {
		for (what = DO_READ; what <= DO_LOAD; what++) {
			trying("%s after CANCEL", names[what]);
			rw.done = load.done = 77;
			expect(call(what, &rw, &load), -ECANCELED);
			expect(rw.done, 0);
		}
		expect(dio_call(dev, DMABUF_DIO_IOC_CANCEL, NULL), 0);
	}
	expect(count_fds(), fds);

	trying("another context");
	other = dio_context(buf);
	expect(dio_read(other, &rw), 0);
	close(other);
}

int main(void)
{
	int direct = direct_flag(direct_possible());
	struct buffer buf;
	unsigned int what, round;
	uint64_t before;
	int file;

	/* One page at a time is slow enough to be interrupted. */
	file_sparse("data", LENGTH);
	buffer_create(&buf, BUFFER_LOAD, LENGTH);
	before = memory_available();

	/* With nothing running, before the first call, even before ATTACH */
	dev = dio_open();
	expect(dio_call(dev, DMABUF_DIO_IOC_CANCEL, NULL), 0);
	expect(dio_attach(dev, buf.fd), 0);
	file = file_open("data", O_RDWR | direct);
	for_good(&buf, file);
	close(file);
	close(dev);

	for (what = DO_READ; what <= DO_LOAD; what++) {
		for (round = 0; round < 6; round++) {
			unsigned int delay = round * 8;
			struct dmabuf_dio_rw rw = {
				.length = LENGTH, .chunk = PAGE, .depth = 1 + round % 2 * 7,
			};
			struct dmabuf_dio_load load = {
				.length = LENGTH, .chunk = PAGE, .depth = rw.depth,
			};
			unsigned int fds;
			pthread_t thread;

			trying("%s, %u ms", names[what], delay);
			if (what == DO_READ || !round)
				buffer_pattern(&buf, 4);
			if (what == DO_WRITE) {
				rw.file_fd = file_open("copy", O_RDWR | O_CREAT |
						       O_TRUNC | direct);
			} else {
				rw.file_fd = file_open("data", O_RDWR | direct);
			}
			load.file_fd = rw.file_fd;
			dev = dio_context(&buf);
			fds = count_fds();
			check(!pthread_create(&thread, NULL, cancel, &delay));
			expect(call_until_cancelled(what, &rw, &load), -ECANCELED);
			check(!pthread_join(thread, NULL));
			check(rw.done < LENGTH);
			expect(count_fds(), fds);

			/* The reported part has been transferred. */
			if (what == DO_READ)
				zero_check(buf.map, rw.done);
			if (what == DO_WRITE) {
				check(lseek(rw.file_fd, 0, SEEK_END) >= (off_t)rw.done);
				close(rw.file_fd);
				rw.file_fd = file_open("copy", O_RDWR);
				fd_pattern_check(rw.file_fd, 0, rw.done, 4);
			}
			for_good(&buf, rw.file_fd);
			close(rw.file_fd);
			close(dev);
		}
	}
	unlink("copy");
	expect_memory_back(before, MIB(64));
	return 0;
}
