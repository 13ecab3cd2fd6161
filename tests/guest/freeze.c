// SPDX-License-Identifier: GPL-2.0-only
/*
 * After WRITE the file system can be frozen, and while it is frozen WRITE waits.
 * timeout=60
 */
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

#include <linux/fs.h>

#include "dm.h"

#define LENGTH	MIB(8)

static int dev;
static volatile bool finished;

static void *write_all(void *arg)
{
	struct dmabuf_dio_rw *rw = arg;

	expect(dio_write(dev, rw), 0);
	expect(rw->done, LENGTH);
	finished = true;
	return NULL;
}

int main(void)
{
	struct dmabuf_dio_rw rw = { .length = LENGTH, .chunk = KIB(128), .depth = 8 };
	struct buffer buf;
	unsigned int direct;
	uint64_t moved;
	int root;

	dm_create(MIB(400));
	check(fs_format(DM_PATH, guest_fs(), ""));
	fs_mount(DM_PATH, guest_fs(), NULL);
	buffer_create(&buf, BUFFER_LOAD, LENGTH);
	buffer_pattern(&buf, 1);
	dev = dio_context(&buf);
	root = file_open("mnt", O_RDONLY | O_DIRECTORY);

	for (direct = 0; direct < 2; direct++) {
		pthread_t thread;

		rw.file_fd = file_open("mnt/data", O_RDWR | O_CREAT | direct_flag(direct));
		/* Extends the file, overwrites it, writes an unaligned range. */
		write_all(&rw);
		write_all(&rw);
		rw.file_offset = rw.buf_offset = 77;
		rw.length = LENGTH - 1077;
		expect(dio_write(dev, &rw), 0);
		rw.file_offset = rw.buf_offset = 0;
		rw.length = LENGTH;

		trying("%s", direct ? "direct" : "buffered");
		buffer_pattern(&buf, 2 + direct);
		check(!ioctl(root, FIFREEZE, 0));
		finished = false;
		moved = dio_moved(dev);
		check(!pthread_create(&thread, NULL, write_all, &rw));
		sleep_ms(500);
		check(!finished);
		expect(dio_moved(dev), moved);
		check(!ioctl(root, FITHAW, 0));
		check(!pthread_join(thread, NULL));
		check(finished);
		expect(dio_moved(dev), moved + LENGTH);
		fd_pattern_check(rw.file_fd, 0, LENGTH, 2 + direct);
		close(rw.file_fd);
	}
	close(root);
	check(!umount("mnt"));
	dm_remove();
	return 0;
}
