// SPDX-License-Identifier: GPL-2.0-only
/*
 * Detects the path of a read, and has all interfaces for reading
 */
#include <sys/syscall.h>
#include <sys/uio.h>

#include "small.h"

#define SWITCH	"/sys/module/iomap/parameters/simple_read"
#define TRACING	"/sys/kernel/tracing/"

bool small_has_switch(void)
{
	return !access(SWITCH, F_OK);
}

void small_switch(bool on)
{
	if (small_has_switch())
		proc_write(SWITCH, on ? "1" : "0");
}

static const struct {
	const char *name, *function;
	size_t place;
} probes[] = {
	{ "tried", "iomap_dio_simple_read", offsetof(struct hits, tried) },
	{ "ordinary", "__iomap_dio_rw", offsetof(struct hits, ordinary) },
	{ "deferred", "iomap_dio_simple_work", offsetof(struct hits, deferred) },
};

static void probes_install(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		char text[128];
		int fd = open(TRACING "kprobe_events", O_WRONLY | O_APPEND | O_CLOEXEC);

		check(fd >= 0);
		snprintf(text, sizeof(text), "p:small/%s %s\n", probes[i].name,
			 probes[i].function);
		/* The probes of an earlier test still exist. */
		check(write(fd, text, strlen(text)) > 0 || errno == EEXIST);
		close(fd);
	}
	proc_write(TRACING "events/small/enable", "1");
	small_switch(true);
}

struct hits hits(void)
{
	static bool installed;
	struct hits found = {};
	static char text[KIB(4)];
	unsigned int i;

	if (!small_has_switch()) {
		if (!guest_with_series())
			skip("this kernel has no short path");
		return found;
	}
	if (!installed)
		probes_install();
	installed = true;
	check(proc_read(TRACING "kprobe_profile", text, sizeof(text)));
	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		char name[32], *line;

		snprintf(name, sizeof(name), "  %s ", probes[i].name);
		line = strstr(text, name);
		check(line);
		*(uint64_t *)((char *)&found + probes[i].place) =
			strtoull(line + strlen(name), NULL, 10);
	}
	return found;
}

struct hits hits_since(struct hits before)
{
	struct hits now = hits();

	now.tried -= before.tried;
	now.ordinary -= before.ordinary;
	now.deferred -= before.deferred;
	return now;
}

void expect_path_at(const char *file, int line, struct hits since, enum path path,
		    unsigned int reads)
{
	bool tried = path == SHORT || path == FELL_BACK || path == REFUSED;
	bool ordinary = path == LONG || path == FELL_BACK;

	if (!small_has_switch())
		return;
	expect_at(file, line, "reads that tried the short path", since.tried, tried * reads);
	expect_at(file, line, "reads by the ordinary path", since.ordinary, ordinary * reads);
}

void expect_tried(struct hits since)
{
	check(!small_has_switch() || since.tried);
}

void expect_mostly_short(struct hits since)
{
	check(!small_has_switch() || since.tried > since.ordinary);
}

void expect_deferred(struct hits since, unsigned int errors)
{
	if (small_has_switch())
		expect(since.deferred, errors);
}

const char * const way_names[WAYS] = {
	[SYNC] = "pread", [VECTORS] = "preadv", [AIO] = "aio", [URING] = "io_uring",
	[URING_FIXED] = "io_uring, registered",
};

static ssize_t read_vectors(int fd, char *memory, size_t length, uint64_t position)
{
	unsigned int i, count = (length + 511) / 512;
	char *pages = allocate(count * PAGE);
	struct iovec vectors[count];
	ssize_t ret;

	for (i = 0; i < count; i++)
		vectors[i] = (struct iovec){ pages + i * PAGE + i % 8 * 512, 512 };
	vectors[count - 1].iov_len = length - (count - 1) * 512;
	/* The caller checks its memory, including the part that must not change. */
	for (i = 0; i < count; i++)
		memcpy(vectors[i].iov_base, memory + i * 512, vectors[i].iov_len);
	ret = preadv(fd, vectors, count, position);
	if (ret < 0)
		ret = -errno;
	for (i = 0; i < count; i++)
		memcpy(memory + i * 512, vectors[i].iov_base, vectors[i].iov_len);
	free(pages);
	return ret;
}

void aio_wait(aio_context_t context, unsigned int count, struct io_event *events)
{
	unsigned int done = 0;

	while (done < count) {
		long ret = syscall(SYS_io_getevents, context, count - done, count - done,
				   events + done, NULL);

		/* Leftover work of an earlier ring may interrupt. */
		check(ret >= 0 || errno == EINTR);
		if (ret > 0)
			done += ret;
	}
}

