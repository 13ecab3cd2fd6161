// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads objects of stores into the buffers of `dmabuf-dio`: `s3://`, `gs://`, `az://`, `https://` and `http://`.
//!
//! ```no_run
//! # fn main() -> Result<(), dmabuf_dio::Error> {
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use dmabuf_dio::Loader;
//! use dmabuf_dio_remote::{Object, Settings, Sums, Upload};
//!
//! // Written by `dmabuf-dio sum`.
//! let sums = Sums::read(Path::new("llama.gguf.sums"))?;
//! let settings = Settings { sums: Some(Arc::new(sums)), ..Settings::default() };
//! let object = Object::open("s3://models/llama.gguf", &settings)?;
//! let buffer = Loader::from_content(object).load()?;
//! let report = Upload::new("s3://models/copy.gguf", &settings)?.save(&buffer, buffer.range())?;
//! println!("{report}");
//! # Ok(())
//! # }
//! ```
//!
//! | | |
//! |---|---|
//! | [`Object`] | an object, as a [`Content`](dmabuf_dio::content::Content) |
//! | [`Prefix`] | all objects whose names begin alike, as a [`Folder`](dmabuf_dio::content::Folder) |
//! | [`Upload`] | a new object, of which nothing is visible until it is complete |
//! | [`Settings`] | how requests are made, and what is checked |
//! | [`Sums`] | the sums of the chunks of a file, to check an object with |
//!
//! The object's version is pinned when it is opened: its `ETag`, and the generation where there is one. Each range is
//! asked for with it. A range that fails is tried again by itself, from the byte on that it got to. Nothing is handed
//! out that was not checked as asked. docs/remote.md of the source tree has the credentials and the limits.
//!
//! An open object has threads: a child of `fork(2)` opens its own.
//!
//! Internally, `object.rs` opens, `read.rs` runs the threads of a read, which `job.rs` has the state of, `range.rs` fetches one
//! range, and `origin/` makes requests: `web.rs` plain ones, `store.rs` signed ones.

#![cfg(target_os = "linux")]

mod address;
mod client;
#[cfg(any(test, fuzzed))]
#[path = "../../../tests/drawn.rs"]
mod drawn;
#[cfg(any(test, fuzzed))]
#[doc(hidden)]
pub mod fuzzing;
mod job;
#[cfg(test)]
#[path = "../../../tests/fuzz/library/kept.rs"]
mod kept_inputs;
mod net;
mod object;
mod origin;
mod pace;
mod prefix;
mod profile;
#[cfg(any(test, fuzzed))]
mod properties;
mod range;
mod read;
mod settings;
mod source;
mod sums;
mod trouble;
mod upload;
mod whole;

pub use address::{escaped, is_nearly_url, is_url, shown};
pub use object::Object;
pub use prefix::Prefix;
pub use settings::Settings;
pub use sums::{Sums, SumsError};
pub use upload::Upload;
