/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Saves: a new file in place of the old one, into an open file, and the files after an error */
#include "lib.h"

#define LENGTH MIB(3)

static int stop(uint64_t done, uint64_t total, void *data)
{
	(void)done;
	(void)total;
	(void)data;
	return 1;
}

static void test(struct dmabuf_dio_buffer *buffer)
{
	struct dmabuf_dio_options options = no_options();
	struct dmabuf_dio_report *report;
	struct dmabuf_dio_report_fields fields;
	unsigned char bytes[300];
	struct stat before, after;
	int fd;

	expect(dmabuf_dio_load_into(buffer, 0, "data", NULL, NULL), 0);
	make_file("copy", 1000, 9);
	expect(stat("copy", &before), 0);
	expect(dmabuf_dio_save(buffer, 0, LENGTH, "copy", NULL, &report), 0);
	check_file("copy", LENGTH, 3);
	expect(stat("copy", &after), 0);
	check(before.st_ino != after.st_ino);
	fields.size = sizeof(fields);
	expect(dmabuf_dio_report_fields(report, &fields), 0);
	expect(fields.bytes, LENGTH);
	expect(fields.kind, dmabuf_dio_buffer_kind(buffer));
	dmabuf_dio_report_free(report);

	/* In place: bytes around the range stay */
	fd = open("copy", O_RDWR);
	options.offset = 4097;
	expect(dmabuf_dio_save_fd(buffer, 8192, 100, fd, &options, NULL), 0);
	expect(pread(fd, bytes, sizeof(bytes), 4000), sizeof(bytes));
	check_pattern(bytes, 4000, 97, 3);
	check_pattern(bytes + 97, 8192, 100, 3);
	check_pattern(bytes + 197, 4197, 103, 3);
	expect(fstat(fd, &after), 0);
	expect(after.st_size, LENGTH);
	close(fd);

	/* Errors leave the old file */
	make_file("old", 5000, 4);
	expect(dmabuf_dio_save(buffer, 1, LENGTH, "old", NULL, NULL), -ERANGE);
	expect(dmabuf_dio_save(buffer, 1, UINT64_MAX, "old", NULL, NULL), -EOVERFLOW);
	expect(dmabuf_dio_save(buffer, 0, 0, "old", NULL, NULL), -EINVAL);
	expect(dmabuf_dio_save(buffer, 0, LENGTH, "old", &options, NULL), -EINVAL);
	check(strstr(dmabuf_dio_error_message(), "offset"));
	options.offset = 0;
	options.progress = stop;
	expect(dmabuf_dio_save(buffer, 0, LENGTH, "old", &options, NULL), -ECANCELED);
	check_file("old", 5000, 4);
	expect(dmabuf_dio_save(buffer, 0, LENGTH, "no/such/folder", NULL, NULL), -ENOENT);
	check(strstr(dmabuf_dio_error_message(), "no/such/folder"));
	fd = open("old", O_RDONLY);
	expect(dmabuf_dio_save_fd(buffer, 0, 1, fd, NULL, NULL), -EBADF);
	close(fd);
	check_file("old", 5000, 4);
}

int main(void)
{
	make_file("data", LENGTH, 3);
	for_each_kind(LENGTH, test);
	return 0;
}
