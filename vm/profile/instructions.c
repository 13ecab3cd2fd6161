// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A QEMU plugin that counts the instructions of each block of guest code, within
 * the windows that a program in the guest opens and closes.
 *
 * A window opens and closes with an instruction that does nothing: the eight-byte
 * no-op whose displacement is the text "DIO1" or "DIO0". The counts of all windows
 * so far are written whenever one closes, as lines of an address and a number; the
 * first line has the number of windows.
 *
 * QEMU 7.2 comes without the header of its plugin interface. What is declared here
 * is the part of version 1 that is used, see docs/devel/tcg-plugins.rst there.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef uint64_t qemu_plugin_id_t;

enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
	void (*translated)(qemu_plugin_id_t id, struct qemu_plugin_tb *tb));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb,
	enum qemu_plugin_op op, void *counter, uint64_t number);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
	void (*executed)(unsigned int cpu, void *data),
	enum qemu_plugin_cb_flags flags, void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb,
						 size_t index);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);

EXPORT int qemu_plugin_version = 1;

/* nopl "DIO?"(%rax,%rax,1) */
static const uint8_t marker[] = { 0x0f, 0x1f, 0x84, 0x00, 'D', 'I', 'O' };

/* A piece of guest code; the same address may hold several in turn. */
struct block {
	uint64_t address;
	uint64_t instructions;	/* executed since the guest started */
	uint64_t before;	/* of those, before the window opened */
	uint64_t counted;	/* within windows */
	struct block *next;
};

#define BUCKETS (1 << 16)

static struct block *blocks[BUCKETS];
static const char *output;
static uint64_t windows;
static bool open_now;

static struct block *block_at(uint64_t address)
{
	struct block **bucket = &blocks[(address * 0x9e3779b97f4a7c15) >> 48];
	struct block *block;

	for (block = *bucket; block; block = block->next)
		if (block->address == address)
			return block;

	block = calloc(1, sizeof(*block));
	if (!block)
		abort();
	block->address = address;
	block->next = *bucket;
	*bucket = block;
	return block;
}

static void write_counts(void)
{
	FILE *file = fopen(output, "w");
	struct block *block;
	int i;

	if (!file) {
		perror(output);
		return;
	}
	fprintf(file, "%llu\n", (unsigned long long)windows);
	for (i = 0; i < BUCKETS; i++)
		for (block = blocks[i]; block; block = block->next)
			if (block->counted)
				fprintf(file, "%llx %llu\n",
					(unsigned long long)block->address,
					(unsigned long long)block->counted);
	if (fclose(file))
		perror(output);
}

static void window_opens(unsigned int cpu, void *data)
{
	struct block *block;
	int i;

	(void)cpu;
	(void)data;
	for (i = 0; i < BUCKETS; i++)
		for (block = blocks[i]; block; block = block->next)
			block->before = block->instructions;
	open_now = true;
}

static void window_closes(unsigned int cpu, void *data)
{
	struct block *block;
	int i;

	(void)cpu;
	(void)data;
	if (!open_now)
		return;
	open_now = false;
	windows++;
	for (i = 0; i < BUCKETS; i++)
		for (block = blocks[i]; block; block = block->next)
			block->counted += block->instructions - block->before;
	write_counts();
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t i, nr = qemu_plugin_tb_n_insns(tb);
	struct qemu_plugin_insn *insn;
	const uint8_t *bytes;

	(void)id;
	for (i = 0; i < nr; i++) {
		insn = qemu_plugin_tb_get_insn(tb, i);
		bytes = qemu_plugin_insn_data(insn);
		if (qemu_plugin_insn_size(insn) != sizeof(marker) + 1 ||
		    memcmp(bytes, marker, sizeof(marker)))
			continue;
		qemu_plugin_register_vcpu_insn_exec_cb(insn,
			bytes[sizeof(marker)] == '1' ? window_opens : window_closes,
			QEMU_PLUGIN_CB_NO_REGS, NULL);
	}
	insn = qemu_plugin_tb_get_insn(tb, 0);
	qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64,
		&block_at(qemu_plugin_insn_vaddr(insn))->instructions, nr);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc,
			       char **argv)
{
	(void)info;
	if (argc != 1 || strncmp(argv[0], "output=", 7)) {
		fprintf(stderr, "instructions: give output=FILE\n");
		return 1;
	}
	output = strdup(argv[0] + 7);
	if (!output)
		return 1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
