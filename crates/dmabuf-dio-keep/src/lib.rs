// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that are kept in memory once per machine, for all programs on it.
//!
//! [`Store::keep`] loads a file or a folder by direct I/O into a tmpfs, in huge pages, once however many
//! ask for it. Whatever takes a path takes `keep:NAME`, which [`resolve`] turns into the path of the kept file.
//! There is no daemon: names, permissions and limits are the file system's.
//!
//! ```no_run
//! # fn main() -> Result<(), dmabuf_dio_keep::Error> {
//! use dmabuf_dio_keep::{Loading, Name, OnDisk, Store};
//!
//! let store = Store::create(&dmabuf_dio_keep::folders()[0])?;
//! let source = OnDisk::new("/data/model.safetensors");
//! let kept = store.keep(&Name::new("llama")?, &source, &Loading::default())?;
//! println!("{}: {} bytes", kept.path.display(), kept.length);
//!
//! // In any other process: the same memory, read-only.
//! let buffer = dmabuf_dio_keep::open("keep:llama".as_ref())?;
//! # let _ = buffer;
//! # Ok(())
//! # }
//! ```

#![cfg(target_os = "linux")]

#[cfg(any(test, fuzzed))]
#[path = "../../../tests/drawn.rs"]
mod drawn;
mod error;
mod fill;
mod find;
mod folder;
mod follow;
#[cfg(any(test, fuzzed))]
#[doc(hidden)]
pub mod fuzzing;
mod hold;
mod holder;
mod identity;
#[cfg(test)]
#[path = "../../../tests/fuzz/library/kept.rs"]
mod kept_inputs;
mod lock;
mod name;
mod opened;
mod packet;
#[cfg(any(test, fuzzed))]
mod properties;
mod readers;
mod record;
mod room;
mod source;
mod store;
mod stored;
mod systemd;

pub use error::{Error, Result};
pub use fill::{Loading, OnProgress};
pub use find::{Found, find, open, open_for, resolve};
pub use folder::{SYSTEM, VARIABLE, folders};
pub use hold::{DMA_BUF, hold};
pub use holder::{CONNECTIONS, Holder, Listener};
pub use identity::Identity;
pub use name::{Name, is_kept};
pub use packet::{Header, Held, Received, receive};
pub use source::{File, Files, OnDisk, Source};
pub use store::{Kept, Store};
pub use stored::{Opened, Stored};
