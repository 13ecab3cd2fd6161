// SPDX-License-Identifier: GPL-2.0-only
/*
 * fuse SOURCE MOUNTPOINT [reads | both]: mirrors a folder without a page cache (direct_io), and
 * returns once it is mounted. With the third argument, reads, or reads and writes, return short
 * results: arbitrary lengths, the same for the same offset, mostly less than a block, and zero
 * only at the end of a file.
 */
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <errno.h>
#include <fuse.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int source;		/* the folder */
static bool cut_reads, cut_writes;

/* Paths begin with a slash. */
static const char *in(const char *path)
{
	return path[1] ? path + 1 : ".";
}

static int result(int ret)
{
	return ret < 0 ? -errno : ret;
}

static size_t cut(size_t size, off_t offset)
{
	uint64_t number = (offset + 1) * 0x9e3779b97f4a7c15;
	size_t most;

	number = (number ^ number >> 29) * 0xbf58476d1ce4e5b9 >> 20;
	most = 1 + number / 4 % (number % 4 ? 1000 : 70000);
	return size < most ? size : most;
}

static int get_attributes(const char *path, struct stat *stat, struct fuse_file_info *file)
{
	return result(file ? fstat(file->fh, stat) :
			     fstatat(source, in(path), stat, AT_SYMLINK_NOFOLLOW));
}

static int make_directory(const char *path, mode_t mode)
{
	return result(mkdirat(source, in(path), mode));
}

static int remove_directory(const char *path)
{
	return result(unlinkat(source, in(path), AT_REMOVEDIR));
}

static int remove_file(const char *path)
{
	return result(unlinkat(source, in(path), 0));
}

static int rename_file(const char *from, const char *to, unsigned int flags)
{
	return result(renameat2(source, in(from), source, in(to), flags));
}

static int set_mode(const char *path, mode_t mode, struct fuse_file_info *file)
{
	return result(file ? fchmod(file->fh, mode) : fchmodat(source, in(path), mode, 0));
}

static int open_as(const char *path, mode_t mode, struct fuse_file_info *file)
{
	/* The underlying file system has a page cache, regardless of the caller's flags. */
	int fd = openat(source, in(path), file->flags & ~(O_DIRECT | O_APPEND), mode);

	if (fd < 0)
		return -errno;
	file->fh = fd;
	file->direct_io = 1;
	return 0;
}

static int open_file(const char *path, struct fuse_file_info *file)
{
	return open_as(path, 0, file);
}

static int create_file(const char *path, mode_t mode, struct fuse_file_info *file)
{
	return open_as(path, mode, file);
}

static int release_file(const char *path, struct fuse_file_info *file)
{
	(void)path;
	return result(close(file->fh));
}

static int truncate_file(const char *path, off_t size, struct fuse_file_info *file)
{
	int fd, ret;

	if (file)
		return result(ftruncate(file->fh, size));
	fd = openat(source, in(path), O_WRONLY);
	if (fd < 0)
		return -errno;
	ret = result(ftruncate(fd, size));
	close(fd);
	return ret;
}

static int read_file(const char *path, char *data, size_t size, off_t offset,
		     struct fuse_file_info *file)
{
	(void)path;
	return result(pread(file->fh, data, cut_reads ? cut(size, offset) : size, offset));
}

static int write_file(const char *path, const char *data, size_t size, off_t offset,
		      struct fuse_file_info *file)
{
	(void)path;
	return result(pwrite(file->fh, data, cut_writes ? cut(size, offset) : size, offset));
}

static int sync_file(const char *path, int data_only, struct fuse_file_info *file)
{
	(void)path;
	return result(data_only ? fdatasync(file->fh) : fsync(file->fh));
}

static int list(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset,
		struct fuse_file_info *file, enum fuse_readdir_flags flags)
{
	int fd = openat(source, in(path), O_RDONLY | O_DIRECTORY);
	struct dirent *entry;
	DIR *dir;

	(void)offset;
	(void)file;
	(void)flags;
	if (fd < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	while ((entry = readdir(dir)))
		fill(buffer, entry->d_name, NULL, 0, 0);
	closedir(dir);
	return 0;
}

static void *start(struct fuse_conn_info *connection, struct fuse_config *config)
{
	/* The kernel reports a short asynchronous write as an I/O error. */
	if (cut_writes)
		connection->want &= ~FUSE_CAP_ASYNC_DIO;
	(void)config;
	return NULL;
}

static const struct fuse_operations operations = {
	.init = start,
	.getattr = get_attributes,
	.mkdir = make_directory,
	.rmdir = remove_directory,
	.unlink = remove_file,
	.rename = rename_file,
	.chmod = set_mode,
	.open = open_file,
	.create = create_file,
	.release = release_file,
	.truncate = truncate_file,
	.read = read_file,
	.write = write_file,
	.fsync = sync_file,
	.readdir = list,
};

int main(int count, char **words)
{
	/* Attributes are not cached. */
	char options[] = "attr_timeout=0,entry_timeout=0,negative_timeout=0";
	char *arguments[] = { words[0], words[2], "-o", options, NULL };

	if (count < 3) {
		fprintf(stderr, "usage: fuse SOURCE MOUNTPOINT [reads | both]\n");
		return 2;
	}
	cut_writes = count > 3 && !strcmp(words[3], "both");
	cut_reads = cut_writes || (count > 3 && !strcmp(words[3], "reads"));
	source = open(words[1], O_RDONLY | O_DIRECTORY);
	if (source < 0) {
		perror(words[1]);
		return 1;
	}
	return fuse_main(4, arguments, &operations, NULL);
}
