// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lends memory to the kernel: the pages of a dma-buf, which the kernel module borrows, and memory
//! of this process.
//!
//! [`Attached`] is a dma-buf that the module has attached: its ioctls read a file into it and write
//! it to a file. [`Ring`] is an `io_uring` with the memory of its requests. Everything built on top
//! (loads, saves, gathers, streams) only schedules requests.
//!
//! # Why memory in flight is safe
//!
//! The kernel owns the memory of a request in flight: it may write it at any time until the
//! completion has been taken. All requests that read or write memory go through [`Ring::push`], so
//! this is the only place that must get it right. (The commands that register a dma-buf's pages
//! only read a structure of ours, and are waited for.)
//!
//! - *Which memory.* A request names one of the ring's buffers and a range in it, never an address,
//!   and [`Ring::push`] refuses a range that is neither in that buffer, nor in it and the buffers
//!   that follow it in the same slot ([`Ring::goes_on`]). Requests name files by their index in the
//!   ring, which holds a reference to each.
//! - *How long.* The module holds the pages of a dma-buf as long as the ring has them registered (a
//!   slot of several buffers holds all of them), and the kernel holds the ring as long as requests
//!   are in flight, so nothing has to wait. Memory of this process is shared with the ring
//!   ([`Arc`]), and the ring keeps its share until nothing is in flight: [`Ring`] waits for that on
//!   drop. If the kernel repeatedly refuses to wait, the end of the requests is unknown: the memory
//!   is then never unmapped (`Ring::stuck`).
//! - *Other users.* Memory that others may write concurrently is never behind a Rust reference: it
//!   is copied as in `memory/shared.rs`.
//!
//! The state after a transfer is another matter. Loads, saves and gathers take every completion
//! before they return (`Flight`), however they end, unless the ring is stuck. The content of a
//! buffer therefore no longer changes afterwards. They also begin and end CPU access around their
//! requests: to a device, a disk that writes borrowed pages is like the CPU, and the exporter has
//! to synchronise the two.
//!
//! [`Arc`]: std::sync::Arc

pub(crate) mod error;
mod memory;
mod module;
mod resume;
mod ring;
mod schedule;
mod slots;
mod uring;

pub use crate::file::{Alignment, File};
pub use crate::memory::Mapping;
pub use dmabuf_dio_sys::dmabuf::Access;
pub use error::{LendError, NotLent};
pub(crate) use memory::{Cut, Memory};
pub(crate) use module::Context;
pub use module::{Attached, MoveError, Moved};
pub use ring::{BUFFERED, Completion, OPENED, Operation, Request, Ring, Span};
pub(crate) use schedule::{Halt, Planner, run};
pub use schedule::{InFlight, Verdict};
pub(crate) use uring::create;
