// SPDX-License-Identifier: MIT OR Apache-2.0
//! Saves to objects: in parts, of which the store shows nothing until all are there.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dmabuf_dio::{Buffer, CancelToken, Direction, Error, Options, Report, Result};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use object_store::{MultipartUpload, ObjectStore, PutOptions, PutPayload};

use crate::address::Address;
use crate::net::{Net, Seen};
use crate::origin::store::{connect, of_store, with};
use crate::settings::Settings;
use crate::trouble::{Trouble, failed, told};

/// Bytes of a part, unless there would be too many: S3 allows 10,000.
const PART: u64 = 8 << 20;
const MOST_PARTS: u64 = 9_000;

/// Parts that are sent at the same time. Each is in memory once more.
const AT_A_TIME: usize = 8;

/// How often `object_store` makes a request of an upload again.
const RETRIES: usize = 8;

/// The deadlines that may pass until a part is there, and until all are one object: also where the network is slow.
const SLOWEST: u32 = 5;

/// How often a wait looks at whether it was cancelled.
const TICK: Duration = Duration::from_millis(50);

type Callback = dyn Fn(u64, u64) + Send + Sync;

/// A new object, in place of one of the same name.
pub struct Upload {
    name: PathBuf,
    store: Arc<dyn ObjectStore>,
    key: object_store::path::Path,
    net: Net,
    cancel: CancelToken,
    progress: Option<Box<Callback>>,
    options: Options,
    /// How long the store may take until it has a part.
    longest: Duration,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Upload {
    /// Connects to the store of a URL; nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`Error::Content`]; for web servers, too, which have no uploads in parts.
    pub fn new(url: &str, settings: &Settings) -> Result<Self> {
        let address = Address::parse(url)?;
        let fail = |trouble: Trouble| failed(address.name(), 0..0, &trouble);
        if address.kind == crate::address::Kind::Web {
            return Err(fail(Trouble::Unsupported(
                "a web server takes no uploads in parts".into(),
            )));
        }
        if address.is_prefix() {
            return Err(fail(Trouble::Address("it names no key".into())));
        }
        let net = Net::new(settings).map_err(fail)?;
        let (store, key) = connect(&address, &net, RETRIES).map_err(fail)?;
        let (name, cancel) = (address.name().to_owned(), CancelToken::new());
        let options = Options::default();
        let longest = settings.deadline.saturating_mul(SLOWEST);
        Ok(Self { name, store, key, net, cancel, progress: None, options, longest })
    }

    /// The token that cancels it.
    #[must_use]
    pub fn cancel(mut self, token: CancelToken) -> Self {
        self.cancel = token;
        self
    }

    /// Reports progress: bytes that were sent, and all.
    #[must_use]
    pub fn progress(mut self, callback: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.progress = Some(Box::new(callback));
        self
    }

    /// The settings of the save. A backend is refused: none moves data here. The others have no effect.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Saves a range of a buffer. Blocks until the store has all of it and shows it. After an error, or when it is
    /// cancelled, what was sent is dropped: an older object of that name stays as it is.
    ///
    /// # Errors
    ///
    /// [`Error::Content`]; [`Error::Cancelled`]; [`Error::RangeBeyondBuffer`]; [`Error::Buffer`]; [`Error::Unavailable`] if
    /// the options have a backend.
    pub fn save(&self, buffer: &Buffer, range: Range<u64>) -> Result<Report> {
        let length = range.end.saturating_sub(range.start);
        buffer.check_range(range.start, length)?;
        let measured = dmabuf_dio::Sending::start(&self.options)?;
        let job = Running { upload: self, buffer, range, sent: AtomicU64::new(0) };
        self.net.run(job.run())?;
        Ok(measured.end(buffer, length))
    }
}

impl Upload {
    async fn wait<T>(&self, future: impl Future<Output = T>) -> Result<T, Trouble> {
        let (mut future, start) = (pin!(future), Instant::now());
        while !self.cancel.is_cancelled() {
            if let Ok(value) = tokio::time::timeout(TICK, &mut future).await {
                return Ok(value);
            }
            if start.elapsed() >= self.longest {
                return Err(Trouble::Stalled(self.longest));
            }
        }
        Err(Trouble::Cancelled)
    }
}

struct Running<'a> {
    upload: &'a Upload,
    buffer: &'a Buffer,
    range: Range<u64>,
    sent: AtomicU64,
}

