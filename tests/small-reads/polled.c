// SPDX-License-Identifier: GPL-2.0-only
/*
 * Polled reads: the poller finds the bios of the short path, and reads that fall back are
 * polled as before. Needs nvme.poll_queues=1.
 */
#include "small.h"

#define LENGTH	MIB(1)
#define DEPTH	32
#define HOLE	KIB(64)

static struct io_uring ring;
static unsigned char *memory, *content;
static int file;

static void read_polled(uint64_t position, size_t length, enum path path)
{
	struct hits before = hits();
	double begin = seconds();
	unsigned int i;

	trying("%zu bytes at %llu", length, (unsigned long long)position);
	memset(memory, 0x5a, DEPTH * length);
	for (i = 0; i < DEPTH; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

		io_uring_prep_read_fixed(sqe, file, memory + i * length, length, position, 0);
	}
	expect(io_uring_submit(&ring), DEPTH);
	for (i = 0; i < DEPTH; i++)
		expect(ring_result(&ring, NULL), length);
	/* A read that the poller misses completes when the disk's driver times out. */
	check(seconds() - begin < 8);
	for (i = 0; i < DEPTH; i++)
		bytes_check(memory + i * length, content + position, length);
	expect_path(hits_since(before), path, DEPTH);
}

/* Interrupts of all queues of all disks */
static uint64_t interrupts(void)
{
	static char text[KIB(64)];
	uint64_t count = 0;
	char *line;

	check(proc_read("/proc/interrupts", text, sizeof(text)));
	for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		char *at = strchr(line, ':'), *end;

		if (!strstr(line, "nvme") || !at)
			continue;
		for (at++;; at = end) {
			uint64_t number = strtoull(at, &end, 10);

			if (end == at)
				break;
			count += number;
		}
	}
	return count;
}

/* One round without any interrupt; the file system may cause some of its own. */
static void read_without_interrupts(enum path path)
{
	unsigned int i;

	for (i = 0; i < 10; i++) {
		uint64_t before = interrupts();

		read_polled(8192, 4096, path);
		if (interrupts() == before)
			return;
		sleep_ms(300);
	}
	fail("the disk interrupts for polled reads");
}

int main(void)
{
	char queues[16] = "0";
	struct iovec vector;
	int plain, on;

	hits();
	test_fs();
	proc_read("/sys/module/nvme/parameters/poll_queues", queues, sizeof(queues));
	if (!atoi(queues) || strcmp(getenv("DMABUF_DIO_DEVICE") ?: "", "nvme"))
		skip("no queue to poll: boot with nvme.poll_queues=1");

	file_pattern("data", LENGTH, 1);
	plain = file_open("data", O_RDWR);
	fd_punch(plain, HOLE, 4096);
	content = allocate(LENGTH);
	fd_read(plain, content, LENGTH, 0);
	zero_check(content + HOLE, 4096);
	close(plain);
	file_settle("data");

	file = file_open("data", O_RDONLY | O_DIRECT);
	memory = allocate(DEPTH * 8192);
	vector = (struct iovec){ memory, DEPTH * 8192 };
	check(!io_uring_queue_init(DEPTH, &ring, IORING_SETUP_IOPOLL));
	expect(io_uring_register_buffers(&ring, &vector, 1), 0);
	for (on = 0; on < 2; on++) {
		small_switch(on);
		read_without_interrupts(on ? SHORT : LONG);
		read_polled(8192 + 512, 512, on ? SHORT : LONG);
		read_polled(16384, 8192, LONG);
		read_polled(HOLE, 4096, on ? FELL_BACK : LONG);
	}
	io_uring_queue_exit(&ring);
	close(file);
	return 0;
}
