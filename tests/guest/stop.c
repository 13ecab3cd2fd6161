// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process in READ, WRITE or LOAD can be stopped and frozen like any other, once the
 * requests in flight are done; then no data moves. When resumed, it continues where it
 * stopped. timeout=600
 */
#include <signal.h>

#include "cgroup.h"
#include "slow.h"

#define ROUNDS	4
/* The allowed delay besides a request: the best of several tries, as the machine is shared */
#define AT_ONCE	0.1

static bool stopped(pid_t pid)
{
	char path[64], text[512], *state;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	check(proc_read(path, text, sizeof(text)));
	state = strrchr(text, ')');
	check(state);
	return state[2] == 'T';
}

static bool frozen(pid_t pid)
{
	(void)pid;
	return cgroup_get_of("cgroup.events", "frozen ");
}

static void stop(pid_t pid, bool on)
{
	check(!kill(pid, on ? SIGSTOP : SIGCONT));
}

static void freeze(pid_t pid, bool on)
{
	(void)pid;
	cgroup_set("cgroup.freeze", on ? "1" : "0");
}

/* Returns the seconds until @pid is stopped or frozen. */
static double rest(const struct slow *slow, pid_t pid, void (*set)(pid_t, bool),
		   bool (*is)(pid_t))
{
	double start, spent;
	uint64_t moved;

	slow_wait(slow);
	start = seconds();
	set(pid, true);
	while (!is(pid)) {
		if (seconds() - start > 20)
			fail("it goes on");
		sleep_ms(1);
	}
	spent = seconds() - start;
	moved = dio_moved(slow->dev);
	sleep_ms(300);
	expect(dio_moved(slow->dev), moved);
	set(pid, false);
	return spent;
}

static void resting(struct slow *slow, void (*set)(pid_t, bool), bool (*is)(pid_t), bool grouped)
{
	double limit = AT_ONCE, best = 1000;
	const char *factor = getenv("TESTS_GUEST_SLOW");
	pid_t pid;
	int i;

	if (slow->way == SLOW_DISK)
		limit += 0.05;
	if (factor)
		limit *= atoi(factor);
	if (grouped)
		cgroup_create(NULL);
	pid = spawn();
	if (!pid) {
		if (grouped)
			cgroup_enter(getpid());
		check(slow_work(slow));
		exit(0);
	}
	for (i = 0; i < ROUNDS && dio_moved(slow->dev) < slow->length / 2; i++) {
		double spent = rest(slow, pid, set, is);

		if (spent < best)
			best = spent;
	}
	check(i);
	slow_hurry(slow);
	reap(pid);
	if (grouped)
		cgroup_remove();
	if (best > limit)
		fail("it rests after %.3f s", best);
}

static void stopping(struct slow *slow)
{
	resting(slow, stop, stopped, false);
}

static void freezing(struct slow *slow)
{
	resting(slow, freeze, frozen, true);
}

static void interrupted(struct slow *slow)
{
	unsigned int interruptions;

	signal_handled(SIGALRM, 0);
	alarm_every(10);
	interruptions = slow_work(slow);
	alarm_every(0);
	check(interruptions);
}

static bool run(enum slow_call call, enum slow_way way, void (*test)(struct slow *slow))
{
	struct slow slow;

	if (!slow_begin(&slow, call, way))
		return false;
	test(&slow);
	slow_end(&slow);
	return true;
}

int main(void)
{
	int call;

	for (call = 0; call < SLOW_CALLS; call++) {
		enum slow_way way = run(call, SLOW_DISK, stopping) ? SLOW_DISK : SLOW_DIRECT;

		if (way == SLOW_DIRECT)
			run(call, way, stopping);
		if (!access("/proc/self/cgroup", F_OK))
			run(call, way, freezing);
		run(call, way, interrupted);
		run(call, SLOW_BUFFERED, stopping);
	}
	return 0;
}
