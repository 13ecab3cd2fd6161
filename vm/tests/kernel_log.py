# SPDX-License-Identifier: MIT OR Apache-2.0
"""Which lines of a kernel log count as problems."""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.kernel_log import flags_are_impossible, is_problem, reports  # noqa: E402

PROBLEMS = """\
BUG: sleeping function called from invalid context at mm/slab.c:1
BUG: KASAN: slab-use-after-free in dio_release+0x12/0x40 [dmabuf_dio]
BUG: kernel NULL pointer dereference, address: 0000000000000008
SLUB: Unable to allocate memory on CPU 0 (of node 0) on node -1, gfp=0xcc0(GFP_KERNEL)
Oops: Oops: 0000 [#1] PREEMPT SMP
WARNING: CPU: 0 PID: 12 at fs/inode.c:1 iput+0x1/0x2
WARNING: possible circular locking dependency detected
WARNING: suspicious RCU usage
INFO: task sync:123 blocked for more than 120 seconds.
rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
rcu: INFO: rcu_sched self-detected stall on CPU
watchdog: BUG: soft lockup - CPU#1 stuck for 22s!
DMA-API: edu 0000:00:05.0: device driver frees DMA memory with wrong function
DMAR: [DMA Write NO_PASID] Request device [00:05.0] fault addr 0x1000 [fault reason 0x05]
kmemleak: unreferenced object 0xffff888003a0a000 (size 128):
Unable to handle kernel paging request at virtual address ffff0000c0000000
Internal error: synchronous external abort: 0000000096000410 [#1] SMP
SError Interrupt on CPU1, code 0x00000000be000411 -- SError
arm-smmu-v3 arm-smmu-v3.0.auto: event 0x10 received:
arm-smmu-v3 arm-smmu-v3.0.auto: event: F_TRANSLATION client: 0000:00:05.0 sid: 0x28 ssid: 0x0 iova: 0x1000 ipa: 0x0
arm-smmu 12c00000.iommu: Unhandled context fault: fsr=0x402, iova=0x1000
general protection fault, probably for non-canonical address
UBSAN: shift-out-of-bounds in lib/x.c:1
refcount_t: underflow; use-after-free.
list_add corruption. prev->next should be next
Kernel panic - not syncing: sysrq triggered crash
guest: BUG: module dmabuf_dio is still in use after the command
"""
HARMLESS = """\
DMA-API: preallocated 65536 debug entries
DMA-API: dma_debug_entry pool grown to 131072 (200%)
DMA-API: debugging enabled by kernel config
SLUB: Unable to allocate memory on CPU 0 (of node 0) on node -1, gfp=0x820(GFP_ATOMIC)
kasan: KernelAddressSanitizer initialized (generic)
kmemleak: Kernel memory leak detector initialized (mem pool available: 39000)
Spectre V2 : WARNING: Unprivileged eBPF is enabled
dmabuf_dio: loading out-of-tree module taints kernel.
rcu: RCU event tracing is enabled.
DMAR: Intel(R) Virtualization Technology for Directed I/O
arm-smmu-v3 arm-smmu-v3.0.auto: allocated 65536 entries for cmdq
arm-smmu-v3 arm-smmu-v3.0.auto: allocated 32768 entries for evtq
arm-smmu-v3 arm-smmu-v3.0.auto: msi_domain absent - falling back to wired irqs
SMCCC: SOC_ID: ARCH_SOC_ID not implemented, skipping ....
traps: copy-file-range[596] general protection fault ip:402d50 sp:7fff3dbbd028 error:802 in copy-file-range-large[2d50,401000+9c000]
Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar
"""

for line in PROBLEMS.splitlines():
    assert is_problem(f"[    1.234567] {line}"), line
for line in HARMLESS.splitlines():
    assert not is_problem(f"[    1.234567] {line}"), line

log = ["ok", "BUG: one", "  detail", "  more", "---[ end trace ]---", "ok", "WARNING: two"]
assert [report[0] for report in reports(log)] == ["BUG: one", "WARNING: two"], reports(log)

# Registers as QEMU 7.2 once left them, and as a processor leaves them. The registers of the program come second.
FROM_USER = "RSP: 002b:00007fff0c7867b0 EFLAGS: 00000246 ORIG_RAX: 0000000000000010"
for flags, impossible in (("7fdadf02", True), ("00010246", False), ("00250246", False)):
    registers = f"RSP: 0018:ffffc90000523840 EFLAGS: {flags}"
    assert flags_are_impossible(["Oops: double fault", registers, FROM_USER]) == impossible, flags
assert not flags_are_impossible(["Oops", FROM_USER, "RSP: 0018:0 EFLAGS: 7fdadf02"])
assert not flags_are_impossible(["WARNING: CPU: 0 PID: 12 at fs/inode.c:1"])
