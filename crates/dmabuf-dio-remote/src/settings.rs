// SPDX-License-Identifier: MIT OR Apache-2.0
//! How requests are made, and what is checked.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dmabuf_dio::CancelToken;

use crate::sums::Sums;

/// How requests are made, and what is checked. Credentials, endpoints and proxies are in the environment.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "to be written with ..Settings::default()")]
pub struct Settings {
    /// Ranges that are fetched at the same time at first; default 8. The number grows while that makes the whole
    /// faster, and is halved when the store says that it is too busy.
    pub ranges: u32,
    /// The most ranges at the same time; default 64.
    pub most_ranges: u32,
    /// Bytes of a range at first; default 8 MiB. Later ones are longer or shorter, by how long the first ones took.
    pub range_size: u64,
    /// How long a request may bring no byte before it is made again; default 30 s.
    pub stall: Duration,
    /// How long a range is tried without a byte of progress; default 2 min. `Retry-After` does not extend it.
    pub deadline: Duration,
    /// How often a range is tried without a byte of progress; default 10.
    pub tries: u32,
    /// A file with further CAs to trust, in PEM, beside those of the system.
    pub ca: Option<PathBuf>,
    /// The SHA-256 of the whole object. A load of a part of it is refused then.
    pub sha256: Option<[u8; 32]>,
    /// The sums of its chunks: each is checked as soon as it is complete, and fetched once more if it differs.
    pub sums: Option<Arc<Sums>>,
    /// Ends the opening and the listing of objects, also while they wait to be tried again. A load has a token of its
    /// own: [`Loader::cancel`](dmabuf_dio::Loader::cancel).
    pub cancel: CancelToken,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ranges: 8,
            most_ranges: 64,
            range_size: 8 << 20,
            stall: Duration::from_secs(30),
            deadline: Duration::from_secs(120),
            tries: 10,
            ca: None,
            sha256: None,
            sums: None,
            cancel: CancelToken::new(),
        }
    }
}
