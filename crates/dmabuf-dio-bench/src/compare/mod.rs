// SPDX-License-Identifier: MIT OR Apache-2.0
//! `compare`: how fast a file gets into memory, by every method and program there is, and what
//! the disk could do.

pub(crate) mod args;
mod bench;
pub(crate) mod child;
mod contender;
mod contract;
pub(crate) mod fio;
mod held;
mod load;
mod methods;
mod page;
mod pages;
mod process;
mod results;
mod ring;
mod safetensors;
mod settings;

pub(crate) use bench::Compare;
pub(crate) use page::page;
