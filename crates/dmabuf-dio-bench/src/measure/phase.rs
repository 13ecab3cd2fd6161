// SPDX-License-Identifier: MIT OR Apache-2.0
//! The phases of a transfer.
//!
//! Marks the phases for the profiler of `vm/run --profile` by instructions without effect: on x86-64
//! eight-byte no-ops with a text as displacement, on arm64 moves of a text to the zero register
//! (vm/profile/instructions.c).

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use std::arch::asm;

/// A part of a transfer, with the letter of its marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Everything before the first byte can be transferred.
    Allocation,
    Io,
    /// Allocation and I/O in one call.
    Load,
    /// Until everything is freed.
    Close,
}

/// In results.
pub(crate) const PHASES: [&str; 4] = ["allocation", "io", "load", "close"];

#[cfg(target_arch = "x86_64")]
macro_rules! marker {
    ($letter:literal) => {
        // SAFETY: the instruction does nothing: nopl "DIO."(%rax,%rax,1).
        unsafe { asm!(".byte 0x0f, 0x1f, 0x84, 0x00, 0x44, 0x49, 0x4f, {}", const $letter) }
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! marker {
    ($letter:literal) => {
        // SAFETY: the instruction does nothing: the zero register stays zero.
        unsafe { asm!("movz xzr, {}", const (b'D' as u16) << 8 | $letter as u16) }
    };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
macro_rules! marker {
    ($letter:literal) => {};
}

/// Begins a phase.
pub(crate) fn open(phase: Phase) {
    match phase {
        Phase::Allocation => marker!(b'a'),
        Phase::Io => marker!(b'i'),
        Phase::Load => marker!(b'l'),
        Phase::Close => marker!(b'c'),
    }
}

/// Ends a phase.
pub(crate) fn close() {
    marker!(b'0');
}
