// SPDX-License-Identifier: GPL-2.0-only
/*
 * The machine: memory, processes, modules, commands
 */
#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "lib.h"

bool proc_read(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t ret;

	if (fd < 0)
		return false;
	while ((ret = read(fd, text + length, size - 1 - length)) > 0)
		length += ret;
	text[length] = 0;
	close(fd);
	return !ret;
}

bool proc_try_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done;

	if (fd < 0)
		return false;
	done = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return done;
}

void proc_write(const char *path, const char *text)
{
	if (!proc_try_write(path, text))
		fail("%s does not take \"%s\": %s", path, text, strerror(errno));
}

const char *guest_kernel(void)
{
	return getenv("DMABUF_DIO_KERNEL") ?: "";
}

bool guest_of_debian(void)
{
	return guest_kernel()[0] && !strchr(guest_kernel(), '-');
}

bool guest_with_series(void)
{
	return strstr(guest_kernel(), "series") || strstr(guest_kernel(), "mapped");
}

bool guest_with_fixes(void)
{
	return !strncmp(guest_kernel(), "7.3-", 4) &&
	       (guest_with_series() || strstr(guest_kernel(), "fixes"));
}

bool guest_with_vgem(void)
{
#ifdef __x86_64__
	return guest_of_debian() || !strncmp(guest_kernel(), "7.3-series", 10);
#else
	return false;
#endif
}

/* Debian's 6.1 has neither heaps nor udmabuf. */
bool guest_without_udmabuf(void)
{
	return !strcmp(guest_kernel(), "6.1");
}

/* Debian builds none for arm64. */
bool guest_without_heaps(void)
{
	const char *arch = getenv("DMABUF_DIO_ARCH") ?: "";

	return guest_without_udmabuf() || (guest_of_debian() && !strcmp(arch, "arm64"));
}

static uint64_t meminfo(const char *name)
{
	char text[8192], *line;

	check(proc_read("/proc/meminfo", text, sizeof(text)));
	line = strstr(text, name);
	check(line);
	return strtoull(line + strlen(name), NULL, 10) << 10;
}

uint64_t huge_page(void)
{
	return meminfo("Hugepagesize:");
}

uint64_t memory_total(void)
{
	return meminfo("MemTotal:");
}

uint64_t memory_of_cma(void)
{
	char text[8192];

	check(proc_read("/proc/meminfo", text, sizeof(text)));
	return strstr(text, "CmaTotal:") ? meminfo("CmaTotal:") : 0;
}

/* Free pages on per-CPU lists, which can be many */
static uint64_t memory_per_cpu(void)
{
	static char text[KIB(64)];
	uint64_t pages = 0;
	char *at = text;

	check(proc_read("/proc/zoneinfo", text, sizeof(text)));
	while ((at = strstr(at, " count:"))) {
		at += strlen(" count:");
		pages += strtoull(at, NULL, 10);
	}
	return pages * PAGE;
}

uint64_t memory_available(void)
{
	sync();
	/* 4 suppresses the message in the log. */
	proc_write("/proc/sys/vm/drop_caches", "4");
	proc_write("/proc/sys/vm/drop_caches", "3");
	return meminfo("MemFree:") + memory_per_cpu();
}

/* Kernels without CMA have no such line. */
static uint64_t memory_of_cma_free(void)
{
	return memory_of_cma() ? meminfo("CmaFree:") : 0;
}

uint64_t memory_estimated(void)
{
	memory_available();
	return meminfo("MemAvailable:") - memory_of_cma_free();
}

/* The kernel keeps this free for itself. With huge pages of 512 MiB it keeps more, and kills earlier. */
uint64_t memory_kept_free(void)
{
	char text[32];

	check(proc_read("/proc/sys/vm/min_free_kbytes", text, sizeof(text)));
	return strtoull(text, NULL, 10) << 10;
}

void need_memory(uint64_t bytes)
{
	uint64_t available = memory_available();

	if (available < bytes)
		skip("needs %llu MiB of memory, %llu are free",
		     (unsigned long long)(bytes >> 20),
		     (unsigned long long)(available >> 20));
}

