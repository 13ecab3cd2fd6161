// SPDX-License-Identifier: GPL-2.0-only
/*
 * XFS: a direct read in flight while two files swap their blocks returns the
 * old data of one of them, never data that is written into the other one
 * afterwards. timeout=60
 */
#include <sys/syscall.h>

#include <linux/aio_abi.h>

#include "dm.h"
#include "tight.h"
#include "moves.h"
#include "small.h"

#define LENGTH	KIB(64)
#define DELAY	1000	/* of reads, ms */

int main(void)
{
	unsigned char *data = allocate(LENGTH), *junk = allocate(LENGTH);
	struct iocb read = {
		.aio_lio_opcode = IOCB_CMD_PREAD, .aio_buf = (uintptr_t)data, .aio_nbytes = LENGTH,
	}, *reads[] = { &read };
	aio_context_t aio = 0;
	struct io_event event;
	int fd, direct, donor;

	if (strcmp(test_fs(), "xfs"))
		skip("about XFS");
	disk_begin();
	if (!dm_delays())
		skip("no device mapper target that delays");
	file_pattern("mnt/file", LENGTH, 1);
	file_pattern("mnt/donor", LENGTH, 1);
	fs_sync();
	fd = file_open("mnt/file", O_RDWR);
	direct = file_open("mnt/file", O_RDONLY | O_DIRECT);
	donor = file_open("mnt/donor", O_RDWR);
	memset(junk, 0xa5, LENGTH);
	check(!syscall(SYS_io_setup, 1, &aio));

	disk_slow(DELAY);
	read.aio_fildes = direct;
	expect(syscall(SYS_io_submit, aio, 1, reads), 1);
	expect(swap_files(fd, donor, LENGTH), 0);
	fd_write(donor, junk, LENGTH, 0);
	check(!fdatasync(donor));
	expect(syscall(SYS_io_getevents, aio, 1, 1, &event, NULL), 1);
	expect(event.res, LENGTH);
	pattern_check(data, 0, LENGTH, 1);

	syscall(SYS_io_destroy, aio);
	disk_slow(0);
	close(fd);
	close(direct);
	close(donor);
	disk_end();
	free(data);
	free(junk);
	return 0;
}
