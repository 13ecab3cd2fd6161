// SPDX-License-Identifier: GPL-2.0-only
/*
 * A device that is not coherent has the buffer mapped
 * (kernel/sim/shadow_importer). It sees every byte that LOAD, READ and slots
 * stored. WRITE and slots see every byte that it stored. No byte outside of a
 * range is lost. timeout=300
 */
#include <sys/ioctl.h>

#include <linux/dma-buf.h>

#include "edu_importer/edu_importer.h"
#include "ring.h"

#define DEVICE	"/dev/shadow_importer"
/* Whole pages of any size. Buffers in huge pages are longer. */
#define LENGTH	(MIB(2) + KIB(64))
/* From an offset in the buffer to that in the file */
#define SHIFT	KIB(64)

static const struct {
	uint64_t at, length;
} ranges[] = {
	{ 0, LENGTH }, { KIB(64), KIB(128) }, { KIB(640) + 1000, KIB(900) + 321 }, { 5632, 2500 },
};

static bool direct;

static int import(const struct buffer *buf)
{
	int device = open(DEVICE, O_RDWR | O_CLOEXEC);

	check(device >= 0);
	check(!ioctl(device, EDU_IMPORT, buf->fd));
	return device;
}

static void device_stores(int device, const struct buffer *buf, uint64_t seed)
{
	unsigned char *data = allocate(buf->length);

	pattern_fill(data, 0, buf->length, seed);
	expect(pwrite(device, data, buf->length, 0), buf->length);
	free(data);
}

/* Checks that a range has the bytes of @seed, and the rest of the buffer the bytes of @rest. */
static void pattern_around(const unsigned char *data, const struct buffer *buf, uint64_t at,
			   uint64_t length, uint64_t seed, uint64_t rest)
{
	pattern_check(data, 0, at, rest);
	pattern_check(data + at, at + SHIFT, length, seed);
	pattern_check(data + at + length, at + length, buf->length - at - length, rest);
}

static void device_sees(int device, const struct buffer *buf, uint64_t at, uint64_t length,
			uint64_t seed, uint64_t rest)
{
	unsigned char *data = allocate(buf->length);

	expect(pread(device, data, buf->length, 0), buf->length);
	pattern_around(data, buf, at, length, seed, rest);
	free(data);
}

static void device_sees_all(int device, const struct buffer *buf, uint64_t seed)
{
	device_sees(device, buf, 0, 0, 0, seed);
}

/* Proves that missing synchronisation loses data here. */
static void nothing_without_synchronisation(struct buffer *buf, int device)
{
	trying("%s: nothing without synchronisation", buffer_names[buf->kind]);
	device_stores(device, buf, 1);
	buffer_begin(buf);
	pattern_check(buf->map, 0, buf->length, 1);
	pattern_fill(buf->map, 0, buf->length, 2);
	device_sees_all(device, buf, 1);
	buffer_end(buf);
	device_sees_all(device, buf, 2);
	device_stores(device, buf, 3);
	pattern_check(buf->map, 0, buf->length, 2);
	buffer_check(buf, 0, 0, buf->length, 3);
}

static void copy_has(uint64_t at, uint64_t length, uint64_t seed)
{
	int copy = file_open("copy", O_RDONLY);

	fd_pattern_check(copy, at, length, seed);
	close(copy);
}

static void reads_and_writes(struct buffer *buf, int device, int dev)
{
	int file = file_open("data", O_RDONLY | direct_flag(direct));
	int copy = file_open("copy", O_RDWR | O_CREAT | O_TRUNC | direct_flag(direct));
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ranges); i++) {
		struct dmabuf_dio_rw rw = {
			.file_fd = file, .file_offset = ranges[i].at + SHIFT,
			.buf_offset = ranges[i].at, .length = ranges[i].length, .chunk = KIB(256),
		};

		trying("%s, %s: %u bytes at %u", buffer_names[buf->kind],
		       direct ? "direct" : "buffered", (unsigned int)rw.length,
		       (unsigned int)rw.buf_offset);
		device_stores(device, buf, 10 + i);
		expect(dio_read(dev, &rw), 0);
		expect(rw.done, rw.length);
		device_sees(device, buf, rw.buf_offset, rw.length, 100, 10 + i);
		buffer_begin(buf);
		pattern_around(buf->map, buf, rw.buf_offset, rw.length, 100, 10 + i);
		buffer_end(buf);

		device_stores(device, buf, 20 + i);
		rw.file_fd = copy;
		rw.file_offset = rw.buf_offset;
		expect(dio_write(dev, &rw), 0);
		expect(rw.done, rw.length);
		copy_has(rw.file_offset, rw.length, 20 + i);
		device_sees_all(device, buf, 20 + i);
	}
	close(copy);
	close(file);
}

