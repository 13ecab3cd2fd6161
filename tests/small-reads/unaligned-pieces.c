// SPDX-License-Identifier: GPL-2.0-only
/*
 * A read of a block into unaligned pieces of registered memory is correct or refused. A RAM disk takes
 * each bio unchecked, because it has no requests.
 */
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "small.h"

/* IORING_OP_READV_FIXED of <linux/io_uring.h>, since Linux 6.16 */
#define READV_FIXED	60
#define RAM_DISK	"/dev/ram0"

static bool can_read_pieces(struct io_uring *ring)
{
	struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
	bool can = probe && io_uring_opcode_supported(probe, READV_FIXED);

	io_uring_free_probe(probe);
	return can;
}

static int read_pieces(struct io_uring *ring, int fd, const struct iovec *pieces, unsigned int count,
		       uint64_t position)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	uint64_t user_data;

	check(sqe);
	io_uring_prep_readv(sqe, fd, pieces, count, position);
	sqe->opcode = READV_FIXED;
	sqe->buf_index = 0;
	check(io_uring_submit(ring) == 1);
	return ring_result(ring, &user_data);
}

int main(void)
{
	/* The start and the length of the first of two pieces */
	static const struct { size_t begin, length; } cases[] = {
		{ 0, 512 }, { 0, 100 }, { 100, 412 }, { 100, 4000 }, { 512, 3000 }, { 1, 4095 },
	};
	unsigned char *memory = allocate(2 * BLOCK);
	const char *type = test_fs();
	struct io_uring ring;
	struct iovec all = { memory, 2 * BLOCK };
	unsigned int done = 0, i;
	int fd;

	if (access(RAM_DISK, F_OK))
		skip("no RAM disk");
	ring_create(&ring, 1, 0);
	if (!can_read_pieces(&ring))
		skip("this kernel does not read into pieces of registered memory");
	check(fs_format(RAM_DISK, type, ""));
	fs_mount(RAM_DISK, type, NULL);
	file_pattern("mnt/file", KIB(64), 1);
	file_settle("mnt/file");
	fd = file_open("mnt/file", O_RDONLY | O_DIRECT);
	check(!io_uring_register_buffers(&ring, &all, 1));
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct iovec pieces[] = {
			{ memory + cases[i].begin, cases[i].length },
			{ memory + cases[i].begin + cases[i].length, BLOCK - cases[i].length },
		};
		int ret;

		trying("%zu bytes at %zu, then the rest of the block", cases[i].length, cases[i].begin);
		memset(memory, 0, 2 * BLOCK);
		ret = read_pieces(&ring, fd, pieces, 2, BLOCK);
		if (ret == -EINVAL)
			continue;
		expect(ret, BLOCK);
		pattern_check(memory + cases[i].begin, BLOCK, BLOCK, 1);
		zero_check(memory, cases[i].begin);
		zero_check(memory + cases[i].begin + BLOCK, BLOCK - cases[i].begin);
		done++;
	}
	/* At least the pieces whose ends are multiples of 512 bytes */
	check(done);
	io_uring_queue_exit(&ring);
	close(fd);
	disk_unmount();
	free(memory);
	return 0;
}
