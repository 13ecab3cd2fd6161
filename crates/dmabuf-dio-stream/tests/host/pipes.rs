// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams to and from other programs: pipes and sockets. They need no device.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use dmabuf_dio::{CancelToken, Errno};
use dmabuf_dio_stream::{Error, FdSink, FdSource, Interrupted, Sink, Source, Stream, Summary};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::common::{Keeper, Made, put, ring};

type Outcome = Result<Summary, Box<Interrupted>>;

/// The byte at an offset in the samples.
fn byte(at: u64) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)) as u8
}

fn bytes(range: std::ops::Range<u64>) -> Vec<u8> {
    range.map(byte).collect()
}

fn pipe() -> (File, OwnedFd) {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    (read.into(), write)
}

/// A source of these bytes.
fn device(frame: u64) -> impl Source {
    let mut next = 0;
    Made::new(frame, move |block, filled| {
        put(block, &bytes(next..next + filled.bytes));
        next += filled.bytes;
        Some(filled.bytes)
    })
}

/// Reads to the end, in pieces of all sizes, slowly at first.
fn reader(mut from: File) -> JoinHandle<Vec<u8>> {
    spawn(move || {
        let (mut all, mut piece) = (Vec::new(), vec![0; 50_000]);
        for size in (1..).map(|number: usize| number * 977 % 50_000 + 1) {
            let got = from.read(&mut piece[..size]).expect("read");
            if got == 0 {
                return all;
            }
            all.extend_from_slice(&piece[..got]);
            if all.len() < 200_000 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        all
    })
}

/// Sends `limit` bytes of a device to a sink, and closes it.
fn send(frame: u64, mut sink: impl Sink, size: u64, limit: u64) -> Outcome {
    Stream::new(&mut device(frame), &mut sink, ring(4, size)).limit(limit).run()
}

fn receive(mut source: FdSource, size: u64) -> (Outcome, Vec<u8>) {
    let mut sink = Keeper::new(1);
    let outcome = Stream::new(&mut source, &mut sink, ring(3, size)).run();
    (outcome, sink.bytes)
}

fn raw(errno: Option<Errno>) -> Option<i32> {
    errno.map(Errno::raw)
}

#[test]
fn a_pipe_gets_every_byte() {
    for (frame, size) in [(8, 65_536), (8, 8000), (6, 60_000), (24, 1 << 20), (10_000, 30_000)] {
        let (read, write) = pipe();
        let reader = reader(read);
        let sink = FdSink::new(write, "the reader", frame).expect("a pipe");
        let summary = send(frame, sink, size / frame * frame, 2_400_000).expect("run");
        let got = reader.join().expect("no panic");
        assert!((summary.bytes, summary.complete) == (2_400_000, true) && summary.gaps.is_empty());
        assert!(got == bytes(0..2_400_000), "frames of {frame} bytes: {} arrived", got.len());
        assert!(summary.sink.contains("copied by the CPU"), "{}", summary.sink);
    }
}

/// The report has at least what the reader has, and no more than was in the pipe.
#[test]
fn closing_reader_ends_the_stream() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    for (frame, way) in [(8, "pipe"), (6, "pipe"), (24, "unix"), (24, "tcp")] {
        let (to, mut from): (OwnedFd, File) = match way {
            "pipe" => {
                let (read, write) = pipe();
                (write, read)
            }
            "unix" => {
                let (ours, theirs) = UnixStream::pair().expect("a pair");
                (ours.into(), OwnedFd::from(theirs).into())
            }
            _ => {
                let address = listener.local_addr().expect("its number");
                let ours = TcpStream::connect(address).expect("connected");
                let theirs = listener.accept().expect("accepted").0;
                (ours.into(), OwnedFd::from(theirs).into())
            }
        };
        let reader = spawn(move || {
            let mut some = vec![0; 1_000_000];
            from.read_exact(&mut some).expect("read");
            some
        });
        let sink = FdSink::new(to, "the reader", frame).expect("a pipe");
        // It closes within the first block.
        let ended = send(frame, sink, 48_000_000, u64::MAX / 2).expect_err("closed");
        assert_eq!(raw(ended.error.errno()), Some(libc::EPIPE), "{way}: {ended}");
        assert!(ended.error.to_string().contains("the reader"), "{ended}");
        assert!(reader.join().expect("no panic") == bytes(0..1_000_000));
        let told = ended.summary.bytes;
        assert!(told % frame == 0 && told + frame > 1_000_000, "{way}: {ended}");
        assert!(told < 48_000_000 && !ended.summary.complete, "{way}: {ended}");
    }
}

#[test]
fn a_pipe_is_read_to_its_end() {
    // The last block is not full, and the last frame may be cut.
    for (frame, total, size) in [(8, 1_000_000, 65_536), (24, 999_984, 72_000), (8, 0, 4096)] {
        for excess in [0, 1, frame - 1] {
            let (read, write) = pipe();
            let writer = spawn(move || {
                let mut write = File::from(write);
                write.write_all(&bytes(0..total + excess)).expect("written");
            });
            let source = FdSource::new(read, "the writer", frame).expect("a pipe");
            let (outcome, got) = receive(source, size);
            writer.join().expect("no panic");
            assert!(got == bytes(0..total), "{} of {total}", got.len());
            match outcome {
                Ok(summary) => assert!(excess == 0 && summary.complete, "{summary:?}"),
                Err(ended) => {
                    let cut =
                        matches!(ended.error, Error::CutStream { excess: e, .. } if e == excess);
                    assert!(excess > 0 && cut && !ended.summary.complete, "{ended}");
                    assert_eq!(ended.summary.bytes, total);
                }
            }
        }
    }
}

#[test]
fn a_limit_leaves_the_rest_in_the_pipe() {
    let (read, write) = pipe();
    File::from(write).write_all(&bytes(0..10_000)).expect("written");
    let mut rest = read.try_clone().expect("a descriptor");
    let mut source = FdSource::new(read, "the writer", 8).expect("a pipe");
    let mut sink = Keeper::new(1);
    let stream = Stream::new(&mut source, &mut sink, ring(3, 4096)).limit(5000);
    let summary = stream.run().expect("run");
    assert!(summary.complete && sink.bytes == bytes(0..5000));
    let mut left = Vec::new();
    rest.read_to_end(&mut left).expect("read");
    assert_eq!(left, bytes(5000..10_000));
    // Less than was asked for.
    let (read, write) = pipe();
    File::from(write).write_all(&bytes(0..4000)).expect("written");
    let mut source = FdSource::new(read, "the writer", 8).expect("a pipe");
    let mut sink = Keeper::new(1);
    let stream = Stream::new(&mut source, &mut sink, ring(3, 4096)).limit(5000);
    let summary = stream.run().expect("in order");
    assert_eq!((summary.bytes, summary.complete), (4000, false));
}

#[test]
fn cancelled_stream_keeps_received_frames() {
    let (read, write) = pipe();
    let mut write = File::from(write);
    write.write_all(&bytes(0..1003)).expect("written");
    let mut source = FdSource::new(read, "the writer", 8).expect("a pipe");
    let (mut sink, token) = (Keeper::new(1), CancelToken::new());
    let cancel = token.clone();
    let stream = Stream::new(&mut source, &mut sink, ring(2, 4096)).cancel(token);
    // The pipe stays open: only this ends the stream.
    let stream = stream.progress(move |state| {
        if state.elapsed > Duration::from_millis(250) {
            cancel.cancel();
        }
    });
    let summary = stream.run().expect("in order");
    drop(write);
    assert!(sink.bytes == bytes(0..1000));
    assert_eq!(summary.bytes, 1000);
}
