/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Structures of an older and of a newer header */
#include "lib.h"

#include <stddef.h>

struct newer_options {
	struct dmabuf_dio_options options;
	uint64_t what_is_new[3];
};

struct newer_figures {
	struct dmabuf_dio_report_fields fields;
	uint64_t what_is_new[3];
};

int main(void)
{
	struct newer_options newer;
	struct newer_figures fields;
	struct dmabuf_dio_buffer *buffer;
	struct dmabuf_dio_report *report;
	struct dmabuf_dio_report_fields unchanged;

	make_file("data", 5000, 1);
	memset(&newer, 0, sizeof(newer));
	newer.options.size = sizeof(newer);
	newer.options.kind = DMABUF_DIO_KIND_MEMFD;
	expect(dmabuf_dio_load("data", &newer.options, &buffer, &report), 0);
	check_content(buffer, 0, 5000, 1);
	dmabuf_dio_buffer_free(buffer);

	newer.what_is_new[2] = (uint64_t)1 << 56;
	expect(dmabuf_dio_load("data", &newer.options, &buffer, NULL), -E2BIG);
	check(!buffer && strstr(dmabuf_dio_error_message(), "dmabuf_dio_options"));
	/* Bytes beyond its size are ignored. */
	newer.options.size = sizeof(newer) - 8;
	expect(dmabuf_dio_load("data", &newer.options, &buffer, NULL), 0);
	dmabuf_dio_buffer_free(buffer);
	newer.options.size = sizeof(struct dmabuf_dio_options);
	newer.what_is_new[0] = 1;
	expect(dmabuf_dio_load("data", &newer.options, &buffer, NULL), 0);
	dmabuf_dio_buffer_free(buffer);
	newer.options.size = offsetof(struct dmabuf_dio_options, progress_data);
	expect(dmabuf_dio_load("data", &newer.options, &buffer, NULL), -EINVAL);
	newer.options.size = SIZE_MAX;
	expect(dmabuf_dio_load("data", &newer.options, &buffer, NULL), -E2BIG);
	newer.options.size = 0;
	expect(dmabuf_dio_load("data", &newer.options, &buffer, NULL), -EINVAL);

	memset(&fields, 0xff, sizeof(fields));
	fields.fields.size = sizeof(fields);
	expect(dmabuf_dio_report_fields(report, &fields.fields), 0);
	expect(fields.fields.size, sizeof(fields));
	expect(fields.fields.bytes, 5000);
	check_byte(fields.what_is_new, sizeof(fields.what_is_new), 0);
	memset(&fields, 0xff, sizeof(fields));
	fields.fields.size = sizeof(struct dmabuf_dio_report_fields);
	expect(dmabuf_dio_report_fields(report, &fields.fields), 0);
	expect(fields.fields.bytes, 5000);
	check_byte(fields.what_is_new, sizeof(fields.what_is_new), 0xff);
	memset(&fields, 0xff, sizeof(fields));
	memset(&unchanged, 0xff, sizeof(unchanged));
	fields.fields.size = unchanged.size = 8;
	expect(dmabuf_dio_report_fields(report, &fields.fields), -EINVAL);
	check(!memcmp(&fields.fields, &unchanged, sizeof(unchanged)));
	dmabuf_dio_report_free(report);
	return 0;
}