impl Running<'_> {
    fn length(&self) -> u64 {
        self.range.end - self.range.start
    }

    async fn run(&self) -> Result<()> {
        self.tell(0);
        if self.length() <= PART {
            return self.at_once().await;
        }
        let (store, key) = (&self.upload.store, &self.upload.key);
        let seen = Seen::default();
        let options = object_store::PutMultipartOptions {
            extensions: with(&seen),
            ..object_store::PutMultipartOptions::default()
        };
        let started = self.wait(store.put_multipart_opts(key, options)).await?;
        let mut parts = started.map_err(|error| self.failed(&error, &seen))?;
        let result = self.in_parts(parts.as_mut()).await;
        if result.is_err() {
            // The parts would be paid for until they are dropped.
            let _ = tokio::time::timeout(Duration::from_secs(30), parts.abort()).await;
        }
        result
    }

    async fn at_once(&self) -> Result<()> {
        let bytes = self.read(self.range.clone())?;
        let seen = Seen::default();
        let options = PutOptions { extensions: with(&seen), ..PutOptions::default() };
        let (store, key) = (&self.upload.store, &self.upload.key);
        let sent = self.wait(store.put_opts(key, PutPayload::from(bytes), options)).await?;
        sent.map_err(|error| self.failed(&error, &seen))?;
        self.tell(self.length());
        Ok(())
    }

    async fn in_parts(&self, parts: &mut dyn MultipartUpload) -> Result<()> {
        let size = PART.max(self.length().div_ceil(MOST_PARTS).next_multiple_of(1 << 20));
        let mut sending = FuturesUnordered::new();
        let mut at = self.range.start;
        loop {
            while at < self.range.end && sending.len() < AT_A_TIME {
                let part = at..(at + size).min(self.range.end);
                let length = part.end - part.start;
                at = part.end;
                let sent = parts.put_part(PutPayload::from(self.read(part)?));
                sending.push(async move { sent.await.map(|()| length) });
            }
            let Some(sent) = self.wait(sending.next()).await? else { break };
            self.tell(sent.map_err(|error| self.failed(&error, &Seen::default()))?);
        }
        // From here on it may become visible: to stop now would leave it open whether it did.
        let done = tokio::time::timeout(self.upload.longest, parts.complete()).await;
        let late = |_| failed(&self.upload.name, 0..0, &Trouble::Stalled(self.upload.longest));
        done.map_err(late)?.map_err(|error| self.failed(&error, &Seen::default())).map(drop)
    }

    fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.buffer.read_at(range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Waits, unless it is cancelled. Fails if that takes too long.
    async fn wait<T>(&self, future: impl Future<Output = T>) -> Result<T> {
        self.upload.wait(future).await.map_err(|trouble| match trouble {
            Trouble::Cancelled => Error::Cancelled {
                path: self.upload.name.clone(),
                direction: Direction::Save,
                done: self.sent.load(Ordering::Relaxed),
                length: self.length(),
            },
            trouble => failed(&self.upload.name, 0..0, &trouble),
        })
    }

    fn tell(&self, more: u64) {
        let sent = self.sent.fetch_add(more, Ordering::Relaxed) + more;
        if let Some(progress) = &self.upload.progress {
            progress(sent, self.length());
        }
    }

    fn failed(&self, error: &object_store::Error, seen: &Seen) -> Error {
        let trouble = match error {
            _ if seen.get().is_some() => of_store(error, seen),
            object_store::Error::NotFound { .. } => status(404, error),
            object_store::Error::PermissionDenied { .. } => status(403, error),
            object_store::Error::Unauthenticated { .. } => status(401, error),
            _ => {
                let unknown = || Trouble::Broken("a part could not be sent".into());
                told(error).unwrap_or_else(unknown)
            }
        };
        failed(&self.upload.name, 0..0, &trouble)
    }
}

fn status(status: u16, error: &object_store::Error) -> Trouble {
    Trouble::Status { status, code: crate::trouble::code_in(&error.to_string()), after: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_that_says_nothing_is_not_waited_for() {
        let settings = Settings { deadline: Duration::ZERO, ..Settings::default() };
        let upload = Upload::new("gs://bucket/key", &settings).expect("nothing is asked for yet");
        let silent = upload.net.run(upload.wait(std::future::pending::<()>()));
        assert_eq!(silent, Err(Trouble::Stalled(Duration::ZERO)));
        upload.cancel.cancel();
        let cancelled = upload.net.run(upload.wait(std::future::pending::<()>()));
        assert_eq!(cancelled, Err(Trouble::Cancelled));
    }
}
