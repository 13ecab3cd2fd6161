// SPDX-License-Identifier: GPL-2.0-only
/* CANCEL ends the calls that run, with what they have done, and no later ones. */
#include <pthread.h>

#include "lib.h"

#define LENGTH	MIB(128)

enum { DO_READ, DO_WRITE, DO_LOAD };
static const char * const names[] = { "READ", "WRITE", "LOAD" };

static int dev;
static volatile bool stop;

static void *cancel_loop(void *arg)
{
	unsigned int delay = *(unsigned int *)arg;

	/* Again and again: the call may not have begun. */
	while (!stop) {
		sleep_ms(delay);
		expect(dio_call(dev, DMABUF_DIO_IOC_CANCEL, NULL), 0);
	}
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

int main(void)
{
	int direct = direct_flag(direct_possible());
	struct buffer buf;
	unsigned int what, round;
	uint64_t before;

	/* One page at a time is slow enough to be interrupted. */
	file_sparse("data", LENGTH);
	buffer_create(&buf, BUFFER_LOAD, LENGTH);
	dev = dio_context(&buf);
	before = memory_available();

	/* With nothing running it does nothing. */
	expect(dio_call(dev, DMABUF_DIO_IOC_CANCEL, NULL), 0);

	for (what = DO_READ; what <= DO_LOAD; what++) {
		for (round = 0; round < 6; round++) {
			unsigned int delay = 5 + round * 20;
			struct dmabuf_dio_rw rw = {
				.length = LENGTH, .chunk = PAGE, .depth = 1 + round % 2 * 7,
			};
			struct dmabuf_dio_load load = {
				.length = LENGTH, .chunk = PAGE, .depth = rw.depth,
			};
			unsigned int fds;
			pthread_t thread;

			trying("%s, %u ms", names[what], delay);
			if (what == DO_WRITE) {
				rw.file_fd = file_open("copy", O_RDWR | O_CREAT |
						       O_TRUNC | direct);
				buffer_pattern(&buf, 4);
			} else {
				rw.file_fd = file_open("data", O_RDONLY | direct);
			}
			load.file_fd = rw.file_fd;
			fds = count_fds();
			stop = false;
			check(!pthread_create(&thread, NULL, cancel_loop, &delay));
			expect(call(what, &rw, &load), -ECANCELED);
			stop = true;
			check(!pthread_join(thread, NULL));
			check(rw.done < LENGTH);
			expect(count_fds(), fds);

			/* What it says is done is done. */
			if (what == DO_READ)
				zero_check(buf.map, rw.done);
			if (what == DO_WRITE) {
				check(lseek(rw.file_fd, 0, SEEK_END) >= (off_t)rw.done);
				close(rw.file_fd);
				rw.file_fd = file_open("copy", O_RDONLY);
				fd_pattern_check(rw.file_fd, 0, rw.done, 4);
			}
			close(rw.file_fd);
			if (what != DO_READ)
				continue;

			/* The next call is not concerned. */
			rw.file_fd = file_open("data", O_RDONLY | direct);
			rw.chunk = 0;
			buffer_pattern(&buf, 4);
			expect(dio_read(dev, &rw), 0);
			expect(rw.done, LENGTH);
			zero_check(buf.map, LENGTH);
			buffer_pattern(&buf, 4);
			close(rw.file_fd);
		}
	}
	unlink("copy");
	expect_memory_back(before, MIB(64));
	return 0;
}
