/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* load FILE: loads a file, into a dma-buf where that is possible, and prints its first bytes. */
#include <dmabuf_dio.h>
#include <stdio.h>

static int failed(const char *what)
{
	fprintf(stderr, "%s: %s\n  %s\n", what, dmabuf_dio_error_message(), dmabuf_dio_error_hint());
	return 1;
}

int main(int count, char **arguments)
{
	struct dmabuf_dio_options options = { .size = sizeof(options), .kind = DMABUF_DIO_KIND_ANY };
	struct dmabuf_dio_buffer *buffer;
	struct dmabuf_dio_report *report;
	struct dmabuf_dio_map *map;

	if (count != 2 || dmabuf_dio_load(arguments[1], &options, &buffer, &report) < 0)
		return failed("load");
	puts(dmabuf_dio_report_line(report));	/* 548105171 bytes by module, direct: 0.182 s, 3.01 GB/s */

	/* dmabuf_dio_buffer_fd(buffer) goes to whatever imports it. The CPU looks through a map: */
	if (dmabuf_dio_map(buffer, DMABUF_DIO_ACCESS_READ, &map) < 0)
		return failed("map");
	unsigned char *bytes = dmabuf_dio_map_address(map);
	bytes += dmabuf_dio_buffer_data_offset(buffer);
	for (uint64_t i = 0; i < 16 && i < dmabuf_dio_buffer_data_length(buffer); i++)
		printf("%02x", bytes[i]);
	puts("");

	dmabuf_dio_unmap(map);
	dmabuf_dio_report_free(report);
	dmabuf_dio_buffer_free(buffer);
	return 0;
}