/* User space synchronises, as for a mapping. */
static void slots(struct buffer *buf, int device, int dev)
{
	int file = file_open("data", O_RDONLY | direct_flag(direct));
	int copy = file_open("copy", O_RDWR | O_CREAT | O_TRUNC | direct_flag(direct));
	uint64_t at = KIB(64), length = MIB(1);
	struct io_uring ring;

	trying("%s, %s: a slot", buffer_names[buf->kind], direct ? "direct" : "buffered");
	ring_create(&ring, 4, 1);
	expect(slot_register(&ring, dev, 0, 0, LENGTH, SLOT_BOTH), 0);

	device_stores(device, buf, 30);
	buffer_begin(buf);
	expect(slot_io(&ring, false, file, 0, at, length, at + SHIFT), length);
	device_sees_all(device, buf, 30);
	buffer_end(buf);
	device_sees(device, buf, at, length, 100, 30);

	device_stores(device, buf, 31);
	expect(buffer_sync(buf->fd, DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ), 0);
	/* Data that the device stores meanwhile is kept. */
	device_stores(device, buf, 32);
	expect(slot_io(&ring, true, copy, 0, at, length, at), length);
	expect(buffer_sync(buf->fd, DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ), 0);
	copy_has(at, length, 31);
	device_sees_all(device, buf, 32);

	io_uring_queue_exit(&ring);
	close(copy);
	close(file);
}

/* A buffer whose exporter does not synchronise devices is refused with the reason. */
static void unsynced(struct buffer *buf)
{
	int file = file_open("data", O_RDWR | direct_flag(direct)), dev = dio_context(buf), plain;
	struct dmabuf_dio_rw rw = { .file_fd = file, .length = LENGTH };
	int device = import(buf);

	trying("%s, %s: refused", buffer_names[buf->kind], direct ? "direct" : "buffered");
	pattern_fill(buf->map, 0, buf->length, 40);
	expect(dio_read(dev, &rw), -EBUSY);
	expect(rw.refusal, DMABUF_DIO_REFUSED_UNSYNCED);
	expect(rw.done, 0);
	pattern_check(buf->map, 0, buf->length, 40);
	expect(dio_write(dev, &rw), -EBUSY);
	expect(rw.refusal, DMABUF_DIO_REFUSED_UNSYNCED);
	plain = file_open("data", O_RDONLY);
	fd_pattern_check(plain, 0, LENGTH, 100);
	close(plain);
	if (dio_has_slots())
		check(!slots_possible(buf));

	close(device);
	rw.file_offset = SHIFT;
	expect(dio_read(dev, &rw), 0);
	pattern_around(buf->map, buf, 0, LENGTH, 100, 40);
	close(dev);
	close(file);
}

static void one_kind(struct buffer *buf)
{
	int dev, device;

	if (!buffer_synced(buf)) {
		unsynced(buf);
		return;
	}
	dev = dio_context(buf);
	device = import(buf);
	nothing_without_synchronisation(buf, device);
	reads_and_writes(buf, device, dev);
	if (dio_has_slots())
		slots(buf, device, dev);

	device_stores(device, buf, 50);
	close(device);
	pattern_check(buf->map, 0, buf->length, 50);
	close(dev);
}

static void load(void)
{
	struct buffer buf = { .kind = BUFFER_LOAD, .length = LENGTH };
	int file = file_open("data", O_RDONLY | direct_flag(direct)), dev = dio_open(), device;

	trying("%s", direct ? "LOAD, direct" : "LOAD");
	buf.fd = dio_load_fd(dev, file, SHIFT, LENGTH);
	device = import(&buf);
	device_sees(device, &buf, 0, LENGTH, 100, 0);
	close(device);
	close(buf.fd);
	close(file);
	close(dev);
}

int main(void)
{
	if (access(DEVICE, F_OK)) {
		check(!guest_of_debian());
		skip("no %s: this kernel lets no driver have DMA operations of its own", DEVICE);
	}
	file_pattern("data", LENGTH + SHIFT, 100);
	for_each_kind_and_way(LENGTH, &direct, one_kind);
	for (direct = false;; direct = true) {
		load();
		if (direct || !direct_possible())
			return 0;
	}
}