/* RCU callbacks free memory only after a grace period. */
void expect_memory_back(uint64_t before, uint64_t slack)
{
	uint64_t now = 0;
	int i;

	for (i = 0; i < 50; i++) {
		now = memory_available();
		if (now + slack >= before)
			return;
		sleep_ms(100);
	}
	fail("memory is missing: %llu KiB were free before, %llu KiB are now",
	     (unsigned long long)(before >> 10), (unsigned long long)(now >> 10));
}

unsigned int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int count = 0;

	check(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

int run_command(const char *format, ...)
{
	char command[1024];
	va_list args;
	int status;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	status = system(command);
	check(status != -1);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

const char *raw_disk(void)
{
	const char *path = getenv("DMABUF_DIO_RAW_DISK");

	if (!path || access(path, F_OK))
		skip("DMABUF_DIO_RAW_DISK names no disk");
	return path;
}

static void nothing(int number)
{
	(void)number;
}

void signal_handled(int number, int flags)
{
	struct sigaction action = { .sa_handler = nothing, .sa_flags = flags };

	check(!sigaction(number, &action, NULL));
}

void alarm_every(unsigned int ms)
{
	struct itimerval timer = { .it_value = { ms / 1000, ms % 1000 * 1000 } };

	timer.it_interval = timer.it_value;
	check(!setitimer(ITIMER_REAL, &timer, NULL));
}

void wait_for_state(pid_t pid, char state)
{
	char path[64], text[512], *name_end;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	for (;;) {
		check(proc_read(path, text, sizeof(text)));
		name_end = strrchr(text, ')');
		check(name_end);
		if (name_end[2] == state)
			return;
		if (name_end[2] == 'Z')
			fail("the process ended and did not come to %c", state);
		sleep_ms(1);
	}
}

pid_t spawn(void)
{
	pid_t parent = getpid();
	pid_t pid;

	fflush(NULL);
	pid = fork();
	check(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}
	return pid;
}

void reap(pid_t pid)
{
	int status;

	check(waitpid(pid, &status, 0) == pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail("the child failed: status %#x", status);
}

void reap_killed(pid_t pid)
{
	int status;

	check(waitpid(pid, &status, 0) == pid);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		fail("the child was to be killed: status %#x", status);
}

void run_steps(int argc, char **argv, void (* const steps[])(void), int count)
{
	int only = argc > 1 ? atoi(argv[1]) : 0, step;

	if (!guest_with_fixes())
		skip("this kernel does not have the fixes");
	for (step = 1; step <= count; step++)
		if (!only || step == only)
			steps[step - 1]();
}

void kill_child(pid_t pid)
{
	check(!kill(pid, SIGKILL));
	reap_killed(pid);
}

int module_remove(const char *name)
{
	return syscall(SYS_delete_module, name, O_NONBLOCK) ? -errno : 0;
}

int module_insert(const char *name, const char *parameters)
{
	const char *directory = getenv("DMABUF_DIO_MODULE_DIR");
	char path[4096];
	int fd, ret;

	if (!directory)
		skip("DMABUF_DIO_MODULE_DIR is not set");
	snprintf(path, sizeof(path), "%s/%s.ko", directory, name);
	fd = file_open(path, O_RDONLY);
	ret = syscall(SYS_finit_module, fd, parameters, 0) ? -errno : 0;
	close(fd);
	return ret;
}

unsigned int module_users(const char *name)
{
	char path[256], text[64];

	snprintf(path, sizeof(path), "/sys/module/%s/refcnt", name);
	check(proc_read(path, text, sizeof(text)));
	return strtoul(text, NULL, 10);
}

void module_wait_users(unsigned int count)
{
	int i;

	for (i = 0; i < 600 && module_users("dmabuf_dio") > count; i++)
		sleep_ms(50);
	expect(module_users("dmabuf_dio"), count);
}

int open_numbered(const char *path, int count, bool (*is)(int fd))
{
	char name[64];
	int i, fd;

	for (i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "%s%d", path, i);
		fd = open(name, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (is(fd))
			return fd;
		close(fd);
	}
	return -ENODEV;
}
