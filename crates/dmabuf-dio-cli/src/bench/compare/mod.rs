// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio bench compare`: how fast a file gets into memory, by every way there is, and what
//! the disk could do.

mod bench;
pub(crate) mod child;
mod contract;
pub(crate) mod fio;
mod held;
mod load;
mod own;
pub(crate) mod page;
mod pages;
mod process;
mod results;
mod ring;
mod safetensors;
mod settings;
mod way;

pub(crate) use bench::Compare;
pub(crate) use own::Own;
pub(crate) use safetensors::Tensors;
