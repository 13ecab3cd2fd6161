// SPDX-License-Identifier: GPL-2.0-only
/*
 * A request fails if its addresses disappear while it is being mapped. It is
 * not shortened to the remaining ones. Needs kernel/sim/premap_request.
 */
#include <sys/ioctl.h>

#include "premap.h"
#include "premap_request/premap_request.h"

int main(void)
{
	struct premap_request call;
	int disk, mapper;

	need_premap();
	mapper = file_open("/dev/premap_request", O_RDWR);
	disk = file_open(raw_disk(), O_RDWR | O_DIRECT);
	fd_pattern_write(disk, 0, MIB(1), 1);
	premap_begin(disk);

	trying("both tables");
	call = (struct premap_request){ .disk_fd = disk };
	check(!ioctl(mapper, PREMAP_REQUEST, &call));
	expect(call.segments, 2);
	expect(call.bytes, 2 * PAGE);
	expect(call.status, 0);

	trying("the second one is lost");
	call = (struct premap_request){ .disk_fd = disk, .lose = 1 };
	check(!ioctl(mapper, PREMAP_REQUEST, &call));
	expect(call.segments, 1);
	expect(call.bytes, PAGE);
	if (!call.status)
		fail("the driver would send %u bytes of a longer request", call.bytes);

	close(disk);
	close(mapper);
	premap_expect_tables(0);
	return 0;
}
