// SPDX-License-Identifier: GPL-2.0-only
/*
 * timeout=600: while a buffer is mapped for a disk and requests are in flight, the disk loses its driver, is removed,
 * and its IOMMU domain changes
 */
#include <pthread.h>

#include "plug.h"
#include "premap.h"
#include "ring.h"

#define LENGTH	MIB(4)
#define PIECE	KIB(256)
#define ROUNDS	2

static struct buffer buf;
static int context;
static const char *path;		/* raw_disk() gives up when it is gone */
static char type_path[128];

static void write_pci(const char *to)
{
	proc_write(to, plug_pci());
}

static void unbind(void)
{
	write_pci("/sys/bus/pci/drivers/nvme/unbind");
}

static void bind_again(void)
{
	write_pci("/sys/bus/pci/drivers/nvme/bind");
	plug_wait(path);
}

/* All of the content, and whether it came through addresses that were there */
static void works(bool mapped)
{
	int disk = file_open(path, O_RDONLY | O_DIRECT);
	struct dmabuf_dio_rw rw = { .file_fd = disk, .length = LENGTH };
	unsigned long long before;

	/* The first request maps the buffer. */
	expect(dio_read(context, &rw), 0);
	premap_expect_tables(mapped);
	before = premap_now().used;
	buffer_pattern(&buf, 9);
	expect(dio_read(context, &rw), 0);
	expect(rw.done, LENGTH);
	buffer_check(&buf, 0, 0, LENGTH, 1);
	if (mapped)
		check(premap_now().used > before);
	close(disk);
}

/* Reads by READ and by a slot until the disk is gone */
static void *read_until_gone(void *unused)
{
	int disk = file_open(path, O_RDONLY | O_DIRECT);
	struct dmabuf_dio_rw rw = { .file_fd = disk, .length = LENGTH, .chunk = PIECE };

	(void)unused;
	/* A removed disk has length 0: reads return nothing. */
	while (!dio_read(context, &rw) && rw.done == LENGTH)
		;
	close(disk);
	return NULL;
}

static void *slot_until_gone(void *unused)
{
	int disk = file_open(path, O_RDONLY | O_DIRECT), ret = PIECE;
	unsigned int i, n = LENGTH / PIECE;
	struct io_uring ring;

	(void)unused;
	ring_create(&ring, n, 1);
	expect(slot_register(&ring, context, 0, 0, LENGTH, SLOT_BOTH), 0);
	while (ret == PIECE) {
		for (i = 0; i < n; i++)
			slot_queue(&ring, false, disk, 0, i * PIECE, PIECE, i * PIECE, i);
		expect(io_uring_submit(&ring), n);
		for (i = 0; i < n; i++) {
			int now = ring_result(&ring, NULL);

			if (now != PIECE)
				ret = now;
		}
	}
	io_uring_queue_exit(&ring);
	close(disk);
	return NULL;
}

static void gone_meanwhile(void (*leave)(void), void (*back)(void))
{
	pthread_t threads[2];
	unsigned int i;

	works(true);
	check(!pthread_create(&threads[0], NULL, read_until_gone, NULL));
	check(!pthread_create(&threads[1], NULL, slot_until_gone, NULL));
	sleep_ms(300);
	leave();
	/* Checked first: nothing is mapped any more. */
	expect(premap_now().tables, 0);
	expect(premap_now().bytes, 0);
	for (i = 0; i < 2; i++)
		check(!pthread_join(threads[i], NULL));
	back();
	works(true);
}

static void rescan(void)
{
	plug_rescan(path);
}

static bool set_type(const char *type)
{
	return proc_try_write(type_path, type);
}

static void *set_identity(void *unused)
{
	(void)unused;
	while (!set_type("identity"))
		;
	return NULL;
}

static void domain_type(const char *want)
{
	char type[32];

	check(proc_read(type_path, type, sizeof(type)));
	if (strncmp(type, want, strlen(want)) || type[strlen(want)] != '\n')
		fail("the domain is %s in place of %s", type, want);
}

/* The domain is replaced once it is unused, which is after the buffer has been unmapped. */
static void unbind_and_replace(void)
{
	pthread_t thread;

	check(!pthread_create(&thread, NULL, set_identity, NULL));
	unbind();
	check(!pthread_join(thread, NULL));
	domain_type("identity");
}

static void bind_in_new_domain(void)
{
	/* Without translation nothing needs to be mapped. */
	bind_again();
	works(false);
	unbind();
	check(set_type("DMA"));
	bind_again();
}

static void domain_in_use(void)
{
	pthread_t thread;

	trying("a domain that is in use");
	works(true);
	check(!pthread_create(&thread, NULL, read_until_gone, NULL));
	sleep_ms(100);
	check(!set_type("identity"));
	/* The only change possible in this state makes unmapping lazy. */
	check(set_type("DMA-FQ"));
	sleep_ms(100);
	unbind();
	check(!pthread_join(thread, NULL));
	bind_again();
	works(true);
	unbind();
	check(set_type("DMA"));
	bind_again();
	works(true);
}

int main(void)
{
	unsigned int round;

	need_premap();
	need_slots();
	snprintf(type_path, sizeof(type_path), "/sys/bus/pci/devices/%s/iommu_group/type",
		 plug_pci());
	path = raw_disk();
	file_pattern(path, LENGTH, 1);
	buffer_create(&buf, BUFFER_HEAP, LENGTH);
	context = dio_context(&buf);
	for (round = 0; round < ROUNDS; round++) {
		trying("driver unbound, round %u", round);
		gone_meanwhile(unbind, bind_again);
		trying("device removed, round %u", round);
		gone_meanwhile(plug_remove, rescan);
		trying("domain replaced, round %u", round);
		gone_meanwhile(unbind_and_replace, bind_in_new_domain);
	}
	domain_in_use();
	/* Pages that are mapped when the disk goes, and freed after that */
	unbind();
	close(context);
	buffer_destroy(&buf);
	bind_again();
	premap_expect_tables(0);
	return 0;
}
