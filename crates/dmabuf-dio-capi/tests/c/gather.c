/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Pieces of a file, each with a result of its own */
#include "lib.h"

#define FILE_LENGTH (MIB(4) + 100)
#define LENGTH MIB(2)
#define COUNT 100

static struct dmabuf_dio_piece pieces[COUNT];
static struct dmabuf_dio_piece_result results[COUNT];

static int stop(uint64_t done, uint64_t total, void *data)
{
	(void)done;
	(void)total;
	return *(int *)data;
}

static void aligned(struct dmabuf_dio_gather *gather, const unsigned char *bytes)
{
	struct dmabuf_dio_report *report;
	struct dmabuf_dio_report_fields fields;
	size_t i;

	for (i = 0; i < COUNT; i++) {
		pieces[i].offset = i * 37 % 1000 * 4096;
		pieces[i].buf_offset = i * 8192;
		pieces[i].length = 4096;
	}
	expect(dmabuf_dio_gather_read(gather, pieces, COUNT, results, &report), 0);
	for (i = 0; i < COUNT; i++) {
		expect(results[i].error, 0);
		expect(results[i].start, i * 8192);
		expect(results[i].length, 4096);
		check_pattern(bytes + i * 8192, pieces[i].offset, 4096, 5);
		check_byte(bytes + i * 8192 + 4096, 4096, 0xee);
	}
	fields.size = sizeof(fields);
	expect(dmabuf_dio_report_fields(report, &fields), 0);
	expect(fields.bytes, COUNT * 4096);
	check(strstr(dmabuf_dio_report_json(report), "\"pieces\":100"));
	dmabuf_dio_report_free(report);
}

static void unaligned(struct dmabuf_dio_gather *gather, const unsigned char *bytes)
{
	uint64_t file, buf, room, i;

	expect(dmabuf_dio_gather_alignment(gather, &file, &buf), 0);
	check(file && buf);
	for (i = 0; i < 3; i++) {
		pieces[i].offset = 100 + i * 50000;
		pieces[i].buf_offset = i * 4096;
		pieces[i].length = 1000;
	}
	expect(dmabuf_dio_gather_room(gather, pieces, 3, &room), 0);
	expect(room != 0, file > 1);
	if (room) {
		expect(dmabuf_dio_gather_read(gather, pieces, 3, results, NULL), 3);
		expect(results[0].error, -ENOBUFS);
		check(results[0].detail > 0 && results[0].detail <= room);
	}
	expect(dmabuf_dio_gather_set_spare(gather, MIB(1), room), 0);
	expect(dmabuf_dio_gather_read(gather, pieces, 3, results, NULL), 0);
	for (i = 0; i < 3; i++) {
		expect(results[i].length, 1000);
		check_pattern(bytes + results[i].start, pieces[i].offset, 1000, 5);
	}
	expect(dmabuf_dio_gather_set_spare(gather, LENGTH, 1), -ERANGE);
	expect(dmabuf_dio_gather_set_spare(gather, UINT64_MAX, 1), -EOVERFLOW);
	expect(dmabuf_dio_gather_set_spare(gather, 0, 0), 0);
}

static void bad(struct dmabuf_dio_gather *gather, const unsigned char *bytes)
{
	/* One ends with the file, one is beyond it, one is whole. */
	pieces[0].offset = MIB(4) - 4096;
	pieces[0].buf_offset = 0;
	pieces[0].length = 8192;
	pieces[1].offset = MIB(8);
	pieces[1].buf_offset = 8192;
	pieces[1].length = 4096;
	pieces[2].offset = 4096;
	pieces[2].buf_offset = 16384;
	pieces[2].length = 4096;
	expect(dmabuf_dio_gather_read(gather, pieces, 3, results, NULL), 2);
	expect(results[0].error, -ENODATA);
	expect(results[0].length, 4096 + 100);
	expect(results[0].detail, FILE_LENGTH);
	check_pattern(bytes, MIB(4) - 4096, 4196, 5);
	expect(results[1].error, -ENODATA);
	expect(results[1].length, 0);
	expect(results[2].error, 0);
	check_pattern(bytes + 16384, 4096, 4096, 5);
	expect(dmabuf_dio_gather_read(gather, pieces, 3, NULL, NULL), 2);

	expect(dmabuf_dio_gather_read(gather, NULL, 0, NULL, NULL), 0);
	expect(dmabuf_dio_gather_read(gather, NULL, 1, NULL, NULL), -EFAULT);
	pieces[1].buf_offset = 16384 + 2048;
	expect(dmabuf_dio_gather_read(gather, pieces, 3, results, NULL), -EINVAL);
	check(strstr(dmabuf_dio_error_message(), "overlap"));
	pieces[1].buf_offset = LENGTH - 4095;
	expect(dmabuf_dio_gather_read(gather, pieces, 3, results, NULL), -ERANGE);
}

static void test(struct dmabuf_dio_buffer *buffer)
{
	struct dmabuf_dio_options options = no_options();
	struct dmabuf_dio_gather *gather;
	struct dmabuf_dio_map *map;
	const unsigned char *bytes;
	int way, stopped = 0;

	expect(dmabuf_dio_map(buffer, DMABUF_DIO_ACCESS_READ, &map), 0);
	bytes = (const unsigned char *)dmabuf_dio_map_address(map);
	for (way = 0; way < 3; way++) {
		int fd = open("data", O_RDONLY);

		options.flags = way == 1 ? DMABUF_DIO_BUFFERED : way == 2 ? DMABUF_DIO_POLLED : 0;
		options.queue_depth = way == 1 ? 3 : 0;
		options.progress = stop;
		options.progress_data = &stopped;
		if (way)
			expect(dmabuf_dio_gather_open(buffer, "data", &options, &gather), 0);
		else
			expect(dmabuf_dio_gather_open_fd(buffer, fd, &options, &gather), 0);
		close(fd);
		if (!way)
			aligned(gather, bytes);
		unaligned(gather, bytes);
		bad(gather, bytes);
		pieces[1].buf_offset = 8192;
		stopped = 1;
		expect(dmabuf_dio_gather_read(gather, pieces, 3, results, NULL), -ECANCELED);
		stopped = 0;
		dmabuf_dio_gather_free(gather);
	}
	expect(dmabuf_dio_unmap(map), 0);
}

int main(void)
{
	make_file("data", FILE_LENGTH, 5);
	for_each_kind(LENGTH, test);
	return 0;
}
