/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The two faces of a file in memory: each byte by path, by the memfd and by the dma-buf */
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "lib.h"

#define PAGE 4096

static uint64_t rounded(uint64_t length)
{
	return (length + PAGE - 1) / PAGE * PAGE;
}

/* Each byte of a descriptor's memory */
static void check_fd(int fd, uint64_t position, uint64_t length, uint64_t all)
{
	unsigned char *bytes = (unsigned char *)mmap(NULL, all, PROT_READ, MAP_SHARED, fd, 0);

	check(bytes != MAP_FAILED);
	check_pattern(bytes, position, length, 1);
	check_byte(bytes + length, all - length, 0);
	expect(munmap(bytes, all), 0);
}

/* Another process reads all bytes of a path, and no more */
static void check_path(const char *path, uint64_t position, uint64_t length)
{
	static unsigned char piece[65536];
	pid_t child = fork();
	uint64_t at = 0;
	ssize_t got;
	int fd, status;

	check(child >= 0);
	if (!child) {
		fd = open(path, O_RDONLY);
		check(fd >= 0);
		while ((got = read(fd, piece, sizeof(piece))) > 0) {
			check_pattern(piece, position + at, got, 1);
			at += got;
		}
		expect(got, 0);
		expect(at, length);
		_exit(0);
	}
	expect(waitpid(child, &status, 0), child);
	expect(status, 0);
}

/* The dma-buf, where one has to be; -1 elsewhere */
static int dmabuf_of(const struct dmabuf_dio_buffer *buffer)
{
	int fd = dmabuf_dio_buffer_dmabuf_fd(buffer);

	if (fd >= 0)
		return fd;
	expect(fd, -EOPNOTSUPP);
	check(!getenv("DMABUF_DIO_KERNEL"));
	check(strstr(dmabuf_dio_error_message(), "udmabuf") && *dmabuf_dio_error_hint());
	expect(dmabuf_dio_buffer_shared_length(buffer), 0);
	return -1;
}

static void range(uint64_t offset, uint64_t length)
{
	struct dmabuf_dio_options options = no_options();
	struct dmabuf_dio_report *report;
	struct dmabuf_dio_report_fields fields;
	struct dmabuf_dio_buffer *buffer;
	struct dmabuf_dio_map *map;
	unsigned char *bytes;
	char own[64];
	int fd, dmabuf;

	options.kind = DMABUF_DIO_KIND_FILE;
	options.offset = offset;
	options.length = length;
	expect(dmabuf_dio_load("data", &options, &buffer, &report), 0);
	fields.size = sizeof(fields);
	expect(dmabuf_dio_report_fields(report, &fields), 0);
	expect(fields.kind, DMABUF_DIO_KIND_FILE);
	expect(fields.bytes, length);
	dmabuf_dio_report_free(report);

	expect(dmabuf_dio_buffer_kind(buffer), DMABUF_DIO_KIND_FILE);
	expect(dmabuf_dio_buffer_data_offset(buffer), 0);
	expect(dmabuf_dio_buffer_length(buffer), length);
	fd = dmabuf_dio_buffer_memfd_fd(buffer);
	expect(fd, dmabuf_dio_buffer_fd(buffer));
	snprintf(own, sizeof(own), "/proc/%d/fd/%d", getpid(), fd);
	check(!strcmp(dmabuf_dio_buffer_path(buffer), own));
	check_fd(fd, offset, length, length);
	check_path(dmabuf_dio_buffer_path(buffer), offset, length);
	check_content(buffer, offset, length, 1);

	dmabuf = dmabuf_of(buffer);
	if (dmabuf >= 0) {
		check(dmabuf != fd);
		expect(dmabuf_dio_buffer_shared_length(buffer), length / PAGE * PAGE);
		expect(lseek(dmabuf, 0, SEEK_END), rounded(length));
		check_fd(dmabuf, offset, length, rounded(length));
	}
	/* Each shows what is written to the other. */
	if (dmabuf >= 0 && length >= PAGE) {
		expect(dmabuf_dio_map(buffer, DMABUF_DIO_ACCESS_WRITE, &map), 0);
		bytes = (unsigned char *)dmabuf_dio_map_address(map);
		bytes[PAGE - 1] ^= 0xff;
		expect(dmabuf_dio_unmap(map), 0);
		bytes = (unsigned char *)mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, dmabuf, 0);
		check(bytes != MAP_FAILED);
		check_pattern(bytes, offset, PAGE - 1, 1);
		bytes[PAGE - 1] ^= 0xff;
		check_pattern(bytes, offset, PAGE, 1);
		expect(munmap(bytes, PAGE), 0);
		check_fd(fd, offset, length, length);
	}

	/* The sealed file can be read by path, and not be written. */
	expect(dmabuf_dio_buffer_seal(buffer), 0);
	check(fcntl(fd, F_GET_SEALS) & (dmabuf >= 0 ? F_SEAL_FUTURE_WRITE : F_SEAL_WRITE));
	expect(pwrite(fd, "x", 1, 0), -1);
	expect(errno, EPERM);
	expect(dmabuf_dio_map(buffer, DMABUF_DIO_ACCESS_WRITE, &map), -EACCES);
	options = no_options();
	options.length = 1;
	expect(dmabuf_dio_load_into(buffer, 0, "data", &options, NULL), -EACCES);
	check_path(dmabuf_dio_buffer_path(buffer), offset, length);
	dmabuf_dio_buffer_free(buffer);
}

