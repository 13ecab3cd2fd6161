// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C interface of dmabuf-dio.
//!
//! The documented items here are the source of `include/dmabuf_dio.h`, which a test compares with what
//! cbindgen generates from them, and of the manual pages. `Makefile` builds `libdmabuf_dio.so`, the
//! static library, `dmabuf-dio.pc` and the pages. Programs in Rust use the crate `dmabuf-dio`.
//!
//! The rules for all functions are in the first comment of the header (`cbindgen.toml`): which pointers
//! may be null, which threads may call, and who owns what.

#![cfg(target_os = "linux")]
// The header says once for all functions what a caller has to guarantee; its comments are not Markdown.
#![allow(clippy::missing_safety_doc, clippy::doc_markdown)]

#[cfg(panic = "abort")]
compile_error!("a panic has to become -ENOTRECOVERABLE: build with panic = \"unwind\"");

pub mod buffer;
pub mod capture;
pub mod convert;
pub mod device;
pub mod doctor;
pub mod error;
pub mod faces;
pub mod gather;
pub mod lend;
pub mod load;
pub mod map;
pub mod names;
pub mod options;
pub mod report;
pub mod save;
pub mod sink;
pub mod tensors;

mod failure;
mod pointers;
mod sized;
