// SPDX-License-Identifier: MIT OR Apache-2.0
//! The texts and hints of errors.

use dmabuf_dio::Errno;
use dmabuf_dio_stream::Error;

fn stream(number: i32) -> Error {
    let (device, call) = ("adc".into(), "attach a block".into());
    Error::Stream { device, call, errno: Errno::from_raw(number) }
}

#[test]
fn each_errno_has_its_hint() {
    let hints = [
        (libc::EACCES, "udev"),
        (libc::EBUSY, "stop that program first"),
        (libc::EPERM, "6.11"),
        (libc::ENOTTY, "6.11"),
        (libc::ENODEV, "gone"),
        (libc::EINVAL, "trigger"),
        (libc::ENOMEM, "smaller or fewer blocks"),
        (libc::EMFILE, "ulimit -n"),
        (libc::ENFILE, "ulimit -n"),
        (libc::ETIMEDOUT, "no longer accepts data"),
        (libc::EOPNOTSUPP, "other direction"),
        (libc::ESHUTDOWN, "no host"),
        (libc::EPIPE, "closed the connection"),
        (libc::ECONNRESET, "closed the connection"),
        (libc::ENOENT, "iio_info"),
        (libc::ENOSPC, "free space"),
        (libc::EOVERFLOW, "a faster sink"),
        (libc::EILSEQ, "dmesg"),
    ];
    for (number, hint) in hints {
        let error = stream(number);
        assert!(error.hint().to_string().contains(hint), "{error}: {}", error.hint());
        assert_eq!(error.errno(), Some(Errno::from_raw(number)));
    }
}

#[test]
fn hint_for_a_cut_frame_truncates_the_file() {
    let error = Error::CutFrame { path: "f".into(), length: 7, frame: 4 };
    assert!(error.hint().to_string().contains("truncate -s 4 f"), "{}", error.hint());
    assert_eq!(error.errno(), None);
}

#[test]
fn transfer_errors_keep_text_and_hint() {
    let memory =
        Error::from(dmabuf_dio::Error::NoMemory { wanted: 1, available: None, reserve: None });
    assert!(memory.hint().to_string().contains("smaller blocks"), "{}", memory.hint());
    let inner = || dmabuf_dio::Error::ReadOnlyBuffer;
    let error = Error::from(inner());
    assert_eq!((error.to_string(), error.hint()), (inner().to_string(), inner().hint()));
}
