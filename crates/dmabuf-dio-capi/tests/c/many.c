/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* timeout=600. A thousand loads, saves, gathers and failures leave no descriptors and no memory */
#include <stdbool.h>

#include "lib.h"

static void once(void)
{
	struct dmabuf_dio_options options = no_options();
	struct dmabuf_dio_buffer *buffer;
	struct dmabuf_dio_report *report;
	struct dmabuf_dio_gather *gather;
	struct dmabuf_dio_map *map;
	struct dmabuf_dio_piece piece = { 4096, 0, 4096 };
	char *json;

	options.kind = DMABUF_DIO_KIND_ANY;
	expect(dmabuf_dio_load("data", &options, &buffer, &report), 0);
	dmabuf_dio_report_free(report);
	expect(dmabuf_dio_map(buffer, DMABUF_DIO_ACCESS_READ, &map), 0);
	check_pattern(dmabuf_dio_map_address(map), 0, 65536, 1);
	expect(dmabuf_dio_unmap(map), 0);
	options.kind = 0;
	expect(dmabuf_dio_load_into(buffer, 0, "data", &options, &report), 0);
	dmabuf_dio_report_free(report);
	expect(dmabuf_dio_gather_open(buffer, "data", NULL, &gather), 0);
	expect(dmabuf_dio_gather_read(gather, &piece, 1, NULL, &report), 0);
	dmabuf_dio_report_free(report);
	dmabuf_dio_gather_free(gather);
	dmabuf_dio_buffer_free(buffer);
	expect(dmabuf_dio_load("missing", NULL, &buffer, NULL), -ENOENT);
	expect(dmabuf_dio_doctor("missing", &json), -ENOENT);
}

/* Whether memory grew as by a leak of 1 KiB each time */
static bool grew(unsigned int count)
{
	uint64_t memory = resident(), now;
	unsigned int i;

	for (i = 0; i < count; i++)
		once();
	now = resident();
	printf("%u times: memory from %llu to %llu KiB\n", count, (unsigned long long)memory >> 10,
	       (unsigned long long)now >> 10);
	return now >= memory + KIB(512);
}

int main(void)
{
	unsigned int descriptors, count = times(1000), runs = 5;

	make_file("data", 65536, 1);
	once();
	descriptors = open_descriptors();
	/* The allocator takes more now and then, a leak each time. Sanitizers keep freed memory for a while. */
	while (grew(count) && !getenv("TESTS_FEWER"))
		check(--runs);
	expect(open_descriptors(), descriptors);
	return 0;
}
