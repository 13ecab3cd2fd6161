// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A QEMU plugin that counts the instructions of each block of guest code, within
 * windows that a program in the guest opens and closes.
 *
 * The program opens and closes a window with an instruction without effect, which
 * contains a letter for the kind of window, or 0 to close it: on x86-64 an eight-byte
 * no-op whose displacement is the text "DIO" and the letter, on arm64 a move of "D"
 * and the letter to the zero register, which no compiler makes. Whenever
 * a window closes, the counts of all windows so far are written: lines of a kind, an
 * address and a number. The number for address 0 is the number of windows of that
 * kind.
 *
 * QEMU 7.2 does not ship the header of its plugin interface. The declarations below
 * are the part of version 1 that is used, see QEMU's docs/devel/tcg-plugins.rst.
 */
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

/* The letter of a marker, or -1 */
static int letter(const uint8_t *bytes, size_t size)
{
	uint32_t word;

	if (size == sizeof(marker) + 1 && !memcmp(bytes, marker, sizeof(marker)))
		return bytes[sizeof(marker)];
	if (size != sizeof(word))
		return -1;
	/* movz xzr, #"D?": 11010010100, 16 bits, 11111 */
	word = bytes[0] | bytes[1] << 8 | bytes[2] << 16 | (uint32_t)bytes[3] << 24;
	if ((word & 0xffe0001f) != 0xd280001f || (word >> 13 & 0xff) != 'D')
		return -1;
	return word >> 5 & 0xff;
}

/* A piece of guest code; the same address may hold several in turn. */
struct block {
	uint64_t address;
	uint64_t instructions;	/* executed since the guest started */
	uint64_t before;	/* of those, before the window opened */
	uint64_t counted[26];	/* within windows, by kind */
	struct block *next;
};

#define BUCKETS (1 << 16)

static struct block *blocks[BUCKETS];
static const char *output;
static uint64_t windows[26];
static int open_now = -1;	/* kind of the open window */

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
	int i, kind;

	if (!file) {
		perror(output);
		return;
	}
	for (kind = 0; kind < 26; kind++) {
		if (!windows[kind])
			continue;
		fprintf(file, "%c 0 %llu\n", 'a' + kind,
			(unsigned long long)windows[kind]);
		for (i = 0; i < BUCKETS; i++)
			for (block = blocks[i]; block; block = block->next)
				if (block->counted[kind])
					fprintf(file, "%c %llx %llu\n", 'a' + kind,
						(unsigned long long)block->address,
						(unsigned long long)block->counted[kind]);
	}
	if (fclose(file))
		perror(output);
}

static void window_opens(unsigned int cpu, void *data)
{
	struct block *block;
	int i;

	(void)cpu;
	for (i = 0; i < BUCKETS; i++)
		for (block = blocks[i]; block; block = block->next)
			block->before = block->instructions;
	open_now = (int)(intptr_t)data;
}

static void window_closes(unsigned int cpu, void *data)
{
	struct block *block;
	int i;

	(void)cpu;
	(void)data;
	if (open_now < 0)
		return;
	windows[open_now]++;
	for (i = 0; i < BUCKETS; i++)
		for (block = blocks[i]; block; block = block->next)
			block->counted[open_now] += block->instructions - block->before;
	open_now = -1;
	write_counts();
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t i, nr = qemu_plugin_tb_n_insns(tb);
	struct qemu_plugin_insn *insn;
	int kind;

	(void)id;
	for (i = 0; i < nr; i++) {
		insn = qemu_plugin_tb_get_insn(tb, i);
		kind = letter(qemu_plugin_insn_data(insn), qemu_plugin_insn_size(insn));
		if (kind < 0)
			continue;
		kind -= 'a';
		qemu_plugin_register_vcpu_insn_exec_cb(insn,
			kind >= 0 && kind < 26 ? window_opens : window_closes,
			QEMU_PLUGIN_CB_NO_REGS, (void *)(intptr_t)kind);
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
