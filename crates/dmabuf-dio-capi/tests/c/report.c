/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The content of reports and doctor */
#include "lib.h"

int main(void)
{
	struct dmabuf_dio_options options = no_options();
	struct dmabuf_dio_buffer *buffer;
	struct dmabuf_dio_report *report;
	struct dmabuf_dio_report_fields fields;
	char version[32], *json;

	make_file("data", 100000, 1);
	options.backend = DMABUF_DIO_BACKEND_BUFFERED;
	options.kind = DMABUF_DIO_KIND_MEMFD;
	expect(dmabuf_dio_load("data", &options, &buffer, &report), 0);
	dmabuf_dio_buffer_free(buffer);
	fields.size = sizeof(fields);
	expect(dmabuf_dio_report_fields(report, &fields), 0);
	expect(fields.backend, DMABUF_DIO_BACKEND_BUFFERED);
	expect(fields.kind, DMABUF_DIO_KIND_MEMFD);
	check(fields.mode == DMABUF_DIO_MODE_BUFFERED || fields.mode == DMABUF_DIO_MODE_PAGE_CACHE);
	expect(fields.copied_bytes, 100000);
	check(fields.seconds > 0 && fields.seconds < 100 && fields.cpu_seconds >= 0);
	check(!strncmp(dmabuf_dio_report_line(report), "100000 bytes by buffered, ", 26));
	check(strstr(dmabuf_dio_report_json(report), "\"backend\":\"buffered\""));
	check(strstr(dmabuf_dio_report_json(report), "\"bytes\":100000"));
	dmabuf_dio_report_free(report);

	expect(dmabuf_dio_doctor("data", &json), 0);
	check(json[0] == '{' && strstr(json, "\"schema\":1"));
	check(strstr(json, "\"backends\":[{\"backend\":\"module\""));
	check(strstr(json, "\"length\":100000"));
	dmabuf_dio_string_free(json);
	expect(dmabuf_dio_doctor(NULL, &json), 0);
	check(strstr(json, "\"file\":null"));
	dmabuf_dio_string_free(json);

	snprintf(version, sizeof(version), "%d.%d.%d", DMABUF_DIO_VERSION_MAJOR,
		 DMABUF_DIO_VERSION_MINOR, DMABUF_DIO_VERSION_PATCH);
	expect(strcmp(dmabuf_dio_version(), version), 0);
	return 0;
}
