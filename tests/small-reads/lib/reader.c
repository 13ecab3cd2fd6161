// SPDX-License-Identifier: GPL-2.0-only
/*
 * Direct reads and writes of whole files, many at once, by every method
 */
#include <sys/syscall.h>

#include "reader.h"

#define DEPTH	32

const char * const method_names[METHODS] = {
	"sync", "libaio", "io_uring", "io_uring fixed",
};

/* Consecutive blocks, in the file as in r->data */
struct batch {
	int fd;
	uint64_t position;		/* of block 0 */
	size_t piece;
	unsigned int first, count;
	bool write;
};

void reader_create(struct reader *r)
{
	struct iovec vec = { .iov_len = READ_MOST };

	memset(r, 0, sizeof(*r));
	r->data = allocate(READ_MOST);
	vec.iov_base = r->data;
	check(!syscall(SYS_io_setup, DEPTH, &r->aio));
	r->has_ring = !io_uring_queue_init(DEPTH, &r->ring, 0);
	if (r->has_ring)
		expect(io_uring_register_buffers(&r->ring, &vec, 1), 0);
}

void reader_destroy(struct reader *r)
{
	syscall(SYS_io_destroy, r->aio);
	if (r->has_ring)
		io_uring_queue_exit(&r->ring);
	free(r->data);
}

static void move_sync(struct reader *r, const struct batch *b, unsigned int i)
{
	unsigned char *data = r->data + i * b->piece;
	off_t position = b->position + i * b->piece;
	ssize_t ret = b->write ? pwrite(b->fd, data, b->piece, position) :
				 pread(b->fd, data, b->piece, position);

	r->results[i] = ret < 0 ? -errno : ret;
}

static void move_aio(struct reader *r, const struct batch *b)
{
	struct iocb iocbs[DEPTH], *pointers[DEPTH];
	struct io_event events[DEPTH];
	unsigned int i, sent = 0, got = 0;
	long ret;

	for (i = 0; i < b->count; i++) {
		unsigned int number = b->first + i;

		pointers[i] = &iocbs[i];
		iocbs[i] = (struct iocb){
			.aio_data = number,
			.aio_lio_opcode = b->write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
			.aio_fildes = b->fd,
			.aio_buf = (uintptr_t)r->data + number * b->piece,
			.aio_nbytes = b->piece,
			.aio_offset = b->position + number * b->piece,
		};
	}
	while (got < b->count) {
		if (sent < b->count) {
			ret = syscall(SYS_io_submit, r->aio, b->count - sent, pointers + sent);
			if (ret < 0)
				fail("io_submit: %s", strerror(errno));
			sent += ret;
		}
		ret = syscall(SYS_io_getevents, r->aio, 1, DEPTH, events, NULL);
		if (ret < 0 && errno == EINTR)
			continue;
		check(ret > 0);
		for (i = 0; i < ret; i++)
			r->results[events[i].data] = events[i].res;
		got += ret;
	}
}

static void move_ring(struct reader *r, const struct batch *b, int op)
{
	unsigned int i;

	for (i = b->first; i < b->first + b->count; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);

		check(sqe);
		io_uring_prep_rw(op, sqe, b->fd, r->data + i * b->piece, b->piece,
				 b->position + i * b->piece);
		sqe->user_data = i;
	}
	expect(io_uring_submit(&r->ring), b->count);
	for (i = 0; i < b->count; i++) {
		uint64_t number;
		int ret = ring_result(&r->ring, &number);

		r->results[number] = ret;
	}
}

static void move_batch(struct reader *r, enum method method, const struct batch *b)
{
	unsigned int i;

	switch (method) {
	case AIO:
		move_aio(r, b);
		break;
	case RING:
		move_ring(r, b, b->write ? IORING_OP_WRITE : IORING_OP_READ);
		break;
	case RING_FIXED:
		move_ring(r, b, b->write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED);
		break;
	default:
		for (i = b->first; i < b->first + b->count; i++)
			move_sync(r, b, i);
	}
}

static uint64_t move_direct(struct reader *r, unsigned int way, struct batch *b, uint64_t length)
{
	unsigned int i, pieces = length / b->piece;
	enum method method = way_method(way);
	uint64_t done = 0;

	if (method >= RING && !r->has_ring)
		method = AIO;
	for (i = 0; i < pieces; i += DEPTH) {
		b->first = i;
		b->count = pieces - i < DEPTH ? pieces - i : DEPTH;
		move_batch(r, method, b);
	}
	for (i = 0; i < pieces; i++) {
		/* io_uring on older kernels does not always retry by itself. */
		if (r->results[i] == -EAGAIN)
			move_sync(r, b, i);
		if (r->results[i] < 0)
			fail("%s of %zu at %llu, %s: %s", b->write ? "write" : "read", b->piece,
			     (unsigned long long)(b->position + i * b->piece),
			     method_names[method], strerror(-r->results[i]));
		done += r->results[i];
	}
	return done;
}

uint64_t read_direct(struct reader *r, unsigned int way, int fd, uint64_t position,
		     uint64_t length)
{
	struct batch batch = { .fd = fd, .position = position, .piece = way_piece(way) };

	memset(r->data, 0, length);
	return move_direct(r, way, &batch, length);
}

void write_direct(struct reader *r, unsigned int way, int fd, uint64_t position,
		  uint64_t length)
{
	struct batch batch = {
		.fd = fd, .position = position, .piece = way_piece(way), .write = true,
	};

	expect(move_direct(r, way, &batch, length), length);
}
