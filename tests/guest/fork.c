// SPDX-License-Identifier: GPL-2.0-only
/* A context is a file: it is inherited, and can be passed over a socket. */
#include <sys/socket.h>

#include "lib.h"

#define LENGTH	MIB(1)

static void send_fd(int socket, int fd)
{
	char space[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = space, .msg_controllen = sizeof(space),
	};
	struct cmsghdr *control = CMSG_FIRSTHDR(&message);

	control->cmsg_level = SOL_SOCKET;
	control->cmsg_type = SCM_RIGHTS;
	control->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(control), &fd, sizeof(int));
	check(sendmsg(socket, &message, 0) == 1);
}

static int receive_fd(int socket)
{
	char space[CMSG_SPACE(sizeof(int))], byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = space, .msg_controllen = sizeof(space),
	};
	int fd;

	check(recvmsg(socket, &message, 0) == 1);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	return fd;
}

static void inherited(struct buffer *buf)
{
	struct dmabuf_dio_rw rw = { .length = LENGTH };
	int dev = dio_context(buf);
	int pair[2];
	pid_t pid;

	/* The child uses the context after the parent has closed it. */
	check(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	buffer_pattern(buf, 2);
	pid = spawn();
	if (!pid) {
		close(receive_fd(pair[1]));
		rw.file_fd = file_open("data", O_RDONLY);
		expect(dio_read(dev, &rw), 0);
		expect(rw.done, LENGTH);
		exit(0);
	}
	close(dev);
	send_fd(pair[0], pair[0]);
	reap(pid);
	pattern_check(buf->map, 0, LENGTH, 1);

	/* A LOADed buffer made in another process */
	pid = spawn();
	if (!pid) {
		int own = dio_open(), file = file_open("data", O_RDONLY);

		send_fd(pair[1], dio_load_fd(own, file, 0, LENGTH));
		exit(0);
	}
	reap(pid);
	{
		int fd = receive_fd(pair[0]);
		unsigned char *map = map_dmabuf(fd, LENGTH, 1);

		pattern_check(map, 0, LENGTH, 1);
		unmap(map, LENGTH);
		dev = dio_open();
		expect(dio_attach(dev, fd), 0);
		close(fd);
		close(dev);
	}
	close(pair[0]);
	close(pair[1]);
}

int main(void)
{
	file_pattern("data", LENGTH, 1);
	for_each_kind(LENGTH, inherited);
	return 0;
}
