/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Progress is told from 0 to the end, and cancels at whatever call */
#include "lib.h"

#define LENGTH MIB(24)

struct watch {
	uint64_t last, calls, stop_at;
};

static int watch(uint64_t done, uint64_t total, void *data)
{
	struct watch *watch = (struct watch *)data;

	expect(total, LENGTH);
	check(done >= watch->last && done <= total);
	if (!watch->calls++)
		expect(done, 0);
	watch->last = done;
	return done >= watch->stop_at ? -1 : 0;
}

static void loads(uint32_t backend)
{
	struct dmabuf_dio_options options = no_options();
	struct dmabuf_dio_buffer *buffer;
	struct dmabuf_dio_report *report;
	struct watch seen = { 0, 0, UINT64_MAX };
	unsigned int descriptors;
	int status;

	options.backend = backend;
	options.block_size = MIB(1);
	options.progress = watch;
	options.progress_data = &seen;
	status = dmabuf_dio_load("data", &options, &buffer, NULL);
	if (status == -EOPNOTSUPP)
		return;
	expect(status, 0);
	check_content(buffer, 0, LENGTH, 1);
	dmabuf_dio_buffer_free(buffer);
	expect(seen.last, LENGTH);
	check(seen.calls >= 2);

	descriptors = open_descriptors();
	memset(&seen, 0, sizeof(seen));
	report = (struct dmabuf_dio_report *)&seen;	/* overwritten in any case */
	expect(dmabuf_dio_load("data", &options, &buffer, &report), -ECANCELED);
	check(!buffer && !report);
	expect(seen.calls, 1);
	expect(dmabuf_dio_error_done(), 0);
	expect(open_descriptors(), descriptors);

	/* Part way: the kernel may be done with it all before the word arrives. */
	memset(&seen, 0, sizeof(seen));
	seen.stop_at = MIB(2);
	status = dmabuf_dio_load("data", &options, &buffer, NULL);
	if (status) {
		expect(status, -ECANCELED);
		check(dmabuf_dio_error_done() < LENGTH);
	}
	dmabuf_dio_buffer_free(buffer);
	expect(open_descriptors(), descriptors);
	printf("%s: %s\n", dmabuf_dio_backend_name(backend), status ? "cancelled" : "was done");
}

static void into(struct dmabuf_dio_buffer *buffer)
{
	struct dmabuf_dio_options options = no_options();
	struct watch seen = { 0, 0, 0 };

	options.progress = watch;
	options.progress_data = &seen;
	expect(dmabuf_dio_load_into(buffer, 0, "data", &options, NULL), -ECANCELED);
	expect(seen.calls, 1);
}

int main(void)
{
	uint32_t backend;

	make_file("data", LENGTH, 1);
	for (backend = 1; dmabuf_dio_backend_name(backend); backend++)
		loads(backend);
	for_each_kind(LENGTH, into);
	return 0;
}
