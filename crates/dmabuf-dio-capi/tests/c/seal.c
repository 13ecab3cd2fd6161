/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A buffer is sealed while other threads map it: each finds it writable, in use or sealed */
#include <pthread.h>
#include <sched.h>

#include "lib.h"

static struct dmabuf_dio_buffer *buffer;

static void *maps(void *unused)
{
	struct dmabuf_dio_map *map;
	int status, rounds = 0;

	do {
		status = dmabuf_dio_map(buffer, DMABUF_DIO_ACCESS_WRITE, &map);
		if (!status) {
			memset(dmabuf_dio_map_address(map), 2, KIB(4));
			expect(dmabuf_dio_unmap(map), 0);
		}
	} while (!status && ++rounds < 100);
	/* EPERM: it was sealed between the library's check and the kernel's. */
	check(!status || status == -EACCES || status == -EPERM);
	return unused;
}

static void *seals(void *unused)
{
	int status;

	do
		status = dmabuf_dio_buffer_seal(buffer);
	while (status == -EBUSY && !sched_yield());
	expect(status, 0);
	return unused;
}

int main(void)
{
	unsigned int i, descriptors = open_descriptors(), count = times(100);
	pthread_t threads[4];
	int fd, number;

	make_file("data", KIB(4), 1);
	for (i = 0; i < count; i++) {
		buffer = memfd_of(KIB(4), 1);
		fd = dmabuf_dio_buffer_fd(buffer);
		for (number = 0; number < 4; number++)
			expect(pthread_create(&threads[number], NULL, number & 1 ? seals : maps, NULL), 0);
		for (number = 0; number < 4; number++)
			expect(pthread_join(threads[number], NULL), 0);
		expect(dmabuf_dio_buffer_fd(buffer), fd);
		expect(dmabuf_dio_load_into(buffer, 0, "data", NULL, NULL), -EACCES);
		dmabuf_dio_buffer_free(buffer);
	}
	expect(open_descriptors(), descriptors);
	return 0;
}
