// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel error numbers and their names.

use std::fmt;

/// `Result` with a kernel error number.
pub type Result<T> = std::result::Result<T, Errno>;

/// A kernel error number. Displays its name and meaning: `EIO (Input/output error)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

impl Errno {
    /// From a positive number, such as `2` for `ENOENT`.
    pub const fn from_raw(number: i32) -> Self {
        Self(number)
    }

    /// The positive number.
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// The name, such as `"ENOENT"`; `None` if this library does not know the number.
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(number, _)| *number == self.0).map(|(_, name)| *name)
    }
}

/// For `map_err`: not a `From`, so that no type of rustix is in the public interface.
pub(crate) fn from_os(errno: rustix::io::Errno) -> Errno {
    Errno(errno.raw_os_error())
}

impl From<&std::io::Error> for Errno {
    fn from(error: &std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl std::error::Error for Errno {}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = std::io::Error::from_raw_os_error(self.0).to_string();
        let meaning = text.split(" (os error").next().unwrap_or_default();
        match self.name() {
            Some(name) => write!(f, "{name} ({meaning})"),
            None => write!(f, "errno {} ({meaning})", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Errno {
    fn serialize<S: serde::Serializer>(
        &self,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        match self.name() {
            Some(name) => serializer.serialize_str(name),
            None => serializer.serialize_str(&self.0.to_string()),
        }
    }
}

macro_rules! names {
    ($($short:ident $name:ident)+) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($name), "`.")]
            pub const $short: Self = Self(libc::$name);)+
        }

        /// The numbers that file, memory, `io_uring` and device calls return.
        const NAMES: &[(i32, &str)] = &[$((libc::$name, stringify!($name))),+];
    };
}

names! {
    PERM EPERM
    NOENT ENOENT
    INTR EINTR
    IO EIO
    NXIO ENXIO
    TOOBIG E2BIG
    BADF EBADF
    AGAIN EAGAIN
    NOMEM ENOMEM
    ACCESS EACCES
    FAULT EFAULT
    BUSY EBUSY
    EXIST EEXIST
    XDEV EXDEV
    NODEV ENODEV
    NOTDIR ENOTDIR
    ISDIR EISDIR
    INVAL EINVAL
    NFILE ENFILE
    MFILE EMFILE
    NOTTY ENOTTY
    TXTBSY ETXTBSY
    FBIG EFBIG
    NOSPC ENOSPC
    SPIPE ESPIPE
    ROFS EROFS
    MLINK EMLINK
    PIPE EPIPE
    RANGE ERANGE
    DEADLK EDEADLK
    NAMETOOLONG ENAMETOOLONG
    NOSYS ENOSYS
    LOOP ELOOP
    NODATA ENODATA
    TIME ETIME
    REMOTEIO EREMOTEIO
    PROTO EPROTO
    BADMSG EBADMSG
    OVERFLOW EOVERFLOW
    BADFD EBADFD
    STALE ESTALE
    ILSEQ EILSEQ
    OPNOTSUPP EOPNOTSUPP
    NOTCONN ENOTCONN
    TIMEDOUT ETIMEDOUT
    ALREADY EALREADY
    INPROGRESS EINPROGRESS
    DQUOT EDQUOT
    NOMEDIUM ENOMEDIUM
    CANCELED ECANCELED
    HWPOISON EHWPOISON
    SHUTDOWN ESHUTDOWN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_displays_name_and_meaning() {
        assert_eq!(Errno::IO.to_string(), "EIO (Input/output error)");
        assert!(Errno::from_raw(4095).to_string().starts_with("errno 4095"));
    }

    #[test]
    fn errno_converts_equally_from_every_source() {
        let denied = Errno::from_raw(libc::EACCES);
        assert_eq!(denied, Errno::ACCESS);
        assert_eq!((denied.raw(), denied.name()), (libc::EACCES, Some("EACCES")));
        assert_eq!(from_os(rustix::io::Errno::ACCESS), denied);
        assert_eq!(Errno::from(&std::io::Error::from_raw_os_error(libc::EACCES)), denied);
        assert_eq!(std::io::Error::from(denied).kind(), std::io::ErrorKind::PermissionDenied);
        // Errors of the library itself have no number.
        let other = std::io::Error::other("no number");
        assert_eq!(Errno::from(&other), Errno::IO);
        assert_eq!(Errno::from_raw(4095).name(), None);
    }

    #[test]
    #[cfg(feature = "serde")]
    fn errno_serializes_as_name_or_number() {
        let text = |number| serde_json::to_string(&Errno::from_raw(number)).expect("text");
        assert_eq!(text(libc::ENOSPC), "\"ENOSPC\"");
        assert_eq!(text(4095), "\"4095\"");
        assert_eq!(format!("{:?}", Errno::from_raw(libc::EINTR)), Errno(4).to_string());
    }
}
