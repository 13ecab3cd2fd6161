// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers that the kernel tells in text.

/// The first number of a line that begins with `name`.
pub(crate) fn number(path: &str, name: &str) -> i64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    let digits = line[name.len().min(line.len())..].split_whitespace().next();
    digits.and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// How many dma-bufs there are in the system: the last line, as each dma-buf has a "Total" of its
/// devices. 0 without debugfs.
pub(crate) fn dma_bufs() -> i64 {
    let text = std::fs::read_to_string("/sys/kernel/debug/dma_buf/bufinfo").unwrap_or_default();
    let line = text.lines().rev().find_map(|line| line.strip_prefix("Total "));
    line.and_then(|rest| rest.split_once(' ')?.0.parse().ok()).unwrap_or(0)
}
