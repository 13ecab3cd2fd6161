// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells the profiler of `vm/run --profile` where to count, by no-ops that it knows.

/// Begins a window.
pub(crate) fn open() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction does nothing: nopl "DIO1"(%rax,%rax,1).
    unsafe {
        std::arch::asm!(".byte 0x0f, 0x1f, 0x84, 0x00, 0x44, 0x49, 0x4f, 0x31");
    }
}

/// Ends it.
pub(crate) fn close() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction does nothing: nopl "DIO0"(%rax,%rax,1).
    unsafe {
        std::arch::asm!(".byte 0x0f, 0x1f, 0x84, 0x00, 0x44, 0x49, 0x4f, 0x30");
    }
}
