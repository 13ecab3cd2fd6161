// SPDX-License-Identifier: GPL-2.0-only
/* Only root may open the device node; a context may be passed on. */
#include <sys/stat.h>

#include "lib.h"

#define NOBODY	65534

int main(void)
{
	struct buffer buf;
	struct stat st;
	pid_t pid;
	int dev;

	if (getuid())
		skip("needs root");
	check(!stat(DMABUF_DIO_DEVICE, &st));
	check(S_ISCHR(st.st_mode));
	expect(st.st_uid, 0);
	expect(st.st_mode & 077, 0);

	file_pattern("data", MIB(1), 1);
	buffer_create(&buf, BUFFER_LOAD, MIB(1));
	dev = dio_context(&buf);
	buffer_pattern(&buf, 2);

	pid = spawn();
	if (!pid) {
		struct dmabuf_dio_rw rw = { .length = MIB(1) };

		rw.file_fd = file_open("data", O_RDONLY);
		check(!setgid(NOBODY) && !setuid(NOBODY));
		errno = 0;
		check(open(DMABUF_DIO_DEVICE, O_RDWR) < 0);
		expect(-errno, -EACCES);
		check(open(DMABUF_DIO_DEVICE, O_RDONLY) < 0);
		expect(-errno, -EACCES);

		expect(dio_read(dev, &rw), 0);
		expect(rw.done, MIB(1));
		exit(0);
	}
	reap(pid);
	pattern_check(buf.map, 0, MIB(1), 1);
	return 0;
}
