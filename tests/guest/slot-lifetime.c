// SPDX-License-Identifier: GPL-2.0-only
/* A slot outlives the fds it was made from and pins the module; then everything is freed. */
#include "ring.h"

#define LENGTH	MIB(8)

/* A mapping would keep the buffer alive: check the content through a file instead. */
static void through_file(struct io_uring *ring, int file)
{
	int copy = file_open("copy", O_RDWR | O_CREAT | O_TRUNC);

	expect(slot_io(ring, false, file, 0, 0, LENGTH, 0), LENGTH);
	expect(slot_io(ring, true, copy, 0, 0, LENGTH, 0), LENGTH);
	fd_pattern_check(copy, 0, LENGTH, 1);
	close(copy);
}

static void lifetime(struct buffer *buf)
{
	int file = file_open("data", O_RDONLY);
	int dev = dio_context(buf);
	struct io_uring ring;

	ring_create(&ring, 8, 2);
	expect(slot_register(&ring, dev, 0, 0, LENGTH, SLOT_BOTH), 0);
	close(dev);
	through_file(&ring, file);
	buffer_forget(buf);
	through_file(&ring, file);
	expect(module_remove("dmabuf_dio"), -EAGAIN);
	check(module_users("dmabuf_dio") >= 1);

	expect(slot_unregister(&ring, 0), 1);
	expect(slot_io(&ring, false, file, 0, 0, PAGE, 0), -EFAULT);
	module_wait_users(0);
	io_uring_queue_exit(&ring);
	close(file);
}

/* Closing the ring removes the slot. */
static void ring_gone(struct buffer *buf)
{
	uint64_t before;
	unsigned int i;

	unmap(buf->map, buf->length);
	buf->map = NULL;
	before = memory_available();
	for (i = 0; i < 20; i++) {
		int dev = dio_context(buf);
		struct io_uring ring;

		ring_create(&ring, 8, 2);
		expect(slot_register(&ring, dev, 0, 0, LENGTH, SLOT_BOTH), 0);
		expect(slot_register(&ring, dev, 1, PAGE, LENGTH - PAGE, SLOT_BOTH), 0);
		if (i % 2)
			close(dev);
		io_uring_queue_exit(&ring);
		if (!(i % 2))
			close(dev);
	}
	close(buf->fd);
	buf->fd = -1;
	module_wait_users(0);
	expect_memory_back(before, MIB(24));
}

/* Killing a child closes its ring. */
static void owner_killed(struct buffer *buf)
{
	int pipes[2];
	char byte;
	pid_t pid;

	check(!pipe(pipes));
	pid = spawn();
	if (!pid) {
		int dev = dio_context(buf);
		struct io_uring ring;

		ring_create(&ring, 8, 2);
		expect(slot_register(&ring, dev, 0, 0, LENGTH, SLOT_BOTH), 0);
		check(write(pipes[1], "x", 1) == 1);
		for (;;)
			pause();
	}
	check(read(pipes[0], &byte, 1) == 1);
	kill_child(pid);
	buffer_forget(buf);
	close(pipes[0]);
	close(pipes[1]);
	module_wait_users(0);
}

/* A child inherits the ring by fork: the slot lives until both have closed it. */
static void inherited(struct buffer *buf)
{
	int file = file_open("data", O_RDONLY);
	int dev = dio_context(buf);
	struct io_uring ring;
	pid_t pid;

	ring_create(&ring, 8, 1);
	expect(slot_register(&ring, dev, 0, 0, LENGTH, SLOT_BOTH), 0);
	close(dev);
	pid = spawn();
	if (!pid) {
		through_file(&ring, file);
		exit(0);
	}
	reap(pid);
	buffer_check(buf, 0, 0, LENGTH, 1);
	io_uring_queue_exit(&ring);
	close(file);
}

int main(void)
{
	need_slots();
	file_pattern("data", LENGTH, 1);
	for_each_kind_with_slots(LENGTH, lifetime);
	for_each_kind_with_slots(LENGTH, ring_gone);
	for_each_kind_with_slots(LENGTH, owner_killed);
	for_each_kind_with_slots(LENGTH, inherited);

	module_wait_users(0);
	expect(module_remove("dmabuf_dio"), 0);
	expect(module_insert("dmabuf_dio", ""), 0);
	return 0;
}
