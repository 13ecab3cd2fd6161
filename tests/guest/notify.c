// SPDX-License-Identifier: GPL-2.0-only
/*
 * inotify reports each READ and LOAD as one access to the file, and each WRITE as one modification,
 * however many requests it takes.
 */
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include "lib.h"

#define LENGTH	MIB(4)
#define FILE_PATH	"watched/data"

static int inotify, watch;

/*
 * Counts the file's events in @mask, and fails on any other. Equal events that follow each other are merged;
 * here they do not, because the watch of the directory gets one before each of them.
 */
static int events(uint32_t mask)
{
	union {
		struct inotify_event first;
		char bytes[4096];
	} buf;
	struct pollfd poll_fd = { .fd = inotify, .events = POLLIN };
	int count = 0;

	while (poll(&poll_fd, 1, 0) > 0) {
		ssize_t length = read(inotify, &buf, sizeof(buf)), at;

		check(length > 0);
		for (at = 0; at < length;) {
			struct inotify_event *event = (void *)(buf.bytes + at);

			expect(event->mask, mask);
			count += event->wd == watch;
			at += sizeof(*event) + event->len;
		}
	}
	return count;
}

static void calls(int dev, bool direct)
{
	struct dmabuf_dio_rw rw = { .length = LENGTH, .chunk = CHUNK_OF(KIB(256)), .depth = 4 };
	struct dmabuf_dio_rw odd = rw, edge = rw, end = rw;
	struct dmabuf_dio_load load = {
		.length = LENGTH - 100, .fd_flags = O_RDWR, .chunk = CHUNK_OF(KIB(256)), .depth = 4,
	};
	char byte;

	trying("%s", direct ? "direct" : "buffered");
	rw.file_fd = file_open(FILE_PATH, O_RDWR | direct_flag(direct));
	odd.file_fd = edge.file_fd = end.file_fd = load.file_fd = rw.file_fd;
	odd.file_offset = odd.buf_offset = 100;
	odd.length = LENGTH - 200;
	edge.file_offset = 10;
	edge.length = 20;
	end.file_offset = LENGTH;
	expect(events(0), 0);

	expect(dio_read(dev, &rw), 0);
	expect(events(IN_ACCESS), 1);
	expect(dio_read(dev, &odd), 0);
	expect(events(IN_ACCESS), 1);
	expect(dio_read(dev, &edge), 0);
	expect(events(IN_ACCESS), 1);
	/* Nothing is read. */
	dio_read(dev, &end);
	expect(end.done, 0);
	expect(events(IN_ACCESS), 0);

	expect(dio_load(dev, &load), 0);
	expect(events(IN_ACCESS), 1);
	close(load.dmabuf_fd);

	expect(dio_write(dev, &rw), 0);
	expect(events(IN_MODIFY), 1);
	expect(dio_write(dev, &odd), 0);
	expect(events(IN_MODIFY), 1);
	expect(dio_write(dev, &edge), 0);
	expect(events(IN_MODIFY), 1);
	/* The file grows. */
	rw.file_offset = KIB(64);
	expect(dio_write(dev, &rw), 0);
	expect(events(IN_MODIFY), 1);
	close(rw.file_fd);

	/* Events are still counted. */
	rw.file_fd = file_open(FILE_PATH, O_RDWR);
	fd_read(rw.file_fd, &byte, 1, 0);
	fd_read(rw.file_fd, &byte, 1, 0);
	expect(events(IN_ACCESS), 2);
	check(!ftruncate(rw.file_fd, LENGTH));
	expect(events(IN_MODIFY), 1);
	close(rw.file_fd);
}

int main(void)
{
	struct buffer buf;
	int dev, direct;

	mkdir("watched", 0700);
	file_pattern(FILE_PATH, LENGTH, 1);
	buffer_create(&buf, BUFFER_LOAD, LENGTH);
	dev = dio_context(&buf);
	inotify = inotify_init1(IN_CLOEXEC);
	if (inotify < 0)
		skip("no inotify");
	check(inotify_add_watch(inotify, "watched", IN_ACCESS | IN_MODIFY) >= 0);
	watch = inotify_add_watch(inotify, FILE_PATH, IN_ACCESS | IN_MODIFY);
	check(watch >= 0);

	for (direct = 0; direct < 1 + direct_possible(); direct++)
		calls(dev, direct);
	return 0;
}