static ssize_t read_aio(int fd, void *memory, size_t length, uint64_t position)
{
	struct iocb iocb = {
		.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = fd,
		.aio_buf = (uintptr_t)memory, .aio_nbytes = length, .aio_offset = position,
	}, *list = &iocb;
	struct io_event event = {};
	aio_context_t context = 0;
	ssize_t ret;

	check(!syscall(SYS_io_setup, 1, &context));
	ret = syscall(SYS_io_submit, context, 1, &list);
	if (ret == 1) {
		aio_wait(context, 1, &event);
		ret = event.res;
	} else {
		ret = -errno;
	}
	check(!syscall(SYS_io_destroy, context));
	return ret;
}

static ssize_t read_uring(bool fixed, int fd, void *memory, size_t length, uint64_t position)
{
	struct iovec vector = { memory, length ? length : 1 };
	struct io_uring_sqe *sqe;
	struct io_uring ring;
	ssize_t ret;

	check(!io_uring_queue_init(1, &ring, 0));
	sqe = io_uring_get_sqe(&ring);
	if (fixed) {
		expect(io_uring_register_buffers(&ring, &vector, 1), 0);
		expect(io_uring_register_files(&ring, &fd, 1), 0);
		io_uring_prep_read_fixed(sqe, 0, memory, length, position, 0);
		sqe->flags |= IOSQE_FIXED_FILE;
	} else {
		io_uring_prep_read(sqe, fd, memory, length, position);
	}
	expect(io_uring_submit_and_wait(&ring, 1), 1);
	ret = ring_result(&ring, NULL);
	io_uring_queue_exit(&ring);
	return ret;
}

ssize_t read_by(enum way way, int fd, void *memory, size_t length, uint64_t position)
{
	ssize_t ret;

	switch (way) {
	case VECTORS:
		return read_vectors(fd, memory, length, position);
	case AIO:
		return read_aio(fd, memory, length, position);
	case URING:
	case URING_FIXED:
		return read_uring(way == URING_FIXED, fd, memory, length, position);
	default:
		ret = pread(fd, memory, length, position);
		return ret < 0 ? -errno : ret;
	}
}

void blocks_send(struct io_uring *ring, int fd, void *memory, unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

		check(sqe);
		io_uring_prep_read(sqe, fd, (char *)memory + i * BLOCK, BLOCK, i * BLOCK);
		sqe->user_data = i;
	}
	expect(io_uring_submit(ring), count);
}

#define CANARY	0x5a

static void read_once(const char *file, int line, const struct reading *r, enum way way,
		      bool on)
{
	size_t size = (r->shift + r->length + 3 * PAGE) & -PAGE;
	unsigned char *pages = allocate(size), *memory = pages + PAGE + r->shift;
	enum path path = r->path;
	struct hits before, since;
	size_t i, end;
	ssize_t ret;

	if (!on && path != BUFFERED)
		path = LONG;
	trying("%s, switch %s: %zu bytes at %llu to %#zx", way_names[way], on ? "on" : "off",
	       r->length, (unsigned long long)r->position, r->shift);
	memset(pages, CANARY, size);
	before = hits();
	ret = read_by(way, r->fd, memory, r->length, r->position);
	since = hits_since(before);
	expect_at(file, line, "what the read returns", ret, r->result);
	/* io_uring may read the missing part again. */
	if (way >= URING && ret > 0 && ret < (ssize_t)r->length && since.ordinary == 2)
		since.ordinary = 1;
	expect_path_at(file, line, since, path, 1);
	if (ret > 0)
		bytes_check_at(file, line, memory, r->content, ret);

	/* The block that contains the end of the file may be read completely. */
	end = PAGE + r->shift + (ret > 0 ? r->length : 0);
	for (i = 0; i < size; i++) {
		if (i >= PAGE + r->shift && i < end)
			continue;
		if (pages[i] != CANARY)
			fail("byte %zd of memory beside the read was changed",
			     (ssize_t)(i - PAGE - r->shift));
	}
	free(pages);
}

void read_all_ways_at(const char *file, int line, const struct reading *r)
{
	enum way way;

	for (way = 0; way < WAYS; way++) {
		if (way == VECTORS && (r->shift || r->whole || !r->length))
			continue;
		if (small_has_switch()) {
			small_switch(false);
			read_once(file, line, r, way, false);
			small_switch(true);
		}
		read_once(file, line, r, way, true);
	}
}
