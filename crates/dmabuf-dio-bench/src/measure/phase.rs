// SPDX-License-Identifier: MIT OR Apache-2.0
//! The phases of a transfer.
//!
//! Tells the profiler of `vm/run --profile` what to count, by instructions that do nothing: the
//! eight-byte no-op with a text as its displacement (vm/profile/instructions.c).

#[cfg(target_arch = "x86_64")]
use std::arch::asm;

/// A part of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Whatever is needed before the first byte can be moved.
    Allocation,
    Io,
    /// Allocation and I/O in one call.
    Load,
    /// Until all is free again.
    Close,
}

#[cfg(target_arch = "x86_64")]
macro_rules! marker {
    ($letter:literal) => {
        // SAFETY: the instruction does nothing: nopl "DIO."(%rax,%rax,1).
        unsafe { asm!(".byte 0x0f, 0x1f, 0x84, 0x00, 0x44, 0x49, 0x4f, {}", const $letter) }
    };
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! marker {
    ($letter:literal) => {};
}

/// A phase begins.
pub(crate) fn open(phase: Phase) {
    match phase {
        Phase::Allocation => marker!(b'a'),
        Phase::Io => marker!(b'i'),
        Phase::Load => marker!(b'l'),
        Phase::Close => marker!(b'c'),
    }
}

/// It ends.
pub(crate) fn close() {
    marker!(b'0');
}
