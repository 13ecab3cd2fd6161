// SPDX-License-Identifier: GPL-2.0-only
/*
 * A page with a hardware memory error is not lent: a copy from it would stop the machine. The
 * other pages of the memfd are.
 */
#include <sys/mman.h>
#include <sys/wait.h>

#include "odd.h"

#define LENGTH	(32 * PAGE)
#define BAD	(17 * PAGE)

int main(void)
{
	int memfd = memfd_for_udmabuf(LENGTH, 0), file, rest, bad, dev, status;
	struct dmabuf_dio_rw rw = { .length = BAD };
	unsigned char *map;
	pid_t pid;

	if (access("/dev/udmabuf", F_OK))
		skip("no /dev/udmabuf");
	file_pattern("data", LENGTH, 1);
	map = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	check(map != MAP_FAILED);
	pattern_fill(map, 0, LENGTH, 2);
	bad = udmabuf_over(memfd, 0, LENGTH);
	rest = udmabuf_over(memfd, 0, BAD);
	check(bad >= 0 && rest >= 0);
	/* A process that has the page mapped may be killed. */
	pid = spawn();
	if (!pid) {
		status = madvise(map + BAD, PAGE, MADV_HWPOISON) && errno == EINVAL;
		exit(status ? EXIT_SKIP : 0);
	}
	check(waitpid(pid, &status, 0) == pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP)
		skip("this kernel does not handle memory errors");
	expect_refused(bad, POISONED);

	dev = dio_open();
	expect(dio_attach(dev, rest), 0);
	file = rw.file_fd = file_open("data", O_RDONLY | direct_flag(direct_possible()));
	expect(dio_read(dev, &rw), 0);
	pattern_check(map, 0, BAD, 1);
	close(file);
	close(dev);
	return 0;
}
