/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Loads by path and descriptor, whole and in part, by every backend that is here */
#include "lib.h"

#define LENGTH (MIB(9) + 123)

static void ranges(uint32_t backend)
{
	static const uint64_t range[][2] = {
		{ 0, 0 }, { 0, 1 }, { 4096, 8192 }, { 4095, 2 }, { 12345, MIB(1) + 77 }, { 100, 0 },
	};
	struct dmabuf_dio_options options = no_options();
	size_t i;

	options.backend = backend;
	for (i = 0; i < sizeof(range) / sizeof(range[0]); i++) {
		struct dmabuf_dio_buffer *buffer;
		struct dmabuf_dio_report *report;
		struct dmabuf_dio_report_fields fields;

		options.offset = range[i][0];
		options.length = range[i][1];
		expect(dmabuf_dio_load("data", &options, &buffer, &report), 0);
		check_content(buffer, range[i][0], range[i][1] ? range[i][1] : LENGTH - range[i][0], 1);
		fields.size = sizeof(fields);
		expect(dmabuf_dio_report_fields(report, &fields), 0);
		expect(fields.backend, backend);
		expect(fields.kind, dmabuf_dio_buffer_kind(buffer));
		expect(fields.bytes, dmabuf_dio_buffer_data_length(buffer));
		dmabuf_dio_report_free(report);
		dmabuf_dio_buffer_free(buffer);
	}
}

/* Whether the guest's kernel must have it */
static int is_required(uint32_t backend)
{
	const char *kernel = getenv("DMABUF_DIO_KERNEL");

	if (backend == DMABUF_DIO_BACKEND_MEMFD || backend == DMABUF_DIO_BACKEND_BUFFERED)
		return 1;
	if (!kernel)
		return 0;
	return backend == DMABUF_DIO_BACKEND_MODULE || backend == DMABUF_DIO_BACKEND_UDMABUF ||
	       (backend == DMABUF_DIO_BACKEND_SLOT && strcmp(kernel, "6.12"));
}

static void backends(void)
{
	uint32_t backend;

	for (backend = DMABUF_DIO_BACKEND_MODULE; dmabuf_dio_backend_name(backend); backend++) {
		struct dmabuf_dio_options options = no_options();
		struct dmabuf_dio_buffer *buffer = (struct dmabuf_dio_buffer *)&options;
		int status;

		options.backend = backend;
		status = dmabuf_dio_load("data", &options, &buffer, NULL);
		if (status) {
			expect(status, -EOPNOTSUPP);
			check(!buffer && *dmabuf_dio_error_hint());
			printf("without %s: %s\n", dmabuf_dio_backend_name(backend),
			       dmabuf_dio_error_message());
			check(!is_required(backend));
			continue;
		}
		dmabuf_dio_buffer_free(buffer);
		ranges(backend);
	}
	expect(backend, DMABUF_DIO_BACKEND_BUFFERED + 1);
}

