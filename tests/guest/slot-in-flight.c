// SPDX-License-Identifier: GPL-2.0-only
/*
 * A slot is removed, or its ring and fds are closed, while requests use it: the
 * requests complete, and the memory is freed only after them.
 */
#include <sys/syscall.h>

#include "ring.h"

#define LENGTH	MIB(16)
#define PIECE	KIB(512)
#define COUNT	(LENGTH / PIECE)
#define ROUNDS	2

static bool direct;

static void queue_all(struct io_uring *ring, bool write, int file)
{
	unsigned int i;

	for (i = 0; i < COUNT; i++)
		slot_queue(ring, write, file, 0, i * PIECE, PIECE, i * PIECE, i);
	expect(io_uring_submit(ring), COUNT);
}

static void unregistered(struct buffer *buf)
{
	int file = file_open("data", O_RDONLY | direct_flag(direct));
	int dev = dio_context(buf);
	unsigned int i, round;
	struct io_uring ring;

	ring_create(&ring, 128, 1);
	for (round = 0; round < ROUNDS; round++) {
		trying("%s, %s, unregister, round %u", buffer_names[buf->kind],
		       direct ? "direct" : "buffered", round);
		buffer_pattern(buf, 2);
		expect(slot_register(&ring, dev, 0, 0, LENGTH, SLOT_BOTH), 0);
		queue_all(&ring, false, file);
		expect(slot_unregister(&ring, 0), 1);
		for (i = 0; i < COUNT; i++)
			expect(ring_result(&ring, NULL), PIECE);
		pattern_check(buf->map, 0, LENGTH, 1);
		expect(slot_io(&ring, false, file, 0, 0, PAGE, 0), -EFAULT);
	}
	io_uring_queue_exit(&ring);
	close(dev);
	close(file);
}

/* Everything is closed at once; writing to the memory detects a premature free. */
static void closed(struct buffer *buf)
{
	unsigned int round;
	unsigned char *mine;

	trying("%s, %s, close", buffer_names[buf->kind], direct ? "direct" : "buffered");
	buffer_forget(buf);
	for (round = 0; round < ROUNDS; round++) {
		int file = file_open("data", O_RDONLY | direct_flag(direct));
		struct buffer own;
		struct io_uring ring;
		int dev;

		buffer_create(&own, buf->kind, LENGTH);
		dev = dio_context(&own);
		ring_create(&ring, 128, 1);
		expect(slot_register(&ring, dev, 0, 0, LENGTH, SLOT_BOTH), 0);
		queue_all(&ring, false, file);
		close(dev);
		buffer_destroy(&own);
		io_uring_queue_exit(&ring);
		close(file);

		mine = allocate(LENGTH * 2);
		sleep_ms(20);
		/* allocate() has set all bytes to one value. */
		if (memcmp(mine, mine + 1, LENGTH * 2 - 1))
			fail("memory of ours was written to");
		free(mine);
	}
	module_wait_users(0);
}

/* SIGKILL of the owner, with requests in flight in both directions */
static void killed(struct buffer *buf)
{
	unsigned int round;

	for (round = 0; round < 2 * ROUNDS; round++) {
		pid_t pid;

		trying("%s, %s, kill, round %u", buffer_names[buf->kind],
		       direct ? "direct" : "buffered", round);
		pid = spawn();
		if (!pid) {
			int file = file_open(round % 2 ? "copy" : "data",
					     O_RDWR | O_CREAT | direct_flag(direct));
			int dev = dio_context(buf);
			struct io_uring ring;
			unsigned int i;

			ring_create(&ring, 128, 1);
			expect(slot_register(&ring, dev, 0, 0, LENGTH, SLOT_BOTH), 0);
			for (;;) {
				queue_all(&ring, round % 2, file);
				for (i = 0; i < COUNT; i++)
					expect(ring_result(&ring, NULL), PIECE);
			}
		}
		sleep_ms(60 + round * 41);
		kill_child(pid);
	}
	unlink("copy");
}

int main(void)
{
	need_slots();
	file_pattern("data", LENGTH, 1);
	for (;;) {
		for_each_kind_with_slots(LENGTH, unregistered);
		for_each_kind_with_slots(LENGTH, killed);
		for_each_kind_with_slots(LENGTH, closed);
		if (direct || !direct_possible())
			return 0;
		direct = true;
	}
}
