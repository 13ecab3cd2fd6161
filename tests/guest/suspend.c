// SPDX-License-Identifier: GPL-2.0-only
/* The machine is suspended in the middle of READ, WRITE and LOAD. timeout=300 */
#include "slow.h"

#define DELAY	"/sys/module/suspend/parameters/pm_test_delay"

/* Test mode: freeze all tasks, then resume */
static double sleep_and_wake(void)
{
	double start = seconds();

	proc_write("/sys/power/state", "freeze");
	return seconds() - start;
}

int main(void)
{
	double usual;
	int call;

	if (!proc_try_write("/sys/power/pm_test", "freezer"))
		skip("this kernel does not test suspending");
	proc_write(DELAY, "0");
	usual = sleep_and_wake();

	for (call = 0; call < SLOW_CALLS; call++) {
		struct slow slow;
		double spent;
		pid_t pid;

		if (!slow_begin(&slow, call, SLOW_DISK))
			skip("no slow disk");
		slow.depth = 1;
		pid = spawn();
		if (!pid) {
			check(slow_work(&slow));
			exit(0);
		}
		slow_wait(&slow);
		spent = sleep_and_wake();
		if (spent > usual + 1)
			fail("suspending took %.1f s, without transfer %.1f", spent, usual);
		slow_hurry(&slow);
		reap(pid);
		slow_end(&slow);
	}
	proc_write("/sys/power/pm_test", "none");
	return 0;
}
