// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources are kept on a tmpfs: every byte, once, whole or not at all.

mod common;
mod content;
mod links;
mod refused;
mod shared;
mod stored;
mod swapped;
