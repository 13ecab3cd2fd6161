// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio receive`, run as a user does. It needs no device: senders are the library's, or simple.

mod common;

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::Arc;
use std::thread::{sleep, spawn};
use std::time::Duration;

use common::{connected, folder, program};
use dmabuf_dio::DmaBuf;
use dmabuf_dio_stream::{Ending, FdSink, Filled, Gap, Loss, Ring, Sink as _};
use serde_json::Value;

const DESCRIPTION: &str = r#"{"global": {"core:datatype": "ri16_le", "core:version": "1.2.0",
    "core:num_channels": 4, "core:sample_rate": 1e6, "core:hw": "adc"},
    "captures": [{"core:sample_start": 0, "core:global_index": 0}], "annotations": []}"#;
const BLOCK: u64 = 8000;

fn byte(at: u64) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)) as u8
}

fn bytes(range: std::ops::Range<u64>) -> Vec<u8> {
    range.map(byte).collect()
}

fn start(arguments: &[&str], input: Stdio, output: Stdio) -> Child {
    let mut command = program();
    command.args(["receive"]).args(arguments).stdin(input).stdout(output).stderr(Stdio::piped());
    command.spawn().expect("started")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Sends `blocks` blocks with the framing, and with a gap before the third.
fn send(to: impl Into<OwnedFd>, blocks: u64, ending: &Ending) -> dmabuf_dio_stream::Result<()> {
    let ring = Ring::of(vec![DmaBuf::memfd(BLOCK).expect("a memfd")], BLOCK).expect("a ring");
    let ring = Arc::new(ring);
    let mut sink = FdSink::new(to, "the receiver", 8)?.framed(DESCRIPTION);
    sink.attach(&ring, None)?;
    for number in 0..blocks {
        let content = bytes(number * BLOCK..(number + 1) * BLOCK);
        let mut block = ring.block(0).try_clone().expect("a descriptor");
        block.map_mut().expect("a view").write_at(0, &content).expect("written");
        if number == 2 {
            let (kind, at) = (Loss::Lost, 2 * BLOCK);
            sink.gaps(&[Gap { kind, at, to: at, frames: Some(77) }]);
        }
        sink.queue(Filled { block: 0, bytes: BLOCK })?;
        while sink.take()?.is_none() {
            sink.ready().expect("queued").wait(Duration::from_millis(100))?;
        }
    }
    sink.ending(ending);
    sink.finish()
}

fn complete() -> Ending {
    Ending { complete: true, loss_known: true, error: None }
}

/// A port on which nobody listens.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its number").port()
}

#[test]
fn gaps_of_the_sender_reach_report_and_description() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).into_os_string().into_string().expect("text");
    let (data, report) = (path("samples.sigmf-data"), path("report.json"));
    let socket = path("socket");
    let port = free_port();
    let ways =
        [format!("tcp-listen://127.0.0.1:{port}"), format!("unix-listen:{socket}"), "-".to_owned()];
    for from in &ways {
        let to = ["--to", &data, "--max-loss", "77", "--force", "--json", "--report", &report];
        let mut child =
            start(&[&[from.as_str()][..], &to].concat(), Stdio::piped(), Stdio::piped());
        let sent = if from.starts_with("tcp") {
            send(connected(|| TcpStream::connect(("127.0.0.1", port))), 50, &complete())
        } else if from.starts_with("unix") {
            send(connected(|| UnixStream::connect(&socket)), 50, &complete())
        } else {
            send(OwnedFd::from(child.stdin.take().expect("a pipe")), 50, &complete())
        };
        sent.expect("sent");
        let output = child.wait_with_output().expect("its end");
        assert!(output.status.success(), "{from}: {}", errors(&output));
        let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let written = fs::read_to_string(&report).expect("a report");
        assert_eq!(printed, serde_json::from_str::<Value>(&written).expect("JSON"));
        assert_eq!((&printed["frames"], &printed["lost_frames"]), (&50_000.into(), &77.into()));
        let gap = &printed["gaps"][0];
        assert_eq!((&gap["at"], &gap["to"]), (&(2 * BLOCK).into(), &(2 * BLOCK).into()));
        let known = (&printed["complete"], &printed["loss_known"], &printed["rate"]);
        assert_eq!(known, (&true.into(), &true.into(), &1e6.into()));
        assert!(fs::read(&data).expect("the file") == bytes(0..50 * BLOCK));
        let meta = fs::read_to_string(path("samples.sigmf-meta")).expect("described");
        let meta: Value = serde_json::from_str(&meta).expect("JSON");
        assert_eq!(meta["global"]["core:datatype"], "ri16_le");
        assert_eq!(meta["captures"][1]["core:global_index"], 2077);
        assert_eq!(meta["annotations"][0]["core:sample_start"], 2000);
        println!("{from}: {} / {}", printed["source"], printed["sink"]);
    }
    assert!(!Path::new(&socket).exists(), "removed");
    // One frame more than is allowed.
    let arguments = ["-", "--to", "none", "--max-loss", "76"];
    let mut child = start(&arguments, Stdio::piped(), Stdio::null());
    send(OwnedFd::from(child.stdin.take().expect("a pipe")), 5, &complete()).expect("sent");
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    assert!(errors(&output).contains("--max-loss 76"), "{}", errors(&output));
}

