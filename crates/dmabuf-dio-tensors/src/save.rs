// SPDX-License-Identifier: MIT OR Apache-2.0
//! Saves tensors.

use std::fmt;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmabuf_dio::{CancelToken, Options, Report, Saver};

use crate::error::{Error, Result};
use crate::malformed::{Malformed, short};
use crate::meter::{Callback, Progress};
use crate::outline::Outline;
use crate::save_header::{self, Keys};
use crate::save_parts::Parts;

/// Saves tensors to a safetensors file, by direct I/O: the bytes that safetensors 0.8 writes, with the
/// keys of the metadata sorted.
///
/// A new file is written next to the path, made durable, and then renamed to it, as by
/// [`dmabuf_dio::Saver`]. Until then an old file of that name stays as it is, and a failed save leaves
/// nothing behind.
///
/// ```no_run
/// # fn main() -> Result<(), dmabuf_dio_tensors::Error> {
/// use dmabuf_dio_tensors::{Dtype, Outline, TensorSaver};
///
/// let (weight, bias) = (vec![0; 4096 * 4096 * 2], vec![0; 4096 * 2]);
/// let report = TensorSaver::new("model.safetensors").metadata([("format", "pt")]).save([
///     (Outline::new("weight", Dtype::Bf16, [4096, 4096]), &weight[..]),
///     (Outline::new("bias", Dtype::Bf16, [4096]), &bias[..]),
/// ])?;
/// println!("{report}"); // 33562808 bytes direct: 0.013 s, 2.58 GB/s
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TensorSaver {
    path: PathBuf,
    metadata: Option<Vec<(String, String)>>,
    options: Options,
    progress: Option<Callback>,
    cancel: CancelToken,
}

impl fmt::Debug for TensorSaver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorSaver").field("path", &self.path).finish_non_exhaustive()
    }
}

impl TensorSaver {
    /// Saves to a new file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            metadata: None,
            options: Options::default(),
            progress: None,
            cancel: CancelToken::new(),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The metadata of the header. Default: none, which is not the same as empty metadata.
    #[must_use]
    pub fn metadata<K: Into<String>, V: Into<String>>(
        mut self,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (key.into(), value.into()));
        self.metadata = Some(entries.collect());
        self
    }

    /// The settings of the transfer. A backend cannot be selected, because the bytes are in no buffer:
    /// [`Saver::save_from`].
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Reports progress in bytes of the file: once at the start, then at least every 100 ms while data
    /// moves. Calls may come from another thread, but never concurrently; the count never decreases.
    #[must_use]
    pub fn progress(mut self, callback: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(callback));
        self
    }

    /// The token that cancels the save. It then fails with [`Error::Save`] of
    /// [`dmabuf_dio::Error::Cancelled`].
    #[must_use]
    pub fn cancel(mut self, token: CancelToken) -> Self {
        self.cancel = token;
        self
    }

    /// Saves tensors whose bytes are in memory, little-endian, in C order. Blocks until the file is
    /// durable.
    ///
    /// The bytes are copied once, through a window of at most 64 MiB ([`Saver::save_from`]), and need not
    /// be aligned.
    ///
    /// # Errors
    ///
    /// [`Error::NotSaved`] if a name or key occurs twice, or is `__metadata__`, if a type is none of
    /// safetensors, if bytes do not match type and shape, or beyond the limits of
    /// [`header`](crate::header): nothing was written. [`Error::Save`] as for [`Saver::save_from`],
    /// with the path, and what the kernel says.
    pub fn save<'b>(
        &self,
        tensors: impl IntoIterator<Item = (Outline, &'b [u8])>,
    ) -> Result<Report> {
        let (outlines, bytes): (Vec<_>, Vec<_>) = tensors.into_iter().unzip();
        for (Outline { name, dtype, shape }, bytes) in outlines.iter().zip(&bytes) {
            let found = bytes.len() as u64;
            if save_header::byte_len(*dtype, shape).is_some_and(|len| len != found) {
                return Err(self.not_saved(Malformed::Length { name: short(name), found }));
            }
        }
        self.save_with(&outlines, |index| Ok(bytes[index]))
    }

    /// Saves tensors whose bytes are read when it is their turn. Blocks until the file is durable.
    ///
    /// `open` gets the index of a tensor in `tensors`, in the order of the file, and returns what its
    /// bytes are read from. The reader before is dropped by then, so that no more than one exists. Tensors
    /// without bytes are not opened, and what a reader has beyond a tensor's length is not read.
    ///
    /// # Errors
    ///
    /// As for [`save`](Self::save). [`Error::Save`] of [`dmabuf_dio::Error::Source`] if `open` or a
    /// reader fails, or a reader ends early.
    pub fn save_with<R: BufRead>(
        &self,
        tensors: &[Outline],
        open: impl FnMut(usize) -> io::Result<R>,
    ) -> Result<Report> {
        let keys = self.keys().map_err(|reason| self.not_saved(reason))?;
        let header = save_header::write(tensors, keys.as_ref());
        let header = header.map_err(|reason| self.not_saved(reason))?;
        let saver =
            Saver::new(&self.path).options(self.options.clone()).cancel(self.cancel.clone());
        let saver = match self.progress.clone() {
            Some(callback) => saver.progress(move |progress| {
                callback(Progress { done: progress.done, total: progress.total });
            }),
            None => saver,
        };
        let parts = Parts::new(&header.bytes, &header.parts, open);
        saver.save_from(parts, header.len).map_err(Error::Save)
    }

    fn keys(&self) -> Result<Option<Keys>, Malformed> {
        let Some(entries) = &self.metadata else { return Ok(None) };
        let mut keys = Keys::new();
        for (key, value) in entries {
            if keys.insert(key.clone(), value.clone()).is_some() {
                return Err(Malformed::Duplicate { what: "key", name: short(key) });
            }
        }
        Ok(Some(keys))
    }

    fn not_saved(&self, reason: Malformed) -> Error {
        Error::NotSaved { path: self.path.clone(), reason }
    }
}
