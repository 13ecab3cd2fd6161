// SPDX-License-Identifier: GPL-2.0-only
/* inotify reports that READ and LOAD have accessed the file, and that WRITE has modified it. */
#include <poll.h>
#include <sys/inotify.h>

#include "lib.h"

#define LENGTH	MIB(4)

static int watch;

/* Whether there was an event in @mask; fails on any other event */
static bool seen(uint32_t mask)
{
	char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	struct pollfd poll_fd = { .fd = watch, .events = POLLIN };
	bool found = false;

	while (poll(&poll_fd, 1, 0) > 0) {
		ssize_t length = read(watch, events, sizeof(events)), at;

		check(length > 0);
		for (at = 0; at < length;) {
			struct inotify_event *event = (void *)(events + at);

			expect(event->mask, mask);
			found = true;
			at += sizeof(*event) + event->len;
		}
	}
	return found;
}

int main(void)
{
	struct buffer buf;
	int dev, direct;

	file_pattern("data", LENGTH, 1);
	buffer_create(&buf, BUFFER_LOAD, LENGTH);
	dev = dio_context(&buf);
	watch = inotify_init1(IN_CLOEXEC);
	if (watch < 0)
		skip("no inotify");
	check(inotify_add_watch(watch, "data", IN_ACCESS | IN_MODIFY) >= 0);

	for (direct = 0; direct < 1 + direct_possible(); direct++) {
		struct dmabuf_dio_rw rw = { .length = LENGTH };
		struct dmabuf_dio_rw edge = { .file_offset = 10, .length = 20 };

		trying("%s", direct ? "direct" : "buffered");
		rw.file_fd = edge.file_fd = file_open("data", O_RDWR | direct_flag(direct));
		check(!seen(0));
		expect(dio_read(dev, &rw), 0);
		check(seen(IN_ACCESS));
		expect(dio_read(dev, &edge), 0);
		check(seen(IN_ACCESS));
		close(dio_load_fd(dev, rw.file_fd, 0, LENGTH));
		check(seen(IN_ACCESS));
		expect(dio_write(dev, &rw), 0);
		check(seen(IN_MODIFY));
		close(rw.file_fd);
	}
	return 0;
}
