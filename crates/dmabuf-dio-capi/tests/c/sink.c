/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Blocks that somebody else fills go to a file and to a socket, in order and as a whole. */
#include "lib.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define BLOCKS 6
#define SIZE KIB(64)
#define LENGTH (SIZE * 50 + 1000)

static struct dmabuf_dio_buffer *buffers[BLOCKS];
static int fds[BLOCKS];

static void fill(int block, uint64_t position, uint64_t length)
{
	struct dmabuf_dio_map *map;

	expect(dmabuf_dio_map(buffers[block], DMABUF_DIO_ACCESS_READ | DMABUF_DIO_ACCESS_WRITE, &map), 0);
	pattern(dmabuf_dio_map_address(map), position, length, 7);
	expect(dmabuf_dio_unmap(map), 0);
}

/* Fills blocks as they come back, and makes them larger and smaller. */
static void send_all(struct dmabuf_dio_sink *sink)
{
	uint64_t at = 0, next = 0;
	int64_t block;
	int queued = 0;

	while (at < LENGTH) {
		uint64_t length = LENGTH - at < SIZE ? LENGTH - at : SIZE;
		/* Some lengths are not whole pages. */
		if (next % 9 == 8)
			length = length < 5000 ? length : 5000;
		if (queued == BLOCKS) {
			block = dmabuf_dio_sink_wait(sink, -1);
			expect(block, (next - queued) % BLOCKS);
			queued--;
		}
		fill(next % BLOCKS, at, length);
		expect(dmabuf_dio_sink_write(sink, next % BLOCKS, length), 0);
		queued++;
		next++;
		at += length;
	}
	while (queued--) {
		block = dmabuf_dio_sink_wait(sink, 10000);
		expect(block, (next - queued - 1) % BLOCKS);
	}
	expect(dmabuf_dio_sink_wait(sink, -1), -ENODATA);
	expect(dmabuf_dio_sink_finish(sink), 0);
	expect(dmabuf_dio_sink_finish(sink), 0);
	expect(dmabuf_dio_sink_write(sink, 0, 1), -EINVAL);
	printf("by %s\n", dmabuf_dio_sink_how(sink));
	check(*dmabuf_dio_sink_how(sink));
	dmabuf_dio_sink_free(sink);
}

static void *elsewhere(void *sink)
{
	expect(dmabuf_dio_sink_write((struct dmabuf_dio_sink *)sink, 0, 1), -EPERM);
	check(strstr(dmabuf_dio_error_message(), "thread"));
	return NULL;
}

static void to_file(void)
{
	struct dmabuf_dio_sink *sink;
	pthread_t thread;

	expect(dmabuf_dio_sink_file("samples", fds, BLOCKS, SIZE, &sink), 0);
	expect(dmabuf_dio_sink_wait(sink, 0), -ENODATA);
	expect(dmabuf_dio_sink_write(sink, BLOCKS, 1), -EINVAL);
	expect(dmabuf_dio_sink_write(sink, 0, 0), -EINVAL);
	expect(dmabuf_dio_sink_write(sink, 0, SIZE + 1), -ERANGE);
	expect(pthread_create(&thread, NULL, elsewhere, sink), 0);
	expect(pthread_join(thread, NULL), 0);
	send_all(sink);
	check_file("samples", LENGTH, 7);
}

/* A process of its own receives. */
static void to_socket(int (*connected)(int *))
{
	struct dmabuf_dio_sink *sink;
	int theirs, ours = connected(&theirs), status;
	pid_t child = fork();

	if (!child) {
		static unsigned char bytes[KIB(64)];
		uint64_t at = 0;
		ssize_t got;

		close(ours);
		while ((got = read(theirs, bytes, sizeof(bytes))) > 0) {
			check_pattern(bytes, at, got, 7);
			at += got;
		}
		expect(got, 0);
		expect(at, LENGTH);
		_exit(0);
	}
	close(theirs);
	expect(dmabuf_dio_sink_socket(ours, fds, BLOCKS, SIZE, &sink), 0);
	close(ours);
	send_all(sink);
	expect(waitpid(child, &status, 0), child);
	expect(status, 0);
}

