// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why there is no figure.

use std::io;

use dmabuf_dio::Errno;
use dmabuf_dio_terminal::exit::{FAILED, Failure, UNAVAILABLE};
use dmabuf_dio_terminal::signals;
use rustix::io::Errno as Os;
use serde::Serialize;

pub(crate) type Result<T, E = Trouble> = std::result::Result<T, E>;

/// How a measurement without figures ended, from bad to worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// This kernel, file system or machine does not support it.
    Unavailable,
    /// It failed although it is supported.
    Failed,
    /// A byte was wrong.
    Different,
}

/// The reason for a missing figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) status: Status,
    pub(crate) reason: String,
}

impl Trouble {
    pub(crate) fn new(status: Status, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into() }
    }

    /// `what` is not supported here: `why`.
    pub(crate) fn unavailable(what: &str, errno: Os, why: &str) -> Self {
        let name = name(Errno::from_raw(errno.raw_os_error()));
        Self::new(Status::Unavailable, format!("{what}: {name}, {why}"))
    }

    /// `what` failed although it is supported.
    pub(crate) fn failed(what: &str, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        let errno = error.raw_os_error().map(|number| Errno::from_raw(number).to_string());
        let why = errno.unwrap_or_else(|| error.to_string());
        Self::new(Status::Failed, format!("{what} failed: {why}"))
    }

    pub(crate) fn broken(reason: impl Into<String>) -> Self {
        Self::new(Status::Failed, reason)
    }

    pub(crate) fn different(reason: impl Into<String>) -> Self {
        Self::new(Status::Different, reason)
    }

    /// The same if everything needed is known to be supported.
    pub(crate) fn grave(self) -> Self {
        Self { status: self.status.max(Status::Failed), ..self }
    }

    pub(crate) fn interrupted() -> Result<()> {
        match signals::caught() {
            None => Ok(()),
            Some(_) => Err(Self::new(Status::Failed, "interrupted")),
        }
    }
}

impl From<dmabuf_dio::Error> for Trouble {
    fn from(error: dmabuf_dio::Error) -> Self {
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
        Self { status, reason }
    }
}

impl From<dmabuf_dio_stream::Error> for Trouble {
    fn from(error: dmabuf_dio_stream::Error) -> Self {
        Self::new(Status::Failed, error.to_string())
    }
}

impl From<Trouble> for Failure {
    fn from(Trouble { status, reason }: Trouble) -> Self {
        let code = if status == Status::Unavailable { UNAVAILABLE } else { FAILED };
        Self::if_interrupted().err().unwrap_or_else(|| Self::new(code, reason, ""))
    }
}

/// Fails if a call transferred another amount than requested, without an error.
pub(crate) fn whole(what: &str, done: u64, wanted: u64) -> Result<()> {
    if done == wanted {
        return Ok(());
    }
    Err(Trouble::new(Status::Failed, format!("{what} ended after {done} of {wanted} bytes")))
}

/// Repeats a call that should work until `len` bytes are transferred.
pub(crate) fn repeat(
    what: &str,
    len: u64,
    mut call: impl FnMut(u64) -> Result<usize, Os>,
) -> Result<()> {
    let mut done = 0;
    while done < len {
        match call(done) {
            Ok(0) => return whole(what, done, len),
            Ok(moved) => done += moved as u64,
            Err(Os::INTR) => {}
            Err(errno) => return Err(Trouble::failed(what, errno)),
        }
    }
    Ok(())
}

/// The failure of a supported call, for `map_err`.
pub(crate) fn failed<E: Into<io::Error>>(what: &str) -> impl Fn(E) -> Trouble + '_ {
    move |error| Trouble::failed(what, error)
}

/// Errnos by which a call says that something is lacking, and what to do about it.
pub(crate) type Lack<'a> = (&'a [Os], &'a str);

pub(crate) const NOT_ROOT: Lack<'static> =
    (&[Os::ACCESS, Os::PERM, Os::ROFS], "this user may not do it: run as root");
/// How a device is missing.
pub(crate) const NO_DEVICE: &[Os] = &[Os::NOENT, Os::NODEV, Os::NXIO];

/// Why a call failed that this kernel, file system or machine may lack, for `map_err`. Any errno without a lack is a
/// failure.
pub(crate) fn refused<E: Into<io::Error>>(what: &str, lacks: &[Lack<'_>]) -> impl Fn(E) -> Trouble {
    move |error| {
        let error = error.into();
        let lacking = |errno| {
            let (_, why) = lacks.iter().find(|(errnos, _)| errnos.contains(&errno))?;
            Some(Trouble::unavailable(what, errno, why))
        };
        let trouble = Os::from_io_error(&error).and_then(lacking);
        trouble.unwrap_or_else(|| Trouble::failed(what, error))
    }
}

/// The name alone, as the sentence explains its meaning.
fn name(errno: Errno) -> String {
    errno.name().map_or_else(|| format!("errno {}", errno.raw()), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_name_the_errno_and_what_is_lacking_is_no_failure() {
        let refused =
            |errno: Os| refused("copy_file_range", &[(&[Os::INVAL], "no"), NOT_ROOT])(errno);
        assert_eq!(refused(Os::INVAL).reason, "copy_file_range: EINVAL, no");
        assert_eq!(refused(Os::INVAL).status, Status::Unavailable);
        assert_eq!(refused(Os::INVAL).grave().status, Status::Failed);
        assert!(refused(Os::PERM).reason.ends_with("EPERM, this user may not do it: run as root"));
        let trouble = Trouble::broken("copy_file_range failed: EIO (Input/output error)");
        assert_eq!(refused(Os::IO), trouble);
        assert_eq!(refused(Os::OPNOTSUPP).status, Status::Failed, "nobody lists it");
    }

    #[test]
    fn calls_are_repeated_until_all_is_moved_or_nothing_more_comes() {
        for (moves, wanted) in [
            (&[Ok(5), Err(Os::INTR), Ok(3)][..], None),
            (&[Ok(5), Ok(0)], Some("read ended after 5 of 8 bytes")),
            (&[Err(Os::IO)], Some("read failed: EIO (Input/output error)")),
        ] {
            let mut moves = moves.iter();
            let moved = repeat("read", 8, |_| *moves.next().expect("a call"));
            assert_eq!(moved, wanted.map_or(Ok(()), |reason| Err(Trouble::broken(reason))));
        }
        assert!(whole("READ", 8, 8).is_ok() && whole("READ", 9, 8).is_err());
    }
}
