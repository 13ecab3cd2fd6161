/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Structures of an older and of a newer header */
#include "lib.h"

#include <stddef.h>

struct newer_options {
	struct dmabuf_dio_options options;
	uint64_t what_is_new[3];
};

struct newer_figures {
	struct dmabuf_dio_figures figures;
	uint64_t what_is_new[3];
};

int main(void)
{
	struct newer_options newer;
	struct newer_figures figures;
	struct dmabuf_dio_buffer *buffer;
	struct dmabuf_dio_report *report;
	struct dmabuf_dio_figures unchanged;

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

	memset(&figures, 0xff, sizeof(figures));
	figures.figures.size = sizeof(figures);
	expect(dmabuf_dio_report_figures(report, &figures.figures), 0);
	expect(figures.figures.size, sizeof(figures));
	expect(figures.figures.bytes, 5000);
	check_byte(figures.what_is_new, sizeof(figures.what_is_new), 0);
	memset(&figures, 0xff, sizeof(figures));
	figures.figures.size = sizeof(struct dmabuf_dio_figures);
	expect(dmabuf_dio_report_figures(report, &figures.figures), 0);
	expect(figures.figures.bytes, 5000);
	check_byte(figures.what_is_new, sizeof(figures.what_is_new), 0xff);
	memset(&figures, 0xff, sizeof(figures));
	memset(&unchanged, 0xff, sizeof(unchanged));
	figures.figures.size = unchanged.size = 8;
	expect(dmabuf_dio_report_figures(report, &figures.figures), -EINVAL);
	check(!memcmp(&figures.figures, &unchanged, sizeof(unchanged)));
	dmabuf_dio_report_free(report);
	return 0;
}
