// SPDX-License-Identifier: GPL-2.0-only
/*
 * Files with a model of their content
 */
#include "model.h"

static struct reader reader;

void file_empty(struct file *f, const char *path, uint64_t length)
{
	if (!reader.data)
		reader_create(&reader);
	*f = (struct file){ .path = path, .length = length };
	f->model = allocate(LARGE);
	memset(f->model, 0, LARGE);
	f->fd = file_open(path, O_RDWR | O_CREAT | O_TRUNC);
	f->direct = file_open(path, O_RDWR | O_DIRECT);
	check(!ftruncate(f->fd, length));
}

void file_create(struct file *f, const char *path, bool many)
{
	uint64_t at;

	file_empty(f, path, many ? LARGE : SMALL);
	if (many)
		for (at = 0; at < f->length; at += 2 * BLOCK)
			file_put(f, at, BLOCK, BUFFERED);
	else
		file_put(f, 0, f->length, BUFFERED);
	check(!fsync(f->fd));
}

void file_remove(struct file *f)
{
	close(f->fd);
	close(f->direct);
	check(!unlink(f->path));
	free(f->model);
}

void file_put(struct file *f, uint64_t position, uint64_t length, enum how how)
{
	static uint64_t seed = 1;
	unsigned char *data = f->model + position;

	pattern_fill(data, position, length, ++seed);
	fd_write(how == DIRECT ? f->direct : f->fd, data, length, position);
	if (how == SYNCED)
		check(!fsync(f->fd));
}

void file_check(struct file *f, const char *when)
{
	static unsigned int turn;
	unsigned int i, ways = f->length > SMALL ? 2 : WAYS;

	/* Rotate the first interface: the first read is the real test. */
	turn++;
	for (i = 0; i < ways; i++) {
		unsigned int way = (turn + i) % WAYS;
		uint64_t at;

		expect(read_direct(&reader, way, f->direct, 0, f->length), f->length);
		if (!memcmp(reader.data, f->model, f->length))
			continue;
		for (at = 0; reader.data[at] == f->model[at];)
			at++;
		at -= at % BLOCK;
		fprintf(stderr, "%s: the %u. read, %s of %llu, differs from byte %llu on\n",
			when, i + 1, method_names[way_method(way)],
			(unsigned long long)way_piece(way), (unsigned long long)at);
		bytes_check(reader.data + at, f->model + at, BLOCK);
	}
}

void file_prime(struct file *f)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		read_direct(&reader, 2 * (i ? RING : SYNC), f->direct, 0, f->length);
		bytes_check(reader.data, f->model, f->length);
	}
	file_check(f, "before");
}
