// SPDX-License-Identifier: GPL-2.0-only
/*
 * Records which basic blocks of dmabuf_dio.ko were reached, if that was compiled
 * with -fsanitize-coverage=trace-pc: the compiler then calls
 * __sanitizer_cov_trace_pc() in each. Unlike kcov it sees all threads, needs no
 * option of the kernel, and outlives reloads of the module.
 *
 * The offsets of the blocks are written to the log when this module is unloaded.
 * The file "dmabuf_dio_coverage/blocks" in debugfs has their number, which a fuzzer
 * watches.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/vmalloc.h>

#include "dmabuf_dio_coverage.h"

#define COVERED_MODULE	"dmabuf_dio"

/* Where the module's code is now, and what was reached since the first load */
struct region {
	unsigned long start;
	unsigned long size;	/* 0 while the module is not loaded */
	unsigned long first;	/* the start when it was loaded first */
	unsigned long allocated;
	u8 *reached;
};

static struct region code, init_code;
static atomic_t blocks = ATOMIC_INIT(0);
static struct dentry *folder;

static bool record(struct region *region, unsigned long pc)
{
	unsigned long offset = pc - region->start;

	if (offset >= region->size)
		return false;
	if (!READ_ONCE(region->reached[offset]) && !xchg(&region->reached[offset], 1))
		atomic_inc(&blocks);
	return true;
}

/* Called in each basic block, from any context */
notrace void __sanitizer_cov_trace_pc(void)
{
	unsigned long pc = (unsigned long)__builtin_return_address(0);

	if (!record(&code, pc))
		record(&init_code, pc);
}
EXPORT_SYMBOL_GPL(__sanitizer_cov_trace_pc);

static void module_code(const struct module *mod, bool init, unsigned long *start,
			unsigned long *size)
{
#ifdef HAVE_MODULE_MEMORY
	const struct module_memory *memory = &mod->mem[init ? MOD_INIT_TEXT : MOD_TEXT];

	*start = (unsigned long)memory->base;
	*size = memory->size;
#else
	const struct module_layout *layout = init ? &mod->init_layout : &mod->core_layout;

	*start = (unsigned long)layout->base;
	*size = layout->text_size;
#endif
}

static void watch(struct region *region, const struct module *mod, bool init)
{
	unsigned long start, size;

	module_code(mod, init, &start, &size);
	if (!region->reached) {
		region->reached = vzalloc(size);
		region->allocated = size;
		region->first = start;
	}
	if (!region->reached)
		return;
	region->start = start;
	/* Orders the fields for record(), which may run from now on. */
	smp_store_release(&region->size, min(size, region->allocated));
}

static int module_changes(struct notifier_block *nb, unsigned long state, void *data)
{
	const struct module *mod = data;

	if (strcmp(mod->name, COVERED_MODULE))
		return NOTIFY_DONE;
	if (state == MODULE_STATE_COMING) {
		watch(&code, mod, false);
		watch(&init_code, mod, true);
	} else {
		/* Other code may be there soon. */
		WRITE_ONCE(init_code.size, 0);
		if (state == MODULE_STATE_GOING)
			WRITE_ONCE(code.size, 0);
	}
	return NOTIFY_DONE;
}

static struct notifier_block notifier = { .notifier_call = module_changes };

static void print(const struct region *region)
{
	char line[512];
	unsigned long offset;
	int used = 0;

	for (offset = 0; offset < region->allocated; offset++) {
		if (region->reached[offset])
			used += scnprintf(line + used, sizeof(line) - used, " %lx", offset);
		if (used > (int)sizeof(line) - 20 || (used && offset == region->allocated - 1)) {
			pr_info("coverage %lx:%s\n", region->first, line);
			used = 0;
		}
	}
}

static int __init coverage_init(void)
{
	int err = register_module_notifier(&notifier);

	if (err)
		return err;
	folder = debugfs_create_dir("dmabuf_dio_coverage", NULL);
	debugfs_create_atomic_t("blocks", 0400, folder, &blocks);
	return 0;
}

static void __exit coverage_exit(void)
{
	debugfs_remove(folder);
	unregister_module_notifier(&notifier);
	print(&code);
	print(&init_code);
	vfree(code.reached);
	vfree(init_code.reached);
}

module_init(coverage_init);
module_exit(coverage_exit);
MODULE_DESCRIPTION("Basic blocks of " COVERED_MODULE " that were reached");
MODULE_LICENSE("GPL");
