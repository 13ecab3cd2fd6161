// SPDX-License-Identifier: GPL-2.0-only
/*
 * nfs start SOURCE MOUNTPOINT: exports a folder through this kernel's nfsd and mounts it, with
 * NFS version 3 over TCP. nfs stop MOUNTPOINT: undoes both.
 *
 * It replaces rpcbind, exportfs, mountd and mount.nfs, so that the host needs none of them: the
 * export table is written to the kernel in advance, and the file handle of a numbered export is
 * known.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <linux/nfs.h>
#include <linux/nfs_mount.h>
#include <linux/nfsd/export.h>

#define NFSD		"/proc/fs/nfsd"
#define PORTMAPPER	"/var/run/rpcbind.sock"
#define CALLS		16	/* connections to it */
#define FOREVER		"2147483647"
/* Number of the export, as decimal and as it is in memory */
#define NUMBER		"1234"
#define NUMBER_BYTES	"\\xd2040000"
static const unsigned char handle[] = {
	1, 0,	/* version, no authentication */
	1, 0,	/* the export by its number, its root */
	0xd2, 4, 0, 0,
};

static void fail(const char *what)
{
	fprintf(stderr, "nfs: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int try_put(const char *path, const char *format, va_list args)
{
	char text[4096];
	int length = vsnprintf(text, sizeof(text), format, args);
	int fd = open(path, O_WRONLY);
	int ret;

	if (fd < 0)
		return -1;
	ret = write(fd, text, length) == length ? 0 : -1;
	close(fd);
	return ret;
}

__attribute__((format(printf, 2, 3)))
static void put(const char *path, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (try_put(path, format, args))
		fail(path);
	va_end(args);
}

/* Not available in every kernel */
__attribute__((format(printf, 2, 3)))
static void put_if(const char *path, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)!try_put(path, format, args);
	va_end(args);
}

/* Accepts one call. Returns false when there will be no more. */
static int answer(int fd)
{
	uint32_t call[1024], reply[8] = {};
	uint32_t length, words = 6;

	if (recv(fd, &length, sizeof(length), MSG_WAITALL) != sizeof(length))
		return 0;
	length = ntohl(length) & 0x7fffffff;
	if (length < 6 * 4 || length > sizeof(call) ||
	    recv(fd, call, length, MSG_WAITALL) != length)
		return 0;
	reply[1] = call[0];
	reply[2] = htonl(1);	/* a reply; accepted, nothing to verify, success */
	if (call[5])		/* not just a ping */
		reply[1 + words++] = htonl(1);
	reply[0] = htonl(0x80000000 | words * 4);
	return send(fd, reply, (1 + words) * 4, MSG_NOSIGNAL) > 0;
}

/* Replaces rpcbind, which the kernel's server requires. */
static void portmapper(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = PORTMAPPER };
	struct pollfd fds[CALLS] = { { .events = POLLIN } };
	int i, count = 1;

	unlink(PORTMAPPER);
	fds[0].fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (bind(fds[0].fd, (struct sockaddr *)&address, sizeof(address)) || listen(fds[0].fd, 8))
		fail(PORTMAPPER);
	switch (fork()) {
	case -1:
		fail("fork");
		break;
	case 0:
		break;
	default:
		close(fds[0].fd);
		return;
	}
	if (daemon(0, 0))
		fail("daemon");
	for (;;) {
		poll(fds, count, -1);
		for (i = count - 1; i > 0; i--) {
			if (fds[i].revents && !answer(fds[i].fd)) {
				close(fds[i].fd);
				fds[i] = fds[--count];
			}
		}
		if (fds[0].revents && count < CALLS) {
			fds[count].fd = accept(fds[0].fd, NULL, NULL);
			fds[count].revents = 0;
			fds[count++].events = POLLIN;
		}
	}
}

static void serve(const char *source)
{
	/* The export table: clients, paths and no expiry */
	put("/proc/net/rpc/auth.unix.ip/channel", "nfsd 127.0.0.1 " FOREVER " local\n");
	put("/proc/net/rpc/nfsd.export/channel", "local %s " FOREVER " %d 0 0 " NUMBER "\n", source,
	    NFSEXP_INSECURE_PORT | NFSEXP_ASYNC | NFSEXP_NOSUBTREECHECK | NFSEXP_FSID);
	put("/proc/net/rpc/nfsd.fh/channel", "local 1 " NUMBER_BYTES " " FOREVER " %s\n", source);

	/* Version 4 would try to recover earlier clients. */
	put_if(NFSD "/versions", "-4\n");
	put(NFSD "/portlist", "tcp 2049\n");
	put(NFSD "/threads", "4\n");
}

static void start(const char *source, const char *mountpoint)
{
	struct nfs_mount_data data = {
		.version = 6,
		.flags = NFS_MOUNT_VER3 | NFS_MOUNT_TCP | NFS_MOUNT_NONLM | NFS_MOUNT_NOACL,
		.timeo = 600,
		.retrans = 2,
		.addr = {
			.sin_family = AF_INET,
			.sin_port = htons(2049),
			.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		},
		.hostname = "localhost",
		.namlen = 255,
		.root.size = sizeof(handle),
		.pseudoflavor = 1,
	};

	memcpy(data.root.data, handle, sizeof(handle));
	if (mount("nfsd", NFSD, "nfsd", 0, NULL) && errno != EBUSY)
		fail("mount of " NFSD);
	portmapper();
	serve(source);
	if (mount("localhost:", mountpoint, "nfs", 0, &data))
		fail("mount");
}

static void stop(const char *mountpoint)
{
	static const char * const caches[] = { "nfsd.fh", "nfsd.export", "auth.unix.ip" };
	unsigned int i;
	char path[64];

	if (umount(mountpoint))
		fail("umount");
	put(NFSD "/threads", "0\n");
	for (i = 0; i < sizeof(caches) / sizeof(caches[0]); i++) {
		snprintf(path, sizeof(path), "/proc/net/rpc/%s/flush", caches[i]);
		put(path, "%lld\n", (long long)time(NULL) + 1);
	}
	if (umount(NFSD))
		fail("umount of " NFSD);
}

int main(int count, char **words)
{
	if (count == 4 && !strcmp(words[1], "start"))
		start(words[2], words[3]);
	else if (count == 3 && !strcmp(words[1], "stop"))
		stop(words[2]);
	else
		return 2;
	return 0;
}
