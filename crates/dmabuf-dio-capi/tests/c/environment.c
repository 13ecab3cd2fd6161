/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A buffer that another program hands on: this one, to itself */
#include "lib.h"

int main(int count, char **arguments)
{
	struct dmabuf_dio_options options = no_options();
	struct dmabuf_dio_buffer *buffer;
	char text[32];
	int fd;

	if (count > 1) {
		expect(dmabuf_dio_buffer_from_env(&buffer), 0);
		expect(dmabuf_dio_buffer_data_offset(buffer), 4000);
		check_content(buffer, 4000, 6000, 1);
		dmabuf_dio_buffer_free(buffer);
		return 0;
	}
	make_file("data", 10000, 1);
	options.kind = DMABUF_DIO_KIND_ANY;
	options.offset = 4000;
	expect(dmabuf_dio_load("data", &options, &buffer, NULL), 0);
	fd = dmabuf_dio_buffer_fd(buffer);
	expect(fcntl(fd, F_SETFD, 0), 0);
	snprintf(text, sizeof(text), "%d", fd);
	setenv("DMABUF_DIO_FD", text, 1);
	snprintf(text, sizeof(text), "%llu",
		 (unsigned long long)dmabuf_dio_buffer_data_offset(buffer));
	setenv("DMABUF_DIO_OFFSET", text, 1);
	setenv("DMABUF_DIO_LEN", "6000", 1);
	execl(arguments[0], arguments[0], "child", (char *)NULL);
	fail_at(__FILE__, __LINE__, "execl");
	return 1;
}
