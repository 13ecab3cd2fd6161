// SPDX-License-Identifier: GPL-2.0-only
/* The switch accepts boolean values, also while reads are in flight. */
#include <pthread.h>

#include "small.h"

#define SWITCH	"/sys/module/iomap/parameters/simple_read"
#define LENGTH	MIB(1)

static volatile bool stop;

static void *toggle(void *arg)
{
	unsigned int i;

	(void)arg;
	for (i = 0; i < 50; i++) {
		small_switch(i % 2);
		sleep_ms(20);
	}
	stop = true;
	return NULL;
}

static void *read_on(void *arg)
{
	int fd = file_open("data", O_RDONLY | O_DIRECT);
	unsigned char *memory = allocate(4096);
	uint64_t state = (uintptr_t)arg;

	while (!stop) {
		uint64_t at = random_below(&state, LENGTH / 512 - 8) * 512;
		enum way way = random_below(&state, WAYS);

		memset(memory, 0, 4096);
		expect(read_by(way, fd, memory, 4096, at), 4096);
		pattern_check(memory, at, 4096, 1);
	}
	close(fd);
	free(memory);
	return NULL;
}

static void expect_switch(const char *want)
{
	char text[16];

	check(proc_read(SWITCH, text, sizeof(text)));
	if (strcmp(text, want))
		fail("the switch says %s and not %s", text, want);
}

int main(void)
{
	struct hits before;
	pthread_t threads[3];
	uintptr_t i;

	if (!small_has_switch())
		skip("this kernel has no switch for the short path");
	before = hits();
	test_fs();
	proc_write(SWITCH, "0");
	expect_switch("0\n");
	proc_write(SWITCH, "Y");
	expect_switch("1\n");
	proc_write(SWITCH, "n");
	expect_switch("0\n");
	check(!proc_try_write(SWITCH, "2nd"));
	expect(errno, EINVAL);
	expect_switch("0\n");

	file_pattern("data", LENGTH, 1);
	check(!pthread_create(&threads[0], NULL, toggle, NULL));
	for (i = 1; i < ARRAY_SIZE(threads); i++)
		check(!pthread_create(&threads[i], NULL, read_on, (void *)i));
	for (i = 0; i < ARRAY_SIZE(threads); i++)
		check(!pthread_join(threads[i], NULL));
	expect_tried(hits_since(before));
	check(hits_since(before).ordinary);
	return 0;
}
