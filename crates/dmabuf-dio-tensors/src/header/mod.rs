// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parsers of headers alone, for headers that come from elsewhere than a local file.
//!
//! They read the header and nothing after it, and trust nothing in it. Time is proportional to the
//! bytes of the header. Memory is too: at most about 8 bytes for each byte of it.
//!
//! | limit | |
//! |---|---|
//! | header of safetensors | 100,000,000 bytes, as in the `safetensors` crate |
//! | header of GGUF | 128 MiB |
//! | tensors, in a file and in a model | 1,048,576 |
//! | keys of metadata | 65,536 |
//! | dimensions | 64 in safetensors, 4 in GGUF (as in GGML) |
//! | names of tensors and keys in GGUF | 65,535 bytes |
//! | files of a model | 4096 |
//! | index of a model | 100,000,000 bytes |

mod any;
mod cursor;
mod gguf;
mod gguf_value;
mod parsed;
mod safetensors;

pub use any::parse;
pub use gguf::parse as parse_gguf;
pub use parsed::{Header, HeaderError};
pub(crate) use parsed::{MAX_KEYS, MAX_TENSORS, check_names, check_unique};
pub use safetensors::parse as parse_safetensors;
pub(crate) use safetensors::{MAX_DIMENSIONS, MAX_HEADER, METADATA};