static void kinds(void)
{
	struct dmabuf_dio_options options = no_options();
	struct dmabuf_dio_buffer *buffer;
	struct dmabuf_dio_report *report;
	struct dmabuf_dio_report_fields fields;
	int status;

	options.kind = DMABUF_DIO_KIND_DMABUF;
	status = dmabuf_dio_load("data", &options, &buffer, NULL);

	/* A load that asks for a dma-buf gets one or an error, never a memfd. */
	if (status) {
		expect(status, -EOPNOTSUPP);
		check(strstr(dmabuf_dio_error_hint(), "any kind of buffer"));
		/* The message is one line; the reasons are available on request. */
		check(!strchr(dmabuf_dio_error_message(), '\n') && !strstr(dmabuf_dio_error_message(), "module:"));
		check(strstr(dmabuf_dio_error_reasons(), "module: ") && strstr(dmabuf_dio_error_reasons(), "\nbuffered: "));
		check(!getenv("DMABUF_DIO_KERNEL"));
	} else {
		expect(dmabuf_dio_buffer_kind(buffer), DMABUF_DIO_KIND_DMABUF);
		check_content(buffer, 0, LENGTH, 1);
		dmabuf_dio_buffer_free(buffer);
	}
	expect(dmabuf_dio_load("data", NULL, &buffer, NULL), 0);
	expect(dmabuf_dio_buffer_kind(buffer),
	       status ? DMABUF_DIO_KIND_MEMFD : DMABUF_DIO_KIND_DMABUF);
	dmabuf_dio_buffer_free(buffer);

	options.kind = DMABUF_DIO_KIND_MEMFD;
	options.flags = DMABUF_DIO_SMALL_PAGES | DMABUF_DIO_BUFFERED;
	options.block_size = 65536;
	options.queue_depth = 3;
	options.allocation_step = MIB(2);
	expect(dmabuf_dio_load("data", &options, &buffer, &report), 0);
	expect(dmabuf_dio_buffer_kind(buffer), DMABUF_DIO_KIND_MEMFD);
	check_content(buffer, 0, LENGTH, 1);
	dmabuf_dio_buffer_free(buffer);
	fields.size = sizeof(fields);
	expect(dmabuf_dio_report_fields(report, &fields), 0);
	check(fields.mode != DMABUF_DIO_MODE_DIRECT && fields.copied_bytes >= LENGTH);
	check(fields.huge_bytes == 0 || fields.huge_bytes == DMABUF_DIO_UNKNOWN);
	check(!fields.numa && !fields.numa_node && !fields.nodes && !fields.locked);
	dmabuf_dio_report_free(report);
}

static void place_and_lock(void)
{
	struct dmabuf_dio_options options = no_options();
	struct dmabuf_dio_buffer *buffer;
	struct dmabuf_dio_report *report;
	struct dmabuf_dio_report_fields fields;

	options.kind = DMABUF_DIO_KIND_MEMFD;
	options.length = 32768;
	options.flags = DMABUF_DIO_LOCK;
	options.numa = DMABUF_DIO_NUMA_LOCAL;
	expect(dmabuf_dio_load("data", &options, &buffer, &report), 0);
	check_content(buffer, 0, options.length, 1);
	fields.size = sizeof(fields);
	expect(dmabuf_dio_report_fields(report, &fields), 0);
	check(fields.numa == DMABUF_DIO_NUMA_LOCAL && !fields.numa_node && fields.nodes <= 1024);
	expect(fields.locked, 1);
	check(strstr(dmabuf_dio_report_json(report), "\"numa\":\"local\""));
	dmabuf_dio_report_free(report);
	dmabuf_dio_buffer_free(buffer);

	options.numa = DMABUF_DIO_NUMA_NODE;
	options.numa_node = 1023;
	expect(dmabuf_dio_load("data", &options, &buffer, NULL), -EINVAL);
	check(strstr(dmabuf_dio_error_message(), "node 1023") && strstr(dmabuf_dio_error_hint(), "another numa"));
	options.numa = DMABUF_DIO_NUMA_NODE + 1;
	options.numa_node = 0;
	expect(dmabuf_dio_load("data", &options, &buffer, NULL), -EINVAL);
}

/* The descriptor stays the caller's, with its position. */
static void by_descriptor(void)
{
	struct dmabuf_dio_options options = no_options();
	struct dmabuf_dio_buffer *buffer;
	int fd = open("data", O_RDONLY);

	options.kind = DMABUF_DIO_KIND_ANY;
	expect(lseek(fd, 17, SEEK_SET), 17);
	expect(dmabuf_dio_load_fd(fd, &options, &buffer, NULL), 0);
	check_content(buffer, 0, LENGTH, 1);
	dmabuf_dio_buffer_free(buffer);
	expect(lseek(fd, 0, SEEK_CUR), 17);
	expect(close(fd), 0);
	expect(dmabuf_dio_load_fd(fd, &options, &buffer, NULL), -EBADF);
	expect(dmabuf_dio_load_fd(-1, &options, &buffer, NULL), -EBADF);
}

int main(void)
{
	make_file("data", LENGTH, 1);
	backends();
	kinds();
	place_and_lock();
	by_descriptor();
	return 0;
}
