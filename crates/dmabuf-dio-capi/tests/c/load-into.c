/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Loads into existing buffers, also ones that this library did not make: only the range changes */
#include "lib.h"

#define LENGTH MIB(4)

static void into(struct dmabuf_dio_buffer *buffer)
{
	static const struct {
		uint64_t at, from, length;
	} range[] = {
		{ 0, 0, LENGTH }, { 4096, 8192, 65536 }, { 5, 5, 1 }, { 7, 100, 70000 }, { 0, 0, 0 },
	};
	size_t i;

	for (i = 0; i < sizeof(range) / sizeof(range[0]); i++) {
		struct dmabuf_dio_options options = no_options();
		struct dmabuf_dio_map *map;
		struct dmabuf_dio_report *report;
		struct dmabuf_dio_report_fields fields;
		unsigned char *bytes;
		uint64_t length = range[i].length ? range[i].length : LENGTH;

		expect(dmabuf_dio_map(buffer, DMABUF_DIO_ACCESS_WRITE, &map), 0);
		memset(dmabuf_dio_map_address(map), 0xee, LENGTH);
		expect(dmabuf_dio_unmap(map), 0);

		options.offset = range[i].from;
		options.length = range[i].length;
		expect(dmabuf_dio_load_into(buffer, range[i].at, "data", &options, &report), 0);
		expect(dmabuf_dio_map(buffer, DMABUF_DIO_ACCESS_READ, &map), 0);
		bytes = (unsigned char *)dmabuf_dio_map_address(map);
		check_byte(bytes, range[i].at, 0xee);
		check_pattern(bytes + range[i].at, range[i].from, length, 2);
		check_byte(bytes + range[i].at + length, LENGTH - range[i].at - length, 0xee);
		expect(dmabuf_dio_unmap(map), 0);
		fields.size = sizeof(fields);
		expect(dmabuf_dio_report_fields(report, &fields), 0);
		expect(fields.bytes, length);
		dmabuf_dio_report_free(report);
	}
}

static void test(struct dmabuf_dio_buffer *buffer)
{
	struct dmabuf_dio_buffer *other;
	struct dmabuf_dio_options options = no_options();
	int fd, file;

	into(buffer);
	/* A descriptor of somebody, which stays open */
	fd = dmabuf_dio_buffer_dup(buffer);
	check(fd >= 0);
	expect(fcntl(fd, F_GETFD), FD_CLOEXEC);
	expect(dmabuf_dio_buffer_from_fd(fd, &other), 0);
	expect(dmabuf_dio_buffer_kind(other), dmabuf_dio_buffer_kind(buffer));
	expect(dmabuf_dio_buffer_length(other), LENGTH);
	expect(dmabuf_dio_buffer_data_length(other), LENGTH);
	into(other);
	dmabuf_dio_buffer_free(other);
	expect(close(fd), 0);

	file = open("data", O_RDONLY);
	options.length = 4096;
	expect(dmabuf_dio_load_into_fd(buffer, LENGTH - 4096, file, &options, NULL), 0);
	expect(dmabuf_dio_load_into_fd(buffer, LENGTH - 4095, file, &options, NULL), -ERANGE);
	expect(dmabuf_dio_load_into_fd(buffer, UINT64_MAX, file, &options, NULL), -EOVERFLOW);
	options.offset = LENGTH - 1;
	expect(dmabuf_dio_load_into_fd(buffer, 0, file, &options, NULL), -ENODATA);
	close(file);
}

int main(void)
{
	make_file("data", LENGTH, 2);
	for_each_kind(LENGTH, test);
	return 0;
}
