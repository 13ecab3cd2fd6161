# SPDX-License-Identifier: GPL-2.0-only
# Features of the kernel are found by test compilation, not by version number.
# dbx-module: the folder of conftest.sh
dbx-have = $(if $(shell $(CONFIG_SHELL) $(dbx-module)/conftest.sh $(1) $(CC) \
		$(NOSTDINC_FLAGS) $(LINUXINCLUDE) $(KBUILD_CPPFLAGS) \
		$(KBUILD_CFLAGS) $(KBUILD_CFLAGS_MODULE)),-DHAVE_$(1))

# For compat.h
ccflags-y += $(call dbx-have,DMA_BUF_VMAP_UNLOCKED)
ccflags-y += $(call dbx-have,DMA_DEV_NEED_SYNC)
ccflags-y += $(call dbx-have,FOLIO_CONTAIN_HWPOISONED_PAGE)
