// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio keep --hold`, as a service manager starts it.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use dmabuf_dio::{Buffer, Kind};
use dmabuf_dio_keep::receive;

use super::common::{folder, program};
use super::manager::Manager;

fn service(name: &str, source: &Path) -> Command {
    let mut command = program();
    command.args(["keep", "--quiet", "--hold"]).arg(format!("{name}={}", source.display()));
    command
}

fn signal(child: &mut Child, signal: i32) -> ExitStatus {
    // SAFETY: the call takes numbers; the child has not been waited for.
    unsafe { libc::kill(i32::try_from(child.id()).expect("a number"), signal) };
    child.wait().expect("ended")
}

/// The contents that the holder at a socket hands out, by place.
fn held(socket: &Path) -> Vec<(String, Vec<u8>)> {
    let received = receive(socket).expect("an answer");
    let files = received.header.files.iter().zip(&received.descriptors);
    files
        .map(|(file, fd)| {
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            let content = fs::read(path).expect("read");
            assert_eq!(content.len() as u64, file.length);
            (file.place.display().to_string(), content)
        })
        .collect()
}

#[test]
fn what_is_held_survives_kills_and_restarts() {
    let disk = folder();
    let short = tempfile::tempdir().expect("a folder whose path is short");
    let (source, socket) = (disk.path().join("model.gguf"), short.path().join("s"));
    let (old, new) = (vec![7; (2 << 20) + 5], vec![9; 100]);
    fs::write(&source, &old).expect("a source");
    let mut manager = Manager::new(short.path(), &["s"]);
    let mut child = manager.start(&service("m", &source));
    assert_eq!(held(&socket), [("model.gguf".to_owned(), old.clone())]);
    let first = manager.memory();
    assert_eq!(first.len(), 1, "{first:?}");

    // The same memory, not a copy, after a kill and after a stop.
    assert!(!signal(&mut child, libc::SIGKILL).success());
    let mut child = manager.start(&service("m", &source));
    assert_eq!(
        (held(&socket), manager.memory()),
        (vec![("model.gguf".into(), old.clone())], first.clone())
    );
    assert!(signal(&mut child, libc::SIGTERM).success(), "to be stopped is no failure");
    // A source that is gone is no reason to give it up.
    let away = disk.path().join("away");
    fs::rename(&source, &away).expect("renamed");
    let mut child = manager.start(&service("m", &source));
    assert_eq!(
        (held(&socket), manager.memory()),
        (vec![("model.gguf".into(), old)], first.clone())
    );
    signal(&mut child, libc::SIGKILL);

    fs::write(&source, &new).expect("a source");
    let mut child = manager.start(&service("m", &source));
    assert_eq!(held(&socket), [("model.gguf".to_owned(), new)]);
    let second = manager.memory();
    assert!(second.len() == 1 && second != first, "the old memory is freed: {second:?}");
    signal(&mut child, libc::SIGKILL);

    // Without its record, which is stored last, it is loaded again, and nothing of it stays.
    let mut before = second;
    for _ in 0..2 {
        manager.stored.retain(|(name, _)| name != "record");
        let mut child = manager.start(&service("m", &source));
        let now = manager.memory();
        assert!(now.len() == 1 && now != before, "{before:?}, then {now:?}");
        signal(&mut child, libc::SIGKILL);
        before = now;
    }
}

#[test]
fn held_memory_cannot_be_written() {
    let disk = folder();
    let short = tempfile::tempdir().expect("a folder whose path is short");
    let source = disk.path().join("model");
    fs::create_dir(&source).expect("a folder");
    for name in ["a", "empty", "b"] {
        fs::write(source.join(name), if name == "empty" { "" } else { name }).expect("a source");
    }
    let mut manager = Manager::new(short.path(), &["s"]);
    let mut child = manager.start(&service("m", &source));
    let socket = short.path().join("s");
    let text = |text: &str| text.as_bytes().to_vec();
    let wanted = [("a", text("a")), ("b", text("b")), ("empty", text(""))];
    assert_eq!(held(&socket), wanted.map(|(place, content)| (place.to_owned(), content)));
    let received = receive(&socket).expect("an answer");
    assert!(received.header.is_folder);
    for fd in &received.descriptors {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        assert!(rustix::io::write(fd, b"x").is_err(), "open for reading");
        if let Ok(file) = fs::File::options().write(true).open(path) {
            assert!(rustix::io::write(&file, b"x").is_err(), "sealed");
            let length = file.metadata().expect("stat").len();
            assert!(rustix::fs::ftruncate(&file, 0).is_err() || length == 0);
            assert!(rustix::fs::ftruncate(&file, length + 1).is_err(), "an empty one, too");
        }
    }
    signal(&mut child, libc::SIGKILL);
}

#[test]
fn dma_buf_is_the_memory_that_others_read() {
    if fs::File::options().read(true).write(true).open("/dev/udmabuf").is_err() {
        println!("skipped: /dev/udmabuf cannot be opened");
        return;
    }
    let disk = folder();
    let short = tempfile::tempdir().expect("a folder whose path is short");
    let source = disk.path().join("model.gguf");
    let mut content: Vec<u8> = (0..(2 << 20) + 5).map(|at: u32| (at % 251) as u8).collect();
    fs::write(&source, &content).expect("a source");
    let mut manager = Manager::new(short.path(), &["s", "dma-buf"]);
    let mut child = manager.start(&service("m", &source));
    // Also what the service manager has kept of it
    for again in 0..2 {
        let mut received = receive(&short.path().join("dma-buf")).expect("an answer");
        assert_eq!(received.header.files[0].kind, Kind::DmaBuf);
        let mut buffer = Buffer::from_fd(received.descriptors.remove(0)).expect("a buffer");
        assert_eq!(buffer.kind(), Kind::DmaBuf);
        let all = buffer.map().expect("mapped").to_vec().expect("read");
        assert_eq!(all[..content.len()], content);
        assert!(all[content.len()..].iter().all(|byte| *byte == 0), "the end of the last page");

        // Whoever has it can write it, as docs/keep.md says.
        let mut map = buffer.map_mut().expect("mapped");
        map.write_at(again, b"x").expect("written");
        map.finish().expect("ended");
        content[usize::try_from(again).expect("small")] = b'x';
        assert_eq!(held(&short.path().join("s")), [("model.gguf".to_owned(), content.clone())]);
        assert!(!signal(&mut child, libc::SIGKILL).success());
        child = manager.start(&service("m", &source));
    }
    signal(&mut child, libc::SIGKILL);
}

#[test]
fn service_without_its_socket_is_an_error() {
    let disk = folder();
    let source = disk.path().join("f");
    fs::write(&source, "f").expect("a source");
    let output = service("m", &source).output().expect("started");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("no socket was handed over") && text.contains("systemctl"), "{text}");
    let output = program().args(["keep", "--hold"]).output().expect("started");
    assert_eq!(output.status.code(), Some(2), "one source is needed");
}
