// SPDX-License-Identifier: MIT OR Apache-2.0
//! `compare`: how fast every available method and program loads a file, relative to the disk's
//! maximum.

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