/* Buffers with one face */
static void one_face(struct dmabuf_dio_buffer *buffer)
{
	expect(dmabuf_dio_buffer_shared_length(buffer), 0);
	if (dmabuf_dio_buffer_kind(buffer) == DMABUF_DIO_KIND_MEMFD) {
		expect(dmabuf_dio_buffer_memfd_fd(buffer), dmabuf_dio_buffer_fd(buffer));
		check(dmabuf_dio_buffer_path(buffer));
		expect(dmabuf_dio_buffer_dmabuf_fd(buffer), -EOPNOTSUPP);
		check(strstr(dmabuf_dio_error_hint(), "as a file"));
		return;
	}
	expect(dmabuf_dio_buffer_dmabuf_fd(buffer), dmabuf_dio_buffer_fd(buffer));
	check(!dmabuf_dio_buffer_path(buffer));
	expect(dmabuf_dio_buffer_memfd_fd(buffer), -EOPNOTSUPP);
	check(strstr(dmabuf_dio_error_hint(), "DMABUF_DIO_KIND_FILE"));
}

static void arguments(void)
{
	struct dmabuf_dio_options options = no_options();
	struct dmabuf_dio_buffer *buffer = memfd_of(PAGE, 0);

	expect(dmabuf_dio_buffer_memfd_fd(NULL), -EFAULT);
	expect(dmabuf_dio_buffer_dmabuf_fd(NULL), -EFAULT);
	expect(dmabuf_dio_buffer_shared_length(NULL), 0);
	check(!dmabuf_dio_buffer_path(NULL));
	options.kind = DMABUF_DIO_KIND_FILE;
	expect(dmabuf_dio_load_into(buffer, 0, "data", &options, NULL), -EINVAL);
	dmabuf_dio_buffer_free(buffer);
	options.kind = DMABUF_DIO_KIND_PRIVATE + 1;
	expect(dmabuf_dio_load("data", &options, &buffer, NULL), -EINVAL);
	options.kind = DMABUF_DIO_KIND_FILE;
	expect(dmabuf_dio_load("missing", &options, &buffer, NULL), -ENOENT);
	check(!buffer);
}

/* Private memory has no descriptor; operations without one work. */
static void private_memory(void)
{
	struct dmabuf_dio_options options = no_options();
	struct dmabuf_dio_buffer *buffer;
	struct dmabuf_dio_report *report;
	struct dmabuf_dio_report_fields fields;

	options.kind = DMABUF_DIO_KIND_PRIVATE;
	options.offset = 5;
	options.length = 3 * PAGE;
	expect(dmabuf_dio_load("data", &options, &buffer, &report), 0);
	fields.size = sizeof(fields);
	expect(dmabuf_dio_report_fields(report, &fields), 0);
	expect(fields.kind, DMABUF_DIO_KIND_PRIVATE);
	dmabuf_dio_report_free(report);
	expect(dmabuf_dio_buffer_kind(buffer), DMABUF_DIO_KIND_PRIVATE);
	expect(dmabuf_dio_buffer_data_length(buffer), 3 * PAGE);
	check_content(buffer, 5, 3 * PAGE, 1);
	expect(dmabuf_dio_buffer_fd(buffer), -EINVAL);
	expect(dmabuf_dio_buffer_dup(buffer), -EINVAL);
	expect(dmabuf_dio_buffer_memfd_fd(buffer), -EOPNOTSUPP);
	expect(dmabuf_dio_buffer_dmabuf_fd(buffer), -EOPNOTSUPP);
	check(!dmabuf_dio_buffer_path(buffer));
	expect(dmabuf_dio_buffer_seal(buffer), -EINVAL);
	expect(dmabuf_dio_attach(buffer), -EINVAL);
	options = no_options();
	expect(dmabuf_dio_load_into(buffer, 0, "data", &options, NULL), -EINVAL);
	expect(dmabuf_dio_save(buffer, 0, 1, "copy", NULL, NULL), -EINVAL);
	dmabuf_dio_buffer_free(buffer);
	options.kind = DMABUF_DIO_KIND_PRIVATE;
	options.backend = DMABUF_DIO_BACKEND_MEMFD;
	expect(dmabuf_dio_load("data", &options, &buffer, NULL), -EOPNOTSUPP);
}

int main(void)
{
	unsigned int descriptors = open_descriptors();

	make_file("data", MIB(9) + 123, 1);
	range(0, MIB(9) + 123);
	range(0, 1);
	range(0, PAGE);
	range(PAGE, 2 * PAGE);
	range(4095, PAGE + 2);
	range(12345, MIB(2) + 77);
	for_each_kind(PAGE, one_face);
	private_memory();
	arguments();
	expect(open_descriptors(), descriptors);
	return 0;
}
