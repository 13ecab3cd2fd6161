// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exporters whose buffers may be borrowed through their kernel mapping
 *
 * A mapping (vmap) does not guarantee that pages stay in place: TTM, for
 * example, moves and swaps out mapped buffers. The exporter therefore has to be
 * known not to do so, from its source or from the administrator. In addition,
 * each page must be one to which file systems may take references, as 9p, NFS
 * and Ceph do.
 */
#include <linux/kallsyms.h>
#include <linux/module.h>
#include <linux/string.h>

#include "exporter.h"

static char *dbx_exporters[16];
static unsigned int dbx_exporters_nr;
module_param_array_named(exporters, dbx_exporters, charp, &dbx_exporters_nr, 0444);
MODULE_PARM_DESC(exporters,
		 "Up to 16 further exporters to borrow from, separated by commas. At your own risk: they must not move or free exported pages, nor map them uncached, and must synchronise attached devices on CPU access");

static const struct dbx_exporter dbx_known[] = {
	/* A buffer's memory is allocated and freed together with it. */
	{ .vmap = "system_heap_vmap", .name = "system", .stays = true },
	{ .vmap = "cma_heap_vmap", .stays = true, .frees = true },
	/*
	 * Folios of a memfd, pinned for the life of the dma-buf. Linux 7.3's takes
	 * no lock; one that reaches attached devices has to, and looks the same.
	 */
	{ .vmap = "vmap_udmabuf", .name = "udmabuf", .stays = true,
	  .unsynced = true, .locks = true },
};

static const struct dbx_exporter dbx_named = { .locks = true };

/**
 * dbx_is_symbol - is this the start of a function?
 * @symbol: from sprint_symbol(): the offset is followed by size and module
 * @name: the function's name, to which compilers may add a suffix
 */
bool dbx_is_symbol(const char *symbol, const char *name)
{
	size_t length = strlen(name);

	if (strncmp(symbol, name, length) ||
	    (symbol[length] != '+' && symbol[length] != '.'))
		return false;
	return !strncmp(strchrnul(symbol + length, '+'), "+0x0/", 5);
}

/**
 * dbx_exporter_find - find the exporter of a dma-buf
 * @dmabuf: the dma-buf
 * @refusal: DMABUF_DIO_REFUSED_* if there is none, else undefined
 *
 * Any driver can choose the name of a buffer, so exporters are identified by
 * their vmap function. In kernels without CONFIG_KALLSYMS none is known.
 *
 * Return: the exporter, or NULL if it is neither known nor named.
 */
const struct dbx_exporter *dbx_exporter_find(const struct dma_buf *dmabuf,
					     u32 *refusal)
{
	char symbol[KSYM_SYMBOL_LEN] = "";
	unsigned int i;

	if (dmabuf->ops->vmap)
		sprint_symbol(symbol, (unsigned long)dmabuf->ops->vmap);
	for (i = 0; i < ARRAY_SIZE(dbx_known); i++)
		if (dbx_is_symbol(symbol, dbx_known[i].vmap) &&
		    (!dbx_known[i].name ||
		     !strcmp(dmabuf->exp_name, dbx_known[i].name)))
			return &dbx_known[i];
#ifdef HAVE_DRM_GEM_SHMEM
	/* Many drivers share a name, with others whose buffers move. */
	if (dbx_is_symbol(symbol, "drm_gem_dmabuf_vmap"))
		return dbx_gem_find(dmabuf, refusal);
#endif
	for (i = 0; i < dbx_exporters_nr; i++)
		if (!strcmp(dmabuf->exp_name, dbx_exporters[i]))
			return &dbx_named;
	*refusal = DMABUF_DIO_REFUSED_EXPORTER;
	return NULL;
}
