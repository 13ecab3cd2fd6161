// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why there is no figure.

use crate::pattern::Difference;
use crate::report::json::Object;
use dmabuf_dio::Errno;
use rustix::io::Errno as Os;

/// How a measurement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Every byte was correct.
    Verified,
    /// This kernel, file system or machine does not support it.
    Unavailable,
    /// It failed although it is supported.
    Failed,
    /// A byte was wrong.
    Different,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Unavailable => "unavailable",
            Self::Failed => "failed",
            Self::Different => "different",
        }
    }
}

/// A kernel error number, from rustix or from the library.
pub(crate) trait Number {
    fn number(self) -> Errno;
}

impl Number for Errno {
    fn number(self) -> Errno {
        self
    }
}

impl Number for Os {
    fn number(self) -> Errno {
        Errno::from_raw(self.raw_os_error())
    }
}

/// The reason for a missing figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) status: Status,
    pub(crate) reason: String,
    pub(crate) errno: Option<Errno>,
}

impl Trouble {
    /// `what` is not supported here: `why`.
    pub(crate) fn unavailable(what: &str, errno: impl Number, why: &str) -> Self {
        let errno = errno.number();
        Self {
            status: Status::Unavailable,
            reason: format!("{what}: {}, {why}", name(errno)),
            errno: Some(errno),
        }
    }

    /// A reason without an error number.
    pub(crate) fn new(status: Status, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), errno: None }
    }

    /// `what` failed although it is supported.
    pub(crate) fn failed(what: &str, errno: impl Number) -> Self {
        let errno = errno.number();
        Self {
            status: Status::Failed,
            reason: format!("{what} failed: {errno}"),
            errno: Some(errno),
        }
    }

    /// A call transferred too few bytes without an error.
    pub(crate) fn short(what: &str, done: u64, wanted: u64) -> Self {
        Self::new(Status::Failed, format!("{what} ended after {done} of {wanted} bytes"))
    }

    /// The same if everything needed is known to be supported.
    pub(crate) fn grave(mut self) -> Self {
        if self.status == Status::Unavailable {
            self.status = Status::Failed;
        }
        self
    }

    pub(crate) fn different(difference: &Difference) -> Self {
        Self::new(Status::Different, difference.to_string())
    }

    /// An error of the library.
    #[expect(clippy::needless_pass_by_value, reason = "for map_err()")]
    pub(crate) fn of_library(error: dmabuf_dio::Error) -> Self {
        use dmabuf_dio::Error;
        let (status, refusal) = match &error {
            Error::Unavailable { refusals, .. } => (Status::Unavailable, refusals.first()),
            Error::Heap { .. } => (Status::Unavailable, None),
            _ => (Status::Failed, None),
        };
        let errno = refusal.map_or_else(|| error.errno(), |refusal| refusal.errno);
        let what = refusal.map_or_else(|| error.to_string(), |refusal| refusal.reason.clone());
        let mut reason = format!("{what}; {}", error.hint());
        if let Some(errno) = errno.filter(|errno| !reason.contains(&name(*errno))) {
            reason = format!("{errno}: {reason}");
        }
        Self { status, reason, errno }
    }

    /// An error of the streams.
    #[expect(clippy::needless_pass_by_value, reason = "for map_err()")]
    pub(crate) fn of_stream(error: dmabuf_dio_stream::Error) -> Self {
        Self { status: Status::Failed, reason: error.to_string(), errno: error.errno() }
    }

    pub(crate) fn interrupted() -> Result<(), Self> {
        match dmabuf_dio_terminal::signals::caught() {
            None => Ok(()),
            Some(_) => Err(Self::new(Status::Failed, "interrupted")),
        }
    }
}

/// Fails if a call transferred less than requested.
pub(crate) fn whole(what: &str, done: u64, wanted: u64) -> Result<(), Trouble> {
    if done == wanted { Ok(()) } else { Err(Trouble::short(what, done, wanted)) }
}

/// Where a transfer ended early: with an error, or because a call transferred nothing.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) done: u64,
    pub(crate) errno: Option<Os>,
}

impl Stop {
    /// The same of a call that should work, for `len` bytes.
    pub(crate) fn of(self, what: &str, len: u64) -> Trouble {
        match self.errno {
            Some(errno) => Trouble::failed(what, errno),
            None => Trouble::short(what, self.done, len),
        }
    }
}