#[test]
fn an_early_end_of_the_sender_is_a_failure() {
    let folder = folder();
    let data = folder.path().join("samples.bin");
    let receive = |feed: &dyn Fn(ChildStdin)| {
        let to = data.to_str().expect("text");
        let arguments = ["-", "--to", to, "--force", "--json", "--max-loss", "100%"];
        let mut child = start(&arguments, Stdio::piped(), Stdio::piped());
        feed(child.stdin.take().expect("a pipe"));
        let output = child.wait_with_output().expect("its end");
        assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
        (report, errors(&output))
    };
    let error = Some("the antenna fell over".to_owned());
    let ending = Ending { complete: false, loss_known: true, error };
    let (report, said) = receive(&|to| send(OwnedFd::from(to), 9, &ending).expect("sent"));
    assert!(said.contains("the antenna fell over"), "{said}");
    let frames = |report: &Value| report["frames"].as_u64().expect("a number");
    assert_eq!((frames(&report), &report["complete"]), (9000, &false.into()));
    assert!(fs::read(&data).expect("kept") == bytes(0..9 * BLOCK));
    // The sender is killed within a block.
    let mut all = Vec::new();
    let (mut ours, theirs) = UnixStream::pair().expect("a pair");
    let sender = spawn(move || send(theirs, 9, &complete()));
    ours.read_to_end(&mut all).expect("all of it");
    sender.join().expect("no panic").expect("sent");
    all.truncate(all.len() / 2);
    let (report, said) = receive(&|mut to| to.write_all(&all).expect("written"));
    assert!(said.contains("before the stream's end"), "{said}");
    let got = fs::read(&data).expect("kept");
    assert_eq!((frames(&report) * 8, got.len() % 8), (got.len() as u64, 0));
    assert!(got.len() > 3 * BLOCK as usize && got == bytes(0..got.len() as u64));
}

#[test]
fn raw_samples_are_received_too() {
    let folder = folder();
    let data = folder.path().join("samples.bin");
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let to = data.to_str().expect("text");
    let from = fifo.to_str().expect("text");
    let all = bytes(0..1_000_003);
    // The receiver waits for the writer.
    let arguments = [from, "--raw", "--frame-bytes", "8", "--to", to];
    let child = start(&arguments, Stdio::null(), Stdio::piped());
    sleep(Duration::from_millis(400));
    File::options().write(true).open(&fifo).expect("open").write_all(&all).expect("written");
    let output = child.wait_with_output().expect("its end");
    // The last frame is cut.
    let said = errors(&output);
    assert!(output.status.code() == Some(1) && said.contains("3 of 8 bytes"), "{said}");
    assert!(fs::read(&data).expect("the file") == all[..1_000_000]);
    assert!(!folder.path().join("samples.sigmf-meta").exists());

    let listener = UnixListener::bind(folder.path().join("socket")).expect("bound");
    let from = format!("unix:{}", folder.path().join("socket").display());
    let arguments = [&from, "--raw", "--to", "-", "--samples", "500k", "--json"];
    let child = start(&arguments, Stdio::null(), Stdio::piped());
    let (mut peer, _) = listener.accept().expect("a connection");
    let sender = spawn(move || peer.write_all(&bytes(0..1_000_000)));
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success(), "{}", errors(&output));
    assert!(output.stdout == bytes(0..500_000), "only samples: {}", output.stdout.len());
    let report: Value = serde_json::from_str(&errors(&output)).expect("the report");
    assert_eq!((&report["frames"], &report["framed"]), (&500_000.into(), &false.into()));
    assert_eq!(report["loss_known"], false);
    drop(sender.join().expect("no panic"));
}

#[test]
fn a_reader_that_closes_has_an_exit_code() {
    for report in [&["--json"][..], &[]] {
        let arguments = [&["-", "--raw", "--frame-bytes", "8", "--to", "-"][..], report].concat();
        let mut child = start(&arguments, Stdio::piped(), Stdio::piped());
        let mut input = child.stdin.take().expect("a pipe");
        let writer = spawn(move || {
            for at in (0..u64::MAX).step_by(80_000) {
                if input.write_all(&bytes(at..at + 80_000)).is_err() {
                    return;
                }
            }
        });
        let mut some = vec![0; 300_000];
        child.stdout.take().expect("a pipe").read_exact(&mut some).expect("read");
        assert!(some == bytes(0..300_000));
        let output = child.wait_with_output().expect("its end");
        writer.join().expect("no panic");
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(141), "{said}");
        assert!(said.contains("standard output: cannot write"), "{said}");
        if report.is_empty() {
            assert!(said.contains("moved  ") || said.contains("moved "), "{said}");
        } else {
            let json = said.split("dmabuf-dio: ").next().expect("a report");
            let report: Value = serde_json::from_str(json).expect("JSON");
            assert!(report["bytes"].as_u64() >= Some(300_000 / 8 * 8), "{report}");
        }
    }
}

