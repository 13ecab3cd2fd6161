// SPDX-License-Identifier: GPL-2.0-only
/*
 * SIGKILL in the middle of READ, WRITE and LOAD: the process exits, nothing leaks,
 * and other content is unchanged.
 */
#include <signal.h>
#include <sys/wait.h>

#include "lib.h"

#define LENGTH	MIB(64)

enum { DO_READ, DO_WRITE, DO_LOAD };
static const char * const names[] = { "READ", "WRITE", "LOAD" };

static bool direct;
static struct buffer buf;

static void child(int what)
{
	int dev = dio_context(&buf);

	for (;;) {
		struct dmabuf_dio_rw rw = { .length = LENGTH, .chunk = CHUNK_OF(KIB(16)) };
		struct dmabuf_dio_load load = { .length = LENGTH, .chunk = CHUNK_OF(KIB(16)) };

		rw.file_fd = load.file_fd =
			file_open(what == DO_WRITE ? "copy" : "data",
				  O_RDWR | O_CREAT | direct_flag(direct));
		switch (what) {
		case DO_READ:
			expect(dio_read(dev, &rw), 0);
			break;
		case DO_WRITE:
			expect(dio_write(dev, &rw), 0);
			break;
		case DO_LOAD:
			expect(dio_load(dev, &load), 0);
			close(load.dmabuf_fd);
			break;
		}
		close(rw.file_fd);
	}
}

static void killed(int what)
{
	uint64_t before = memory_available();
	unsigned int i;

	for (i = 0; i < 6; i++) {
		double start;
		pid_t pid;

		trying("%s, %s, %u", names[what], direct ? "direct" : "buffered", i);
		pid = spawn();
		if (!pid)
			child(what);
		sleep_ms(20 + 37 * i);
		start = seconds();
		kill_child(pid);
		if (seconds() - start > 20)
			fail("the process took %.1f s to die", seconds() - start);
	}
	unlink("copy");
	expect_memory_back(before, MIB(48));
}

int main(void)
{
	int what, pass;

	file_pattern("data", LENGTH, 1);
	buffer_create(&buf, BUFFER_LOAD, LENGTH);
	for (pass = 0; pass < 2; pass++) {
		direct = pass;
		if (direct && !direct_possible())
			break;
		for (what = DO_READ; what <= DO_LOAD; what++)
			killed(what);
	}
	return 0;
}
