/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Error numbers, and messages of each thread */
#include "lib.h"

#include <pthread.h>

static void numbers(void)
{
	struct dmabuf_dio_options options = no_options();
	struct dmabuf_dio_buffer *buffer;
	struct dmabuf_dio_gather *gather;
	struct dmabuf_dio_map *map;
	char *json;

	expect(dmabuf_dio_load("missing", NULL, &buffer, NULL), -ENOENT);
	check(!buffer && strstr(dmabuf_dio_error_message(), "missing: cannot open"));
	check(strstr(dmabuf_dio_error_hint(), "check the path"));
	expect(dmabuf_dio_load(".", NULL, &buffer, NULL), -EINVAL);
	expect(dmabuf_dio_load("/dev/null", NULL, &buffer, NULL), -EINVAL);
	make_file("empty", 0, 0);
	expect(dmabuf_dio_load("empty", NULL, &buffer, NULL), -ENODATA);
	make_file("small", 100, 1);
	options.kind = DMABUF_DIO_KIND_MEMFD;
	options.length = 101;
	expect(dmabuf_dio_load("small", &options, &buffer, NULL), -ENODATA);
	options.offset = UINT64_MAX;
	expect(dmabuf_dio_load("small", &options, &buffer, NULL), -EOVERFLOW);
	options.length = options.offset = 0;

	options.block_size = 1;
	expect(dmabuf_dio_load("small", &options, &buffer, NULL), -EINVAL);
	check(strstr(dmabuf_dio_error_message(), "block_size"));
	options.block_size = 0;
	options.queue_depth = 1025;
	expect(dmabuf_dio_load("small", &options, &buffer, NULL), -EINVAL);
	options.queue_depth = 0;
	options.flags = 1u << 31;
	expect(dmabuf_dio_load("small", &options, &buffer, NULL), -EINVAL);
	options.flags = DMABUF_DIO_POLLED;
	expect(dmabuf_dio_load("small", &options, &buffer, NULL), -EINVAL);
	check(strstr(dmabuf_dio_error_message(), "flags"));
	options.flags = 0;
	options.backend = DMABUF_DIO_BACKEND_BUFFERED + 1;
	expect(dmabuf_dio_load("small", &options, &buffer, NULL), -EINVAL);
	options.backend = 0;
	options.kind = DMABUF_DIO_KIND_PRIVATE + 1;
	expect(dmabuf_dio_load("small", &options, &buffer, NULL), -EINVAL);

	/* Null pointers */
	expect(dmabuf_dio_load(NULL, NULL, &buffer, NULL), -EFAULT);
	check(strstr(dmabuf_dio_error_message(), "path"));
	expect(dmabuf_dio_load("small", NULL, NULL, NULL), -EFAULT);
	expect(dmabuf_dio_load_into(NULL, 0, "small", NULL, NULL), -EFAULT);
	expect(dmabuf_dio_save(NULL, 0, 1, "copy", NULL, NULL), -EFAULT);
	expect(dmabuf_dio_map(NULL, 1, &map), -EFAULT);
	expect(dmabuf_dio_map_end(NULL), -EFAULT);
	expect(dmabuf_dio_gather_open(NULL, "small", NULL, &gather), -EFAULT);
	expect(dmabuf_dio_gather_read(NULL, NULL, 0, NULL, NULL), -EFAULT);
	expect(dmabuf_dio_buffer_fd(NULL), -EFAULT);
	expect(dmabuf_dio_attach(NULL), -EFAULT);
	expect(dmabuf_dio_prep_register(NULL, 0, NULL), -EFAULT);
	expect(dmabuf_dio_report_fields(NULL, NULL), -EFAULT);
	expect(dmabuf_dio_doctor(NULL, NULL), -EFAULT);
	expect(dmabuf_dio_buffer_length(NULL), 0);
	check(!dmabuf_dio_map_address(NULL) && !dmabuf_dio_report_json(NULL));
	dmabuf_dio_buffer_free(NULL);
	dmabuf_dio_gather_free(NULL);
	dmabuf_dio_report_free(NULL);
	dmabuf_dio_string_free(NULL);

	/* Not buffers */
	expect(dmabuf_dio_buffer_from_fd(0, &buffer), -EINVAL);
	expect(dmabuf_dio_buffer_from_fd(-7, &buffer), -EBADF);
	expect(dmabuf_dio_buffer_from_fd(12345, &buffer), -EBADF);
	unsetenv("DMABUF_DIO_FD");
	expect(dmabuf_dio_buffer_from_env(&buffer), -EINVAL);
	check(strstr(dmabuf_dio_error_message(), "DMABUF_DIO_FD"));
	expect(dmabuf_dio_buffer_alloc("no-such-heap", 1, &buffer), -ENOENT);
	expect(dmabuf_dio_doctor("missing", &json), -ENOENT);
	check(!json);
}

static void *other_thread(void *data)
{
	struct dmabuf_dio_buffer *buffer;

	(void)data;
	check(!*dmabuf_dio_error_message() && !*dmabuf_dio_error_hint());
	expect(dmabuf_dio_load("of-the-thread", NULL, &buffer, NULL), -ENOENT);
	check(strstr(dmabuf_dio_error_message(), "of-the-thread"));
	return NULL;
}

static void threads(void)
{
	struct dmabuf_dio_buffer *buffer;
	const char *message;
	pthread_t thread;

	expect(dmabuf_dio_load("of-main", NULL, &buffer, NULL), -ENOENT);
	message = dmabuf_dio_error_message();
	expect(pthread_create(&thread, NULL, other_thread, NULL), 0);
	expect(pthread_join(thread, NULL), 0);
	/* Success leaves it, too. */
	dmabuf_dio_buffer_free(memfd_of(4096, 1));
	check(message == dmabuf_dio_error_message() && strstr(message, "of-main"));
}

int main(void)
{
	check(!*dmabuf_dio_error_message());
	expect(dmabuf_dio_error_done(), 0);
	threads();
	numbers();
	return 0;
}
