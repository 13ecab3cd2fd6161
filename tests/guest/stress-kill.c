// SPDX-License-Identifier: GPL-2.0-only
/*
 * Several processes READ, WRITE and LOAD at random until they are killed, repeatedly;
 * afterwards everything still works and no memory is missing. timeout=180
 */
#include <signal.h>
#include <sys/wait.h>

#include "ring.h"

#define LENGTH		MIB(16)
#define CHILDREN	4
#define SECONDS		5

static struct buffer bufs[BUFFER_KINDS];
static unsigned int made;
static bool slots;

static void child(uint64_t state)
{
	/* "data" is only read, so that LOAD can be checked. */
	int fds[4] = {
		file_open("data", O_RDONLY),
		file_open("data", O_RDONLY | direct_flag(direct_possible())),
		file_open("scratch", O_RDWR | O_CREAT),
		file_open("scratch", O_RDWR | O_CREAT | direct_flag(direct_possible())),
	};

	for (;;) {
		struct buffer *buf = &bufs[random_below(&state, made)];
		uint64_t offset = random_below(&state, LENGTH / PAGE) * PAGE;
		struct dmabuf_dio_rw rw = {
			.file_fd = fds[random_below(&state, 4)],
			.file_offset = offset + random_below(&state, 2) * 123,
			.length = 1 + random_below(&state, LENGTH - offset),
			.chunk = PAGE << random_below(&state, 10),
			.depth = 1 + random_below(&state, 64),
		};
		int dev = dio_context(buf), i;

		rw.buf_offset = rw.file_offset;
		if (rw.buf_offset + rw.length > LENGTH)
			rw.length = LENGTH - rw.buf_offset;
		for (i = 0; i < 3; i++) {
			struct dmabuf_dio_load load = {
				.file_fd = fds[random_below(&state, 2)],
				.fd_flags = O_RDWR | O_CLOEXEC,
				.file_offset = offset,
				.length = LENGTH - offset,
				.chunk = rw.chunk,
				.depth = rw.depth,
				.gather = rw.length,
			};

			switch (random_below(&state, slots && slots_possible(buf) ? 4 : 3)) {
			case 0:
				expect(dio_read(dev, &rw), 0);
				break;
			case 1:
				rw.file_fd = fds[2 + random_below(&state, 2)];
				expect(dio_write(dev, &rw), 0);
				expect(rw.done, rw.length);
				break;
			case 2: {
				unsigned char *map;

				expect(dio_load(dev, &load), 0);
				map = map_dmabuf(load.dmabuf_fd, load.buf_length, 1);
				pattern_check(map, offset, load.length, 1);
				unmap(map, load.buf_length);
				close(load.dmabuf_fd);
				break;
			}
			case 3: {
				struct io_uring ring;
				unsigned int n;

				ring_create(&ring, 64, 1);
				expect(slot_register(&ring, dev, 0, 0, LENGTH, SLOT_BOTH), 0);
				for (n = 0; n < 16; n++)
					slot_queue(&ring, false, fds[0], 0, n * MIB(1),
						   MIB(1), n * MIB(1), n);
				io_uring_submit(&ring);
				if (random_below(&state, 2))
					expect(ring_result(&ring, NULL), MIB(1));
				io_uring_queue_exit(&ring);
				break;
			}
			}
		}
		close(dev);
	}
}

int main(void)
{
	struct dmabuf_dio_rw rw = { .length = LENGTH };
	pid_t pids[CHILDREN] = { 0 };
	unsigned int kind, i, deaths = 0;
	uint64_t before, state = 99;
	double end;

	slots = dio_has_slots();
	file_pattern("data", LENGTH, 1);
	file_pattern("scratch", LENGTH, 5);
	for (kind = 0; kind < BUFFER_KINDS; kind++)
		if (!buffer_try(&bufs[made], kind, LENGTH))
			buffer_pattern(&bufs[made++], 1);
	if (!made)
		skip("this machine makes no dma-bufs");
	before = memory_available();

	for (end = race_end(SECONDS); seconds() < end || deaths < 5;) {
		i = random_below(&state, CHILDREN);
		if (pids[i]) {
			int status;

			/* A process that has exited by itself has found an error. */
			if (waitpid(pids[i], &status, WNOHANG))
				fail("a child ended by itself: status %#x", status);
			kill_child(pids[i]);
			deaths++;
		}
		pids[i] = spawn();
		if (!pids[i])
			child(1 + random_below(&state, 1ULL << 50));
		sleep_ms(random_below(&state, 200));
	}
	for (i = 0; i < CHILDREN; i++) {
		if (pids[i]) {
			kill_child(pids[i]);
		}
	}
	printf("%u processes killed\n", deaths);

	for (i = 0; i < made; i++) {
		int dev = dio_context(&bufs[i]);

		trying("afterwards, %s", buffer_names[bufs[i].kind]);
		rw.file_fd = file_open("data", O_RDONLY | direct_flag(direct_possible()));
		expect(dio_read(dev, &rw), 0);
		expect(rw.done, LENGTH);
		pattern_check(bufs[i].map, 0, LENGTH, 1);
		close(rw.file_fd);
		close(dev);
	}
	expect_memory_back(before, MIB(48));
	return 0;
}
