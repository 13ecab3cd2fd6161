// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers that the library has loaded.

use dmabuf_dio::Buffer;

use crate::pages::difference;

/// A buffer that the library has loaded, and what each of its bytes is.
pub(crate) struct Held {
    pub(crate) buffer: Buffer,
    pub(crate) bytes: Vec<u8>,
}

impl Held {
    pub(crate) fn seen(&self) -> Result<Vec<u8>, String> {
        let failed = |error| format!("a view: {error}");
        let view = self.buffer.map().map_err(failed)?;
        let seen = view.to_vec().map_err(failed)?;
        view.finish().map_err(failed)?;
        Ok(seen)
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        difference("the loaded buffer", &self.seen()?, &self.bytes)
    }
}