static int unix_pair(int *theirs)
{
	int pair[2];

	expect(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	*theirs = pair[1];
	return pair[0];
}

static int tcp_pair(int *theirs)
{
	struct sockaddr_in address;
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), ours = socket(AF_INET, SOCK_STREAM, 0);

	memset(&address, 0, sizeof(address));
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	expect(bind(listener, (struct sockaddr *)&address, length), 0);
	expect(listen(listener, 1), 0);
	expect(getsockname(listener, (struct sockaddr *)&address, &length), 0);
	expect(connect(ours, (struct sockaddr *)&address, length), 0);
	*theirs = accept(listener, NULL, NULL);
	check(*theirs >= 0);
	close(listener);
	return ours;
}

/* A sink that cannot be made leaves nothing behind. */
static void refused(void)
{
	struct dmabuf_dio_sink *sink = (struct dmabuf_dio_sink *)&sink;
	int file, none = -1;

	expect(dmabuf_dio_sink_file("none", fds, 0, SIZE, &sink), -EINVAL);
	check(!sink);
	expect(dmabuf_dio_sink_file("none", fds, BLOCKS, SIZE * 1000, &sink), -ERANGE);
	expect(dmabuf_dio_sink_file("none", NULL, BLOCKS, SIZE, &sink), -EFAULT);
	expect(dmabuf_dio_sink_file("none", &none, 1, SIZE, &sink), -EBADF);
	check(access("none", F_OK) < 0);
	expect(dmabuf_dio_sink_file("no/such/folder", fds, BLOCKS, SIZE, &sink), -ENOENT);
	check(strstr(dmabuf_dio_error_message(), "no/such/folder"));
	expect(dmabuf_dio_sink_file(NULL, fds, BLOCKS, SIZE, &sink), -EFAULT);
	expect(dmabuf_dio_sink_usb("no/such/folder", fds, BLOCKS, SIZE, &sink), -ENOENT);
	make_file("data", 100, 1);
	file = open("data", O_RDONLY);
	expect(dmabuf_dio_sink_file("none", &file, 1, 100, &sink), -EINVAL);
	close(file);
	expect(dmabuf_dio_sink_write(NULL, 0, 1), -EFAULT);
	expect(dmabuf_dio_sink_wait(NULL, 0), -EFAULT);
	expect(dmabuf_dio_sink_finish(NULL), -EFAULT);
	expect(strlen(dmabuf_dio_sink_how(NULL)), 0);
	dmabuf_dio_sink_free(NULL);
}

static void all(int dmabufs)
{
	unsigned int descriptors;
	int i;

	for (i = 0; i < BLOCKS; i++) {
		if (dmabufs)
			expect(dmabuf_dio_buffer_alloc(NULL, SIZE, &buffers[i]), 0);
		else
			buffers[i] = memfd_of(SIZE, 0xee);
		fds[i] = dmabuf_dio_buffer_fd(buffers[i]);
	}
	descriptors = open_descriptors();
	refused();
	to_file();
	to_socket(unix_pair);
	to_socket(tcp_pair);
	expect(open_descriptors(), descriptors);
	for (i = 0; i < BLOCKS; i++)
		dmabuf_dio_buffer_free(buffers[i]);
}

int main(void)
{
	struct dmabuf_dio_buffer *buffer;

	all(0);
	if (dmabuf_dio_buffer_alloc(NULL, 4096, &buffer)) {
		/* A guest's kernels have the system heap. */
		check(!getenv("DMABUF_DIO_KERNEL"));
		printf("no dma-bufs: %s\n", dmabuf_dio_error_message());
		return 0;
	}
	dmabuf_dio_buffer_free(buffer);
	all(1);
	return 0;
}
