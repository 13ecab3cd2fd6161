// SPDX-License-Identifier: GPL-2.0-only
/*
 * timeout=300: requests of a mapped buffer that the block layer merges: parts of a page after one another in
 * memory, and not; every byte
 */
#include "premap.h"
#include "ring.h"

#define LENGTH		MIB(1)
#define PIECES		8
#define SECTOR		512
#define LARGEST		KIB(16)
#define ROUNDS		100
#define SGL		"/sys/module/nvme/parameters/sgl_threshold"

/* The pieces of one call: a range of the disk, scattered in the buffer */
struct pieces {
	const char *what;
	struct {
		uint32_t at, len;
	} of[PIECES];
};

static const struct pieces some[] = {
	{ "pages", { { 0, 4096 }, { 4096, 4096 }, { 65536, 4096 }, { 69632, 8192 } } },
	{ "a page in two parts, then another", { { 0, 512 }, { 512, 3584 }, { 65536, 8192 } } },
	{ "the last page of the buffer in two parts",
	  { { LENGTH - 4096, 512 }, { LENGTH - 3584, 3584 }, { 0, 8192 } } },
	{ "one and a half pages, four times",
	  { { 0, 6144 }, { 6144, 6144 }, { 12288, 6144 }, { 18432, 6144 } } },
	{ "pages that begin within pages",
	  { { 512, 4096 }, { 4608, 4096 }, { 8704, 4096 }, { 12800, 4096 } } },
	{ "sectors of one page", { { 8192, 512 }, { 8704, 512 }, { 9216, 512 }, { 9728, 512 } } },
	{ "sectors of two pages", { { 3584, 512 }, { 4096, 512 }, { 4608, 512 } } },
	{ "backwards", { { 12288, 4096 }, { 8192, 4096 }, { 4096, 4096 }, { 0, 4096 } } },
};

static unsigned char *want, *got;

static void move(struct io_uring *ring, bool write, int disk, const struct pieces *pieces)
{
	uint64_t position = 0, i;
	unsigned int nr;

	for (nr = 0; nr < PIECES && pieces->of[nr].len; nr++) {
		slot_queue(ring, write, disk, 0, pieces->of[nr].at, pieces->of[nr].len, position, nr);
		position += pieces->of[nr].len;
	}
	/* In one call, so that the block layer sees them together */
	expect(io_uring_submit(ring), nr);
	while (nr--) {
		int ret = ring_result(ring, &i);

		expect(ret, pieces->of[i].len);
	}
}

/* Returns whether any were merged. */
static bool try(struct io_uring *ring, struct buffer *buf, int disk, const struct pieces *pieces,
		const char *how)
{
	uint64_t position = 0, requests;
	unsigned int i;

	trying("%s, %s, read", how, pieces->what);
	fd_pattern_write(disk, 0, LENGTH, 1);
	check(!fdatasync(disk));
	buffer_pattern(buf, 9);
	pattern_fill(want, 0, LENGTH, 9);
	for (i = 0; i < PIECES && pieces->of[i].len; i++) {
		pattern_fill(want + pieces->of[i].at, position, pieces->of[i].len, 1);
		position += pieces->of[i].len;
	}
	requests = disk_requests();
	move(ring, false, disk, pieces);
	requests = disk_requests() - requests;
	buffer_begin(buf);
	bytes_check(buf->map, want, LENGTH);
	buffer_end(buf);

	trying("%s, %s, write", how, pieces->what);
	buffer_pattern(buf, 2);
	pattern_fill(want, 0, LENGTH, 1);
	position = 0;
	for (i = 0; i < PIECES && pieces->of[i].len; i++) {
		pattern_fill(want + position, pieces->of[i].at, pieces->of[i].len, 2);
		position += pieces->of[i].len;
	}
	move(ring, true, disk, pieces);
	check(!fdatasync(disk));
	fd_read(disk, got, LENGTH, 0);
	bytes_check(got, want, LENGTH);
	return requests < i;
}

static bool overlaps(const struct pieces *pieces, unsigned int nr, uint32_t at, uint32_t len)
{
	while (nr--) {
		if (at < pieces->of[nr].at + pieces->of[nr].len && pieces->of[nr].at < at + len)
			return true;
	}
	return false;
}

/* Pieces have any size and place; half of them follow the previous one in memory. */
static void random_pieces(struct pieces *pieces, uint64_t *state)
{
	uint32_t at, len;
	unsigned int nr;

	for (nr = 0; nr < PIECES; nr++) {
		bool follows = nr && random_below(state, 2);

		do {
			len = (random_below(state, LARGEST / SECTOR) + 1) * SECTOR;
			at = follows ? pieces->of[nr - 1].at + pieces->of[nr - 1].len :
				       random_below(state, LENGTH / SECTOR) * SECTOR;
			follows = false;
		} while (at + len > LENGTH || overlaps(pieces, nr, at, len));
		pieces->of[nr].at = at;
		pieces->of[nr].len = len;
	}
}

int main(void)
{
	static const char * const thresholds[] = { "0", "512" };
	struct pieces random = { .what = "at random" };
	unsigned int i, j, merged = 0;
	uint64_t state = 1;
	struct io_uring ring;
	struct buffer buf;
	int disk, dev;

	need_premap();
	need_slots();
	want = allocate(LENGTH);
	got = allocate(LENGTH);
	disk = file_open(raw_disk(), O_RDWR | O_DIRECT);
	fd_pattern_write(disk, 0, LENGTH, 1);
	premap_begin(disk);
	buffer_create(&buf, BUFFER_LOAD, LENGTH);
	dev = dio_context(&buf);
	ring_create(&ring, PIECES, 1);
	expect(slot_register(&ring, dev, 0, 0, LENGTH, SLOT_BOTH), 0);
	premap_expect_tables(1);
	for (i = 0; i < ARRAY_SIZE(thresholds); i++) {
		proc_write(SGL, thresholds[i]);
		for (j = 0; j < ARRAY_SIZE(some); j++)
			merged += try(&ring, &buf, disk, &some[j], i ? "SGL" : "PRP");
		for (j = 0; j < ROUNDS; j++) {
			random_pieces(&random, &state);
			try(&ring, &buf, disk, &random, i ? "SGL" : "PRP");
		}
	}
	proc_write(SGL, "32768");
	/* Otherwise the test shows nothing. */
	check(merged);
	expect(slot_unregister(&ring, 0), 1);
	io_uring_queue_exit(&ring);
	close(dev);
	buffer_destroy(&buf);
	close(disk);
	premap_expect_tables(0);
	return 0;
}
