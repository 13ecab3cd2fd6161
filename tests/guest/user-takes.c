// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a user with the node and a control group of 100 MiB can take: how much memory is charged,
 * and how much is not. The figures are in docs/security.md. memory=1600
 */
#include <sys/resource.h>
#include <sys/stat.h>

#include "cgroup.h"
#include "ring.h"

#define NOBODY		65534
#define FILES		40000
#define LIMIT		MIB(100)
/* A small allocation at the limit invokes the OOM killer of the group, and all is given back. */
#define ENOUGH		MIB(92)
#define LENGTH		MIB(32)
#define SLOTS		16384

static int current;	/* memory.current of the group */
static int file;

static bool enough(void)
{
	char text[32];
	ssize_t got = pread(current, text, sizeof(text) - 1, 0);

	check(got > 0);
	text[got] = '\0';
	return strtoull(text, NULL, 10) >= ENOUGH;
}

static struct dmabuf_dio_load load_of(uint64_t length)
{
	return (struct dmabuf_dio_load){
		.file_fd = file, .fd_flags = O_RDWR, .length = length,
	};
}

/* The largest buffer, and others of half the size until none fits */
static unsigned int take_large(void)
{
	struct dmabuf_dio_load load = load_of(GIB(1));
	int dev = dio_open();
	unsigned int taken = 0;

	for (; load.length >= PAGE; load.length /= 2)
		while (!enough() && !dio_load(dev, &load))
			taken++;
	return taken;
}

static unsigned int take_small(void)
{
	struct dmabuf_dio_load load = load_of(PAGE);
	int dev = dio_open();
	unsigned int taken = 0;

	while (!enough() && !dio_load(dev, &load))
		taken++;
	return taken;
}

static unsigned int take_contexts(void)
{
	struct dmabuf_dio_load load = load_of(LENGTH);
	struct dmabuf_dio_attach attach = {};
	unsigned int taken = 0;
	int dev = dio_open();

	expect(dio_load(dev, &load), 0);
	attach.dmabuf_fd = load.dmabuf_fd;
	for (; !enough(); taken++) {
		dev = open(DMABUF_DIO_DEVICE, O_RDWR);
		if (dev < 0 || dio_call(dev, DMABUF_DIO_IOC_ATTACH, &attach))
			break;
	}
	return taken;
}

static unsigned int take_slots(void)
{
	struct dmabuf_dio_load load = load_of(LENGTH);
	unsigned int taken = 0, i;
	int dev = dio_open();

	expect(dio_load(dev, &load), 0);
	expect(dio_attach(dev, load.dmabuf_fd), 0);
	while (!enough()) {
		struct io_uring ring;

		ring_create(&ring, 8, SLOTS);
		for (i = 0; i < SLOTS && !(i % 64 == 0 && enough()); i++, taken++)
			expect(slot_register(&ring, dev, i, 0, LENGTH, SLOT_BOTH), 0);
	}
	return taken;
}

static unsigned int udmabufs(bool attached)
{
	int memfd = memfd_for_udmabuf(LENGTH, 0);
	struct dmabuf_dio_attach attach = {};
	unsigned int taken = 0;

	check(memfd >= 0);
	/* That many in any case: what a kernel does not charge has no end. */
	for (; !enough() && taken < 500; taken++) {
		attach.dmabuf_fd = udmabuf_over(memfd, 0, LENGTH);
		if (attach.dmabuf_fd < 0 ||
		    (attached && dio_call(dio_open(), DMABUF_DIO_IOC_ATTACH, &attach)))
			break;
	}
	return taken;
}

static unsigned int take_udmabufs(void)
{
	return udmabufs(false);
}

static unsigned int take_attached_udmabufs(void)
{
	return udmabufs(true);
}

/* Returns the bytes that were taken without a charge. */
static int64_t takes(const char *what, unsigned int (*take)(void))
{
	const struct rlimit files = { FILES, FILES };
	int64_t before, charged, beside;
	int answer[2], wait[2];
	unsigned int taken;
	pid_t pid;

	trying("%s", what);
	cgroup_create("memory");
	cgroup_set("memory.max", "100M");
	current = open("cgroup/dio-test/memory.current", O_RDONLY | O_CLOEXEC);
	check(current >= 0 && !pipe(answer) && !pipe(wait));
	pid = spawn();
	if (!pid) {
		cgroup_enter(getpid());
		check(!setrlimit(RLIMIT_NOFILE, &files));
		check(!setgid(NOBODY) && !setuid(NOBODY));
		check(write(answer[1], &taken, 1) == 1);
		check(read(wait[0], &taken, 1) == 1);
		taken = take();
		check(write(answer[1], &taken, sizeof(taken)) == sizeof(taken));
		/* Until all has been counted */
		check(read(wait[0], &taken, 1) == 1);
		exit(0);
	}
	/* So that a child that fails is not waited for */
	close(answer[1]);
	close(wait[0]);
	check(read(answer[0], &taken, 1) == 1);
	before = memory_available() + cgroup_get("memory.current");
	check(write(wait[1], "", 1) == 1);
	check(read(answer[0], &taken, sizeof(taken)) == sizeof(taken));
	beside = before - (int64_t)memory_available();
	charged = cgroup_get("memory.current");
	beside -= charged;
	printf("%s: %u, %lld KiB charged, %lld KiB not\n", what, taken, (long long)charged >> 10,
	       (long long)beside >> 10);
	check(taken);
	check(charged <= (int64_t)LIMIT);
	expect(cgroup_get_of("memory.events", "oom_kill "), 0);
	check(write(wait[1], "", 1) == 1);
	reap(pid);
	close(current);
	close(answer[0]);
	close(wait[1]);
	/* The pages of attached udmabufs are marked dirty in the background. */
	module_wait_users(0);
	cgroup_remove();
	expect_memory_back(before, MIB(24));
	return beside;
}

/* The core of dma-buf charges nothing for a dma-buf: about 500 bytes each. */
static void bounded(const char *what, unsigned int (*take)(void))
{
	check(takes(what, take) < (int64_t)MIB(24));
}

int main(void)
{
	int64_t alone;

	if (strstr(guest_kernel(), "-debug"))
		skip("KASAN and kmemleak take memory for everything, too");
	file_sparse("data", GIB(1));
	file = file_open("data", O_RDONLY | direct_flag(direct_possible()));
	check(!chmod(DMABUF_DIO_DEVICE, 0666));
	bounded("large loads", take_large);
	bounded("loads of a page", take_small);
	bounded("contexts", take_contexts);
	if (dio_has_slots())
		bounded("slots", take_slots);
	if (!guest_without_udmabuf()) {
		check(!chmod("/dev/udmabuf", 0666));
		/* The kernel charges nothing for what a udmabuf is of. Attaching must not add to it. */
		alone = takes("udmabufs", take_udmabufs);
		check(takes("attached udmabufs", take_attached_udmabufs) < alone + (int64_t)MIB(8));
		check(!chmod("/dev/udmabuf", 0600));
	}
	check(!chmod(DMABUF_DIO_DEVICE, 0600));
	return 0;
}