/// Whenever a process that writes to a pipe is killed, the reader has whole frames from the start.
#[test]
fn a_killed_writer_leaves_whole_frames_in_the_pipe() {
    let (mut seed, mut most) = (std::process::id(), 0);
    for (frame, block) in
        [(8, "65536"), (8, "8000"), (6, "60000"), (24, "1200000"), (1000, "20000")]
    {
        for _ in 0..8 {
            seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            let delay = Duration::from_micros(u64::from(seed >> 8) % 30_000);
            let size = frame.to_string();
            let arguments =
                ["-", "--raw", "--frame-bytes", &size, "--block", block, "--to", "-", "--quiet"];
            let mut child = start(&arguments, Stdio::piped(), Stdio::piped());
            let mut input = child.stdin.take().expect("a pipe");
            let writer = spawn(move || {
                for at in (0..u64::MAX).step_by(60_000) {
                    if input.write_all(&bytes(at..at + 60_000)).is_err() {
                        return;
                    }
                }
            });
            let mut output = child.stdout.take().expect("a pipe");
            let (begun, has_begun) = std::sync::mpsc::channel();
            let reader = spawn(move || {
                let (mut all, mut piece) = (Vec::new(), [0; 5000]);
                while let Ok(got @ 1..) = output.read(&mut piece) {
                    all.extend_from_slice(&piece[..got]);
                    let _ = begun.send(());
                }
                all
            });
            // Machines differ in how long it takes to begin.
            has_begun.recv_timeout(Duration::from_secs(60)).expect("it writes");
            sleep(delay);
            child.kill().expect("killed");
            child.wait().expect("its end");
            writer.join().expect("no panic");
            let got = reader.join().expect("no panic");
            assert_eq!(got.len() % frame, 0, "frames of {frame} bytes: {}", got.len());
            assert!(got == bytes(0..got.len() as u64), "frames of {frame} bytes");
            most = most.max(got.len());
        }
    }
    println!("{most} bytes at most");
    assert!(most > 100_000, "it never got to write: {most}");
}

#[test]
fn what_cannot_be_received() {
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, "theirs").expect("written");
    let file = file.to_str().expect("text");
    let says = |code, arguments: &[&str], what: &str| {
        let output =
            start(arguments, Stdio::null(), Stdio::null()).wait_with_output().expect("end");
        let said = errors(&output);
        assert!(output.status.code() == Some(code) && said.contains(what), "{code}: {said}");
    };
    says(2, &[file, "--to", "none"], "is a file");
    says(2, &["-", "--to", file], "--force");
    says(2, &["udp://host:1", "--to", "none"], "tcp-listen://");
    says(2, &["-", "--to", "none", "--frame-bytes", "8"], "--raw");
    says(2, &["-", "--raw", "--to", "none", "--frame-bytes", "0"], "--frame-bytes");
    says(2, &["-", "--raw", "--to", "none", "--frame-bytes", "6", "--block", "16"], "multiple");
    says(1, &["-", "--to", "none"], "closed before its first sample");
    says(1, &["tcp://127.0.0.1:1", "--to", "none"], "cannot connect");
    says(1, &["unix:/no/such", "--to", "none"], "cannot connect");
    says(1, &["unix-listen:/no/such/folder/x", "--to", "none"], "cannot listen");
    assert_eq!(fs::read_to_string(file).expect("read"), "theirs");
    // A web server.
    let mut child = start(&["-", "--to", "none"], Stdio::piped(), Stdio::null());
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("written");
    drop(input);
    let output = child.wait_with_output().expect("its end");
    assert!(errors(&output).contains("--framed"), "{}", errors(&output));
}

/// Ctrl-C ends the wait for a peer, and a stream in order.
#[test]
fn ctrl_c_ends_it() {
    let folder = folder();
    let data = folder.path().join("samples.bin");
    let to = data.to_str().expect("text");
    let from = format!("unix-listen:{}", folder.path().join("socket").display());
    let interrupt = |child: &Child| {
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().expect("kill").success());
    };
    let child = start(&[&from, "--to", to], Stdio::null(), Stdio::null());
    sleep(Duration::from_millis(500));
    interrupt(&child);
    let output = child.wait_with_output().expect("its end");
    let said = errors(&output);
    assert!(output.status.code() == Some(1) && said.contains("interrupted"), "{said}");
    assert!(!data.exists() && !folder.path().join("socket").exists());

    let child = start(&[&from, "--raw", "--to", to], Stdio::null(), Stdio::null());
    let mut peer = connected(|| UnixStream::connect(folder.path().join("socket")));
    peer.write_all(&bytes(0..1000)).expect("written");
    sleep(Duration::from_millis(700));
    interrupt(&child);
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success(), "{}", errors(&output));
    assert!(fs::read(&data).expect("kept") == bytes(0..1000));
}
