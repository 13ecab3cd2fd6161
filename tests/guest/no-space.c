// SPDX-License-Identifier: GPL-2.0-only
/*
 * WRITE into a full file system, or beyond the file size limit: an error, and the length
 * written before it
 */
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "dm.h"

#define LENGTH	MIB(24)

static struct buffer buf;
static int dev;

static void fill(bool direct)
{
	int file = file_open("mnt/data", O_RDWR | O_CREAT | direct_flag(direct));
	struct dmabuf_dio_rw rw;
	unsigned char *got;
	uint64_t at;

	for (at = 0;; at += LENGTH) {
		int ret;

		trying("%s, at %llu", direct ? "direct" : "buffered", (unsigned long long)at);
		rw = (struct dmabuf_dio_rw){
			.file_fd = file, .file_offset = at, .length = LENGTH,
			.chunk = KIB(512),
		};
		ret = dio_write(dev, &rw);
		if (ret) {
			expect(ret, -ENOSPC);
			check(rw.done < LENGTH);
			expect(rw.align, 0);
			break;
		}
		expect(rw.done, LENGTH);
		check(at < GIB(1));
	}
	check(lseek(file, 0, SEEK_END) >= (off_t)(at + rw.done));
	close(file);
	file = file_open("mnt/data", O_RDONLY);
	got = allocate(LENGTH);
	fd_read(file, got, rw.done, at);
	pattern_check(got, 0, rw.done, 1);
	if (at) {
		fd_read(file, got, LENGTH, at - LENGTH);
		pattern_check(got, 0, LENGTH, 1);
	}
	free(got);
	close(file);
	check(!unlink("mnt/data"));
	sync();
}

/* Reference: the error and length from system calls with blocks of @chunk */
static int limited_calls(bool direct, uint64_t chunk, uint64_t *done)
{
	int file = file_open("limited", O_RDWR | O_CREAT | O_TRUNC | direct_flag(direct));
	unsigned char *data = allocate(LENGTH);
	ssize_t ret;

	pattern_fill(data, 0, LENGTH, 1);
	for (*done = 0;; *done += ret) {
		/* Direct I/O cannot continue from the middle of a block. */
		if (direct && *done % PAGE)
			check(!fcntl(file, F_SETFL, 0));
		ret = pwrite(file, data + *done, chunk, *done);
		if (ret <= 0)
			break;
	}
	ret = ret ? -errno : 0;
	free(data);
	close(file);
	return ret;
}

static void limited(bool direct, uint64_t limit)
{
	struct rlimit old, new;
	struct dmabuf_dio_rw rw = { .length = LENGTH, .chunk = KIB(64) };
	uint64_t done;
	int error;

	trying("limit %llu, %s", (unsigned long long)limit, direct ? "direct" : "buffered");
	check(!getrlimit(RLIMIT_FSIZE, &old));
	new = old;
	new.rlim_cur = limit;
	check(!setrlimit(RLIMIT_FSIZE, &new));
	error = limited_calls(direct, rw.chunk, &done);
	rw.file_fd = file_open("limited", O_RDWR | O_CREAT | O_TRUNC | direct_flag(direct));
	rw.align = 77;
	expect(dio_write(dev, &rw), error);
	expect(rw.done, done);
	/* The error is not due to the offsets. */
	expect(rw.align, 0);
	/* Some file systems refuse direct writes of partial blocks. */
	if (!direct || !(limit % PAGE) || error != -EINVAL) {
		expect(error, -EFBIG);
		expect(done, limit);
	}
	check(!setrlimit(RLIMIT_FSIZE, &old));
	close(rw.file_fd);
	rw.file_fd = file_open("limited", O_RDONLY);
	check(lseek(rw.file_fd, 0, SEEK_END) <= (off_t)limit);
	fd_pattern_check(rw.file_fd, 0, rw.done, 1);
	close(rw.file_fd);
}

int main(void)
{
	bool direct = direct_possible();

	check(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
	buffer_create(&buf, BUFFER_LOAD, LENGTH);
	buffer_pattern(&buf, 1);
	dev = dio_context(&buf);

	limited(false, MIB(1) + PAGE);
	limited(false, MIB(1) + 1234);
	if (direct) {
		limited(true, MIB(1) + PAGE);
		limited(true, MIB(1) + 1234);
		limited(true, 1234);
	}

	check(!mkdir("mnt", 0700));
	check(!mount("none", "mnt", "tmpfs", 0, "size=40m"));
	fill(false);
	check(!umount("mnt"));

	/* The minimum size for XFS is 300 MiB. */
	dm_create(!strcmp(guest_fs(), "xfs") ? MIB(304) : MIB(96));
	check(fs_format(DM_PATH, guest_fs(), ""));
	fs_mount(DM_PATH, guest_fs(), NULL);
	fill(false);
	if (direct)
		fill(true);
	check(!umount("mnt"));
	dm_remove();
	return 0;
}
