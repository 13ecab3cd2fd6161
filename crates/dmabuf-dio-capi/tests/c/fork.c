/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A child uses the buffer that it has inherited, and loads by itself */
#include "lib.h"

#include <sys/wait.h>

int main(void)
{
	struct dmabuf_dio_options options = no_options();
	struct dmabuf_dio_buffer *buffer, *own;
	int status;
	pid_t child;

	make_file("data", MIB(3), 1);
	options.kind = DMABUF_DIO_KIND_ANY;
	expect(dmabuf_dio_load("data", &options, &buffer, NULL), 0);
	child = fork();
	check(child >= 0);
	if (!child) {
		check_content(buffer, 0, MIB(3), 1);
		expect(dmabuf_dio_load("data", &options, &own, NULL), 0);
		check_content(own, 0, MIB(3), 1);
		dmabuf_dio_buffer_free(own);
		dmabuf_dio_buffer_free(buffer);
		_exit(0);
	}
	expect(waitpid(child, &status, 0), child);
	expect(status, 0);
	check_content(buffer, 0, MIB(3), 1);
	dmabuf_dio_buffer_free(buffer);
	return 0;
}
