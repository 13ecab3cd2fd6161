// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whose buffers may be borrowed through their kernel mapping
 *
 * A mapping (vmap) is no promise that the pages stay: TTM, for one, moves and
 * swaps out what is mapped. So an exporter has to be known not to do that, by
 * its source or by the administrator. Every page has to be one that file
 * systems may take references to, as 9p, NFS and Ceph do.
 */
#include <linux/kallsyms.h>
#include <linux/module.h>
#include <linux/string.h>

#include "exporter.h"

static char *dio_exporters = "";
module_param_named(exporters, dio_exporters, charp, 0444);
MODULE_PARM_DESC(exporters,
		 "Further exporters to borrow from, separated by colons: at your own risk, none may move, free or map uncached what it exports");

static const struct dio_exporter dio_known[] = {
	/* All of a buffer is allocated with it and freed with it. */
	{ .vmap = "system_heap_vmap", .name = "system" },
	{ .vmap = "cma_heap_vmap" },
	/* Folios of a memfd, pinned as long as the dma-buf exists. */
	{ .vmap = "vmap_udmabuf", .name = "udmabuf", .unsynced = true },
};

static const struct dio_exporter dio_named = { .locks = true };

/* Is @name one of those that the administrator has listed? */
static bool dio_is_named(const char *name)
{
	size_t length = strlen(name);
	const char *list = dio_exporters;

	for (;;) {
		const char *end = strchrnul(list, ':');

		if (length && end - list == length &&
		    !memcmp(list, name, length))
			return true;
		if (!*end)
			return false;
		list = end + 1;
	}
}

/*
 * Is @symbol, from sprint_symbol(), the start of the function @name? Compilers
 * add suffixes; after an offset come the size and a module.
 */
static bool dio_is_symbol(const char *symbol, const char *name)
{
	size_t length = strlen(name);

	if (strncmp(symbol, name, length) ||
	    (symbol[length] != '+' && symbol[length] != '.'))
		return false;
	return !strncmp(strchrnul(symbol + length, '+'), "+0x0/", 5);
}

/**
 * dio_exporter_find - who exported a dma-buf
 * @dmabuf: the dma-buf
 *
 * Names of buffers are anybody's choice, and a heap of the same name may be
 * another driver's. So it is the function that counts. Where the kernel has no
 * symbols (CONFIG_KALLSYMS) nobody is known.
 *
 * Return: the exporter, or NULL if it is neither known nor named.
 */
const struct dio_exporter *dio_exporter_find(const struct dma_buf *dmabuf)
{
	char symbol[KSYM_SYMBOL_LEN];
	unsigned int i;

	if (dmabuf->ops->vmap) {
		sprint_symbol(symbol, (unsigned long)dmabuf->ops->vmap);
		for (i = 0; i < ARRAY_SIZE(dio_known); i++)
			if (dio_is_symbol(symbol, dio_known[i].vmap) &&
			    (!dio_known[i].name ||
			     !strcmp(dmabuf->exp_name, dio_known[i].name)))
				return &dio_known[i];
	}
	return dio_is_named(dmabuf->exp_name) ? &dio_named : NULL;
}
