/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Maps: CPU access is begun and ended once, and the memory lives as long as the map */
#include "lib.h"

#define LENGTH 65536

static void test(struct dmabuf_dio_buffer *buffer)
{
	const uint32_t both = DMABUF_DIO_ACCESS_READ | DMABUF_DIO_ACCESS_WRITE;
	struct dmabuf_dio_buffer *second;
	struct dmabuf_dio_map *map, *other;
	unsigned char *bytes;
	int fd;

	expect(dmabuf_dio_map(buffer, both, &map), 0);
	bytes = (unsigned char *)dmabuf_dio_map_address(map);
	expect((uintptr_t)bytes % 4096, 0);
	check_byte(bytes, LENGTH, 0xee);
	pattern(bytes, 0, LENGTH, 6);
	expect(dmabuf_dio_map_begin(map), -EALREADY);
	expect(dmabuf_dio_map_end(map), 0);
	expect(dmabuf_dio_map_end(map), -EALREADY);

	expect(dmabuf_dio_map(buffer, DMABUF_DIO_ACCESS_READ, &other), 0);
	check_pattern(dmabuf_dio_map_address(other), 0, LENGTH, 6);
	expect(dmabuf_dio_unmap(other), 0);

	expect(dmabuf_dio_map_begin(map), 0);
	expect(dmabuf_dio_map_begin(map), -EALREADY);
	check(dmabuf_dio_map_address(map) == bytes);
	check_pattern(bytes, 0, LENGTH, 6);
	expect(dmabuf_dio_unmap(map), 0);
	expect(dmabuf_dio_unmap(NULL), 0);

	expect(dmabuf_dio_map(buffer, 0, &map), -EINVAL);
	check(!map);
	expect(dmabuf_dio_map(buffer, 4, &map), -EINVAL);
	expect(dmabuf_dio_access_begin(buffer, both), 0);
	expect(dmabuf_dio_access_end(buffer, both), 0);
	expect(dmabuf_dio_access_begin(buffer, 8), -EINVAL);

	/* The handle goes, the map stays. */
	expect(dmabuf_dio_buffer_from_fd(dmabuf_dio_buffer_fd(buffer), &second), 0);
	expect(dmabuf_dio_map(second, both, &map), 0);
	dmabuf_dio_buffer_free(second);
	bytes = (unsigned char *)dmabuf_dio_map_address(map);
	check_pattern(bytes, 0, LENGTH, 6);
	memset(bytes, 1, LENGTH);
	expect(dmabuf_dio_map_end(map), 0);
	expect(dmabuf_dio_map_begin(map), 0);
	expect(dmabuf_dio_unmap(map), 0);

	/* A name, and a seal, belong to one kind each. */
	if (dmabuf_dio_buffer_kind(buffer) == DMABUF_DIO_KIND_DMABUF) {
		expect(dmabuf_dio_buffer_set_name(buffer, "weights"), 0);
		expect(dmabuf_dio_buffer_seal(buffer), -EINVAL);
		return;
	}
	expect(dmabuf_dio_buffer_set_name(buffer, "weights"), -EOPNOTSUPP);
	expect(dmabuf_dio_map(buffer, DMABUF_DIO_ACCESS_READ, &map), 0);
	expect(dmabuf_dio_buffer_seal(buffer), -EBUSY);
	expect(dmabuf_dio_unmap(map), 0);
	expect(dmabuf_dio_buffer_seal(buffer), 0);
	expect(dmabuf_dio_map(buffer, DMABUF_DIO_ACCESS_WRITE, &map), -EACCES);
	expect(dmabuf_dio_map(buffer, DMABUF_DIO_ACCESS_READ, &map), 0);
	expect(dmabuf_dio_unmap(map), 0);
	fd = dmabuf_dio_buffer_fd(buffer);
	expect(pwrite(fd, "x", 1, 0), -1);
	expect(errno, EPERM);
}

int main(void)
{
	for_each_kind(LENGTH, test);
	return 0;
}
