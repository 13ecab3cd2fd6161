// SPDX-License-Identifier: GPL-2.0-only
/*
 * Requests that only a file system can make, and the callbacks it gets: iomap_end is called once
 * for each iomap_begin. Needs kernel/sim/iomap_caller.
 */
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "iomap_caller/iomap_caller.h"
#include "small.h"

#define AT	(3 * BLOCK)

/* From the kernel's iomap.h */
enum { HOLE, DELALLOC, MAPPED, UNWRITTEN, INLINE };
#define FORCE_WAIT	1
#define PARTIAL		4

static unsigned char *memory, *content;
static struct iomap_call plain;
static int caller;

/* Makes the call with the switch on and off; the result must be the same. */
static struct iomap_call call_at(const char *file, int line, struct iomap_call wanted,
				 enum path path, ssize_t result, const void *bytes)
{
	struct iomap_call call;
	int on;

	for (on = 0; on < 2; on++) {
		enum path expected = on ? path : LONG;
		struct hits before = hits();

		small_switch(on);
		call = wanted;
		memset(memory, 0x5a, BLOCK);
		check(!ioctl(caller, IOMAP_CALL, &call));
		expect_at(file, line, "the result", call.result, result);
		expect_path_at(file, line, hits_since(before), expected, 1);
		if (result > 0 && bytes)
			bytes_check_at(file, line, memory, bytes, BLOCK);
		if (!call.begin_error)
			expect_at(file, line, "mappings ended", call.ended, call.begun);
	}
	return call;
}

#define call(path, result, bytes, ...)							\
({											\
	struct iomap_call wanted = plain;						\
											\
	trying("%s", #__VA_ARGS__);							\
	__VA_ARGS__;									\
	call_at(__FILE__, __LINE__, wanted, path, result, bytes);			\
})

static void half_memory(void)
{
	char *two = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(two != MAP_FAILED);
	memset(two, 0, PAGE);
	check(!mprotect(two + PAGE, PAGE, PROT_NONE));
	two += PAGE / 2;
	call(LONG, BLOCK / 2, NULL, wanted.dio_flags = PARTIAL, wanted.memory = (uintptr_t)two);
	bytes_check(two, content, BLOCK / 2);
	call(FELL_BACK, -EFAULT, NULL, wanted.memory = (uintptr_t)two);
	munmap(two - PAGE / 2, 2 * PAGE);
}

int main(void)
{
	struct iomap_call done;

	if (!small_has_switch())
		skip("counts the mappings that the short path of 6.12 asks for");
	hits();
	test_fs();
	caller = open("/dev/iomap_caller", O_RDWR | O_CLOEXEC);
	if (caller < 0)
		skip("no /dev/iomap_caller: %s", strerror(errno));
	memory = allocate(BLOCK);
	content = allocate(BLOCK);
	pattern_fill(content, AT, BLOCK, 1);
	file_pattern("data", KIB(64), 1);
	plain = (struct iomap_call){
		.file_fd = file_open("data", O_RDONLY | O_DIRECT),
		.memory = (uintptr_t)memory, .length = BLOCK, .position = AT,
		.type = MAPPED, .mapped = BLOCK, .address = disk_position("data", AT, BLOCK),
	};

	done = call(SHORT, BLOCK, content, );
	expect(done.begun, 1);
	expect(done.written, BLOCK);

	call(LONG, BLOCK + 100, content, wanted.done_before = 100);
	call(LONG, BLOCK, content, wanted.own_ops = 1);
	call(LONG, BLOCK, content, wanted.dio_flags = FORCE_WAIT);
	call(LONG, BLOCK, content, wanted.dio_flags = PARTIAL);
	half_memory();

	/* Mappings that are not simple: the short path gives up and ends them with nothing done. */
	memset(content + BLOCK / 2, 0, BLOCK / 2);
	done = call(FELL_BACK, BLOCK, content, wanted.mapped = BLOCK / 2);
	expect(done.begun, 3);
	expect(done.written, BLOCK);
	pattern_fill(content, AT, BLOCK, 1);
	done = call(FELL_BACK, BLOCK, content, wanted.source_length = BLOCK / 2);
	expect(done.written, BLOCK);
	memset(content, 0, BLOCK);
	call(FELL_BACK, BLOCK, content, wanted.type = HOLE);
	call(FELL_BACK, BLOCK, content, wanted.type = UNWRITTEN);
	call(FELL_BACK, -EIO, NULL, wanted.type = DELALLOC);
	memset(content, 'i', BLOCK);
	call(FELL_BACK, BLOCK, content, wanted.type = INLINE);

	/* Errors of the file system */
	done = call(REFUSED, -EUCLEAN, NULL, wanted.begin_error = -EUCLEAN);
	expect(done.begun, 1);
	expect(done.ended, 0);
	done = call(FELL_BACK, 0, NULL, wanted.begin_error = -ENOTBLK);
	expect(done.ended, 0);
	return 0;
}
