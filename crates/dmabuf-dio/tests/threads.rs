// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that cannot create threads.

mod common;

use std::process::Command;

use common::{bytes, file_of, folder};
use dmabuf_dio::gather::{Gatherer, Piece};
use dmabuf_dio::{Backend, Buffer, Error, Kind, Loader};

/// Set in the process without threads: a stack that is too large prevents their creation.
const ALONE: &str = "RUST_MIN_STACK";

#[test]
fn failed_thread_start_is_reported() {
    if std::env::var_os(ALONE).is_some() {
        return alone();
    }
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program)
        .args(["--exact", "failed_thread_start_is_reported", "--nocapture"])
        // Whole pages, and more than there are addresses, also with 32 bits
        .env(ALONE, ((usize::MAX as u64).min(1 << 60) & !0xf_ffff).to_string())
        .output()
        .expect("run it again");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn alone() {
    let no_thread = std::thread::Builder::new().spawn(|| ()).expect_err("there are none");
    assert_eq!(no_thread.raw_os_error(), Some(libc::EAGAIN));
    let folder = folder();
    let (path, content) = file_of(&folder, 8 << 20);
    let is_lacking = |error: &Error| {
        println!("{error}\n    {}", error.hint());
        matches!(error, Error::Thread { .. })
            && error.errno().is_some_and(|errno| errno.raw() == libc::EAGAIN)
    };

    let buf = Buffer::memfd(8 << 20).expect("a memfd");
    let loader = Loader::new(&path).backend(Backend::Memfd);
    let error = loader.load_into(&buf, 0).expect_err("a thread makes the pages ready");
    assert!(is_lacking(&error), "{error}");
    let private = Loader::new(&path).kind(Kind::Private).load();
    assert!(is_lacking(private.as_ref().expect_err("the same")));
    // A single request needs no thread.
    Loader::new(&path).length(4096).kind(Kind::Private).load().expect("loaded");

    let pieces: Vec<_> =
        (0..1000).map(|at| Piece { offset: at * 8192, buf_offset: at * 8192, len: 512 }).collect();
    let gatherer = Gatherer::new(&path).backend(Backend::Buffered);
    let mut gathering = gatherer.clone().queue_depth(16).open(&buf).expect("set up");
    let gathered = gathering.read(&pieces).map(|_| ());
    assert!(is_lacking(gathered.as_ref().expect_err("sixteen threads")));
    // One request at a time needs no thread, and moves the rest.
    let mut gathering = gatherer.queue_depth(1).open(&buf).expect("set up");
    assert!(gathering.read(&pieces).expect("gathered").is_whole());
    let found = bytes(&buf);
    for piece in &pieces {
        let place = piece.buf_offset as usize..(piece.buf_offset + piece.len) as usize;
        assert_eq!(found[place.clone()], content[place]);
    }
}
