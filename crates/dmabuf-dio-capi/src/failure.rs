// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors on their way to C: a negative number, and a message of the thread.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use dmabuf_dio::{Error, Refusal, Words};

/// The result of a call of this crate.
pub(crate) type Outcome<T = i32> = Result<T, Failure>;

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Positive.
    pub(crate) errno: i32,
    pub(crate) message: String,
    pub(crate) hint: String,
    /// Lines: why each backend is not available.
    reasons: String,
    /// Bytes moved, without a gap, from the start of the range.
    done: u64,
}

/// How hints name the constants and fields of the header.
const WORDS: Words = Words {
    kind: |kind| format!("DMABUF_DIO_KIND_{}", kind.name().replace('-', "").to_uppercase()),
    setting: str::to_owned,
    room: "dmabuf_dio_gather_room()",
    tensors: "Model::tensors, in Rust",
};

impl Failure {
    pub(crate) fn new(errno: i32, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { errno, message: message.into(), hint: hint.into(), reasons: String::new(), done: 0 }
    }

    pub(crate) fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, message, hint)
    }

    pub(crate) fn null(argument: &str) -> Self {
        Self::new(libc::EFAULT, format!("{argument} is a null pointer"), "pass an address")
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let hint = error.hint().in_words(&WORDS);
        let failure = Self::new(error.number().raw(), error.to_string(), hint);
        let reasons: Vec<_> = error.refusals().iter().map(ToString::to_string).collect();
        Self { done: done(&error), reasons: reasons.join("\n"), ..failure }
    }
}

impl From<dmabuf_dio_keep::Error> for Failure {
    fn from(error: dmabuf_dio_keep::Error) -> Self {
        match error {
            dmabuf_dio_keep::Error::Load(error) => error.into(),
            error => Self::new(error.number(), error.to_string(), error.hint().in_words(&WORDS)),
        }
    }
}

impl From<dmabuf_dio_stream::Error> for Failure {
    fn from(error: dmabuf_dio_stream::Error) -> Self {
        use dmabuf_dio_stream::{Error, Refused};
        let errno = match &error {
            Error::Transfer(error) => error.number().raw(),
            Error::Setting { reason: Refused::Unknown(_), .. } => libc::ENOENT,
            error => error.errno().map_or(libc::EINVAL, dmabuf_dio::Errno::raw),
        };
        Self::new(errno, error.to_string(), error.hint().in_words(&WORDS))
    }
}

impl From<dmabuf_dio_tensors::Error> for Failure {
    fn from(error: dmabuf_dio_tensors::Error) -> Self {
        use dmabuf_dio_tensors::Error;
        let hint = error.hint().in_words(&WORDS);
        let errno = match &error {
            Error::Open { source, .. } | Error::Read { source, .. } => {
                source.raw_os_error().unwrap_or(libc::EIO)
            }
            Error::NoTensor { .. } => libc::ENOENT,
            Error::Load { source, .. } | Error::Buffer(source) => source.number().raw(),
            _ => libc::EINVAL,
        };
        Self::new(errno, error.to_string(), hint)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let errno = refusal.errno.map_or(libc::EOPNOTSUPP, dmabuf_dio::Errno::raw);
        Self::new(errno, refusal.reason, refusal.remedy.unwrap_or_default())
    }
}

/// The number that the header documents for an error.
fn done(error: &Error) -> u64 {
    match error {
        Error::Transfer { done, .. }
        | Error::ShortFile { done, .. }
        | Error::Unsynced { done, .. }
        | Error::Cancelled { done, .. } => *done,
        _ => 0,
    }
}

/// The last failure of a thread, as C sees it.
#[derive(Default)]
struct Last {
    message: CString,
    hint: CString,
    reasons: CString,
    done: u64,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

fn text(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

fn remember(failure: &Failure) {
    // Without the thread's storage, as at its end, there is nowhere to keep it.
    let _ = LAST.try_with(|last| {
        let (message, hint) = (text(&failure.message), text(&failure.hint));
        let reasons = text(&failure.reasons);
        last.replace(Last { message, hint, reasons, done: failure.done });
    });
}

pub(crate) fn last_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().message.as_ptr()).unwrap_or(c"".as_ptr())
}

pub(crate) fn last_hint() -> *const c_char {
    LAST.try_with(|last| last.borrow().hint.as_ptr()).unwrap_or(c"".as_ptr())
}

pub(crate) fn last_reasons() -> *const c_char {
    LAST.try_with(|last| last.borrow().reasons.as_ptr()).unwrap_or(c"".as_ptr())
}

pub(crate) fn last_done() -> u64 {
    LAST.try_with(|last| last.borrow().done).unwrap_or(0)
}

/// Makes a call: its result, or a negative error number whose message is kept for the thread. A
/// panic is an error, too.
pub(crate) fn guard<T: From<i32>>(call: impl FnOnce() -> Outcome<T>) -> T {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(result)) => return result,
        Ok(Err(failure)) => failure,
        Err(panic) => panicked(panic.as_ref()),
    };
    remember(&failure);
    T::from(-failure.errno)
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Failure::new(
        libc::ENOTRECOVERABLE,
        format!("dmabuf-dio has a bug: {}", said.unwrap_or("a panic without a message")),
        "report it; do not use the buffer or the file of this call any more",
    )
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn message() -> String {
        // SAFETY: the message stays until the next failure of this thread.
        unsafe { CStr::from_ptr(last_message()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn panic_becomes_an_error_with_a_message() {
        let status: i32 = guard(|| panic!("seven of {}", 9));
        assert_eq!(status, -libc::ENOTRECOVERABLE);
        assert_eq!(message(), "dmabuf-dio has a bug: seven of 9");
    }

    #[test]
    fn success_keeps_the_last_error_message() {
        assert_eq!(guard::<i32>(|| Err(Failure::null("path"))), -libc::EFAULT);
        assert_eq!(guard(|| Ok(3_i64)), 3);
        assert_eq!(message(), "path is a null pointer");
        std::thread::spawn(|| assert_eq!(message(), "")).join().expect("another thread");
    }

    #[test]
    fn errors_keep_their_numbers_hints_and_bytes() {
        let path = std::path::PathBuf::from("f");
        let short = Error::ShortFile { path, offset: 0, length: 9, end: 7, done: 5 };
        assert_eq!(guard::<i32>(|| Err(short.into())), -libc::ENODATA);
        assert_eq!(last_done(), 5);
        let kind = Some(dmabuf_dio::Kind::DmaBuf);
        let none = Failure::from(Error::Unavailable { asked: None, kind, refusals: Vec::new() });
        assert_eq!(none.errno, libc::EOPNOTSUPP);
        assert!(none.hint.contains("any kind of buffer: DMABUF_DIO_KIND_ANY"), "{}", none.hint);
        let nested = Error::RangeOverflow { offset: 1, length: u64::MAX };
        let piece = Error::Piece { number: 1, error: Box::new(nested) };
        assert_eq!(Failure::from(piece).errno, libc::EOVERFLOW);
    }
}
