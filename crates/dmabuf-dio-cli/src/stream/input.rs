// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples that come from another program: standard input, FIFOs and sockets.

use std::path::Path;

use dmabuf_dio::CancelToken;
use dmabuf_dio_stream::FdSource;
use dmabuf_dio_terminal::exit::{Failure, USAGE};

use super::address::{Address, Use};
use super::capture::nobody;

/// The address that `FROM` names; `None` if it is a file.
pub(crate) fn address(from: &Path) -> Result<Option<Address>, Failure> {
    let Some(text) = from.to_str() else { return Ok(None) };
    Address::parse(text, Use::Read).map_err(|hint| {
        let what = format!("samples cannot come from {text:?}");
        Failure::new(USAGE, what, hint)
    })
}

/// Waits for the sender of raw samples in frames of `frame` bytes.
pub(crate) fn raw(from: &Address, frame: u64, cancel: &CancelToken) -> Result<FdSource, Failure> {
    let (fd, name) = from.open(Use::Read, cancel)?.ok_or_else(nobody)?;
    Ok(FdSource::new(fd, name, frame)?)
}