/// Repeats a call until `len` bytes are transferred.
pub(crate) fn repeat(len: u64, mut call: impl FnMut(u64) -> Result<usize, Os>) -> Result<(), Stop> {
    let mut done = 0;
    while done < len {
        match call(done) {
            Ok(0) => return Err(Stop { done, errno: None }),
            Ok(moved) => done += moved as u64,
            Err(Os::INTR) => {}
            Err(errno) => return Err(Stop { done, errno: Some(errno) }),
        }
    }
    Ok(())
}

/// The failure of a supported call, for `map_err`.
pub(crate) fn failed<E: Number>(what: &str) -> impl Fn(E) -> Trouble + '_ {
    move |errno| Trouble::failed(what, errno)
}

/// The same for calls of the standard library.
pub(crate) fn io_failed(what: &str) -> impl Fn(std::io::Error) -> Trouble + '_ {
    move |error| Trouble::failed(what, os(&error))
}

/// The error number of an error of the standard library.
pub(crate) fn os(error: &std::io::Error) -> Os {
    Os::from_io_error(error).unwrap_or(Os::IO)
}

/// The error number of a stream error.
pub(crate) fn stream_errno(error: &dmabuf_dio_stream::Error) -> Os {
    Os::from_raw_os_error(error.errno().map_or(libc::EIO, Errno::raw))
}

/// The name alone, as the sentence explains its meaning.
fn name(errno: Errno) -> String {
    errno.name().map_or_else(|| format!("errno {}", errno.raw()), str::to_owned)
}

/// The outcome of a row, for its result.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) status: Status,
    reason: Option<String>,
    errno: Option<Errno>,
}

impl Outcome {
    pub(crate) fn of<T>(result: &Result<T, Trouble>) -> Self {
        match result {
            Ok(_) => Self { status: Status::Verified, reason: None, errno: None },
            Err(Trouble { status, reason, errno }) => {
                Self { status: *status, reason: Some(reason.clone()), errno: *errno }
            }
        }
    }

    pub(crate) fn json(&self) -> Object {
        let errno = self.errno.and_then(|errno| serde_json::to_value(errno).ok());
        Object::default()
            .with("status", self.status.name())
            .with("reason", self.reason.clone())
            .with("errno", errno)
    }

    /// Shown instead of figures.
    pub(crate) fn sentence(&self) -> String {
        let reason = self.reason.as_deref().unwrap_or_default();
        match self.status {
            Status::Different => format!("WRONG CONTENT: {reason}"),
            Status::Failed => format!("FAILED: {reason}"),
            Status::Verified | Status::Unavailable => reason.to_owned(),
        }
    }
}

/// The outcome of a whole measurement: that of its worst row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    NothingRan,
    Failed,
    Different,
}

impl Verdict {
    pub(crate) fn of(rows: impl IntoIterator<Item = Status>) -> Self {
        let rows: Vec<Status> = rows.into_iter().collect();
        let any = |status| rows.contains(&status);
        match () {
            () if any(Status::Different) => Self::Different,
            () if any(Status::Failed) => Self::Failed,
            () if any(Status::Verified) => Self::Good,
            () => Self::NothingRan,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_name_the_errno() {
        let trouble = Trouble::unavailable("copy_file_range to a dma-buf", Os::INVAL, "no");
        assert_eq!(trouble.reason, "copy_file_range to a dma-buf: EINVAL, no");
        assert_eq!(trouble.status, Status::Unavailable);
        let trouble = Trouble::failed("splice", Os::IO);
        assert_eq!(trouble.reason, "splice failed: EIO (Input/output error)");
        assert_eq!(trouble.status, Status::Failed);
    }

    #[test]
    fn verdict_is_the_worst_status() {
        use Status::{Different, Failed, Unavailable, Verified};
        assert_eq!(Verdict::of([Verified, Unavailable]), Verdict::Good);
        assert_eq!(Verdict::of([Verified, Different, Failed]), Verdict::Different);
        assert_eq!(Verdict::of([Failed, Verified]), Verdict::Failed);
        assert_eq!(Verdict::of([Unavailable]), Verdict::NothingRan);
        assert_eq!(Verdict::of([]), Verdict::NothingRan);
    }
}
