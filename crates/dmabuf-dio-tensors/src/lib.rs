// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads the tensors of AI models into dma-bufs, without CPU copies, and saves tensors.
//!
//! [`Model::open`] reads the headers of a model: a safetensors or GGUF file, a model in several
//! files, or a folder with one of them. [`Model::loader`] loads all of its tensors, or some. Each
//! tensor is then a range of a buffer ([`View`]): the bytes are where the storage device put them.
//!
//! ```no_run
//! # fn main() -> Result<(), dmabuf_dio_tensors::Error> {
//! use dmabuf_dio_tensors::Model;
//!
//! let model = Model::open("Qwen3-0.6B")?;
//! for tensor in model.tensors() {
//!     println!("{}: {} {:?}, {} bytes", tensor.name, tensor.dtype, tensor.shape, tensor.len());
//! }
//!
//! let loaded = model.loader().only(["model.norm.weight"]).load()?;
//! for view in &loaded.views {
//!     println!("{}: {} bytes at {} of {:?}", view.name, view.len, view.offset, view.buffer);
//! }
//! let weight: Vec<u8> = loaded.to_vec("model.norm.weight")?;
//! # let _ = weight;
//! # Ok(())
//! # }
//! ```
//!
//! | | |
//! |---|---|
//! | [`Model`], [`ModelFile`] | an opened model, and the files it consists of |
//! | [`Tensor`], [`Dtype`], [`GgmlType`] | name, type, shape, and range in the file |
//! | [`Metadata`], [`Value`] | what else the headers say, typed |
//! | [`TensorLoader`], [`Loaded`], [`View`] | a load, and what it gives |
//! | [`Reader`] | tensors one by one within a bound of memory, each in memory of its own |
//! | [`Part`], [`Shard`], [`Split`] | parts of tensors, such as those of one rank |
//! | [`TensorSaver`], [`Outline`] | a save to a safetensors file |
//! | [`header`] | the parsers alone, for headers that come from elsewhere |
//!
//! # Untrusted files
//!
//! Headers are checked before anything is loaded, in bounded time and memory: [`header`] has the
//! limits. A tensor lies within its file, no two tensors share a byte, and the length matches the
//! type and the shape. An index names files in its own folder or below only: no absolute path and no
//! `..`. Symbolic links are followed, because the cache of Hugging Face consists of them: anyone who
//! can create links in the folder must be trusted.
//!
//! All lengths and offsets are in bytes.

#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

pub mod header;

mod block;
mod byte_order;
#[cfg(any(test, fuzzed))]
#[path = "../../../tests/drawn.rs"]
mod drawn;
mod dtype;
mod error;
mod fetch;
mod file;
mod find;
mod format;
#[cfg(any(test, fuzzed))]
#[doc(hidden)]
pub mod fuzzing;
mod gather;
mod ggml;
mod index;
#[cfg(test)]
#[path = "../../../tests/fuzz/library/kept.rs"]
mod kept_inputs;
mod load;
mod loaded;
mod malformed;
mod metadata;
mod meter;
mod mistaken;
mod model;
mod no_part;
mod open;
mod open_model;
mod outline;
mod part;
mod plan;
#[cfg(any(test, fuzzed))]
mod properties;
mod reader;
mod save;
mod save_header;
mod save_parts;
mod settings;
mod shard;
mod shared;
mod split_name;
mod store;
mod strips;
mod tensor;
mod workers;

pub use block::Block;
pub use byte_order::ByteOrder;
pub use dtype::Dtype;
pub use error::{Error, Result};
pub use file::ModelFile;
pub use format::Format;
pub use ggml::GgmlType;
pub use load::TensorLoader;
pub use loaded::{Loaded, View};
pub use malformed::Malformed;
pub use metadata::{Array, Metadata, Strings, Value};
pub use meter::Progress;
pub use mistaken::Mistaken;
pub use model::Model;
pub use no_part::NoPart;
pub use outline::Outline;
pub use part::Part;
pub use reader::{Iter, Reader, ReaderReport};
pub use save::TensorSaver;
pub use shard::{Shard, Split};
pub use tensor::Tensor;

// The code in the document is compiled like that of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tensors.md")]
struct Document;
