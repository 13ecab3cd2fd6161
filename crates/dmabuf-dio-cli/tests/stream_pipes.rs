// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio capture` and `replay` with other programs: pipes, FIFOs and sockets, with the simulated
//! devices of `kernel/sim/iio_stream`, if they are loaded.

mod common;

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Output, Stdio};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use common::iio::{FRAME, Setup, number, numbered, set, signal, start};
use common::{connected, program, within_a_minute};
use serde_json::Value;

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Fails unless these are frames 0, 1, 2, ..., all of them whole. Returns their number.
#[track_caller]
fn count(bytes: &[u8]) -> usize {
    assert_eq!(bytes.len() % FRAME, 0, "a frame is cut");
    for (number, frame) in (0..).zip(bytes.chunks_exact(FRAME)) {
        assert_eq!(u64::from_le_bytes(frame.try_into().expect("eight bytes")), number);
    }
    bytes.len() / FRAME
}

/// The gaps in frames that have numbers: how many are missing.
fn missing(bytes: &[u8]) -> u64 {
    let (mut next, mut missing) = (0, 0);
    for frame in bytes.chunks_exact(FRAME) {
        let number = u64::from_le_bytes(frame.try_into().expect("eight bytes"));
        assert!(number >= next);
        missing += number - next;
        next = number + 1;
    }
    missing
}

fn read_all(mut from: impl std::io::Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("read");
        bytes
    })
}

/// The report among the messages on standard error.
#[track_caller]
fn report_in(said: &str) -> Value {
    let begin = said.find('{').unwrap_or_else(|| panic!("no report: {said}"));
    let mut values = serde_json::Deserializer::from_str(&said[begin..]).into_iter();
    values.next().expect("a report").unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Waits until a command says that it waits for its other end.
fn until_it_waits(child: &mut Child) {
    let errors = child.stderr.as_mut().expect("piped");
    let (mut said, mut byte) = (String::new(), [0]);
    while !said.contains("waiting for") || !said.ends_with('\n') {
        assert_eq!(errors.read(&mut byte).expect("read"), 1, "it does not wait: {said}");
        said.push(byte[0].into());
    }
}

fn fifo(path: &str) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
}

#[test]
fn standard_output_has_samples_and_nothing_else() {
    let Some(setup) = Setup::get() else { return };
    let report = setup.path("report.json");
    for to in ["-", "/dev/stdout"] {
        let arguments =
            ["capture", "stream-adc", "--rate", "1M", "--samples", "200k", "--to", to, "--json"];
        let output = start(&[&arguments[..], &["--report", &report]].concat());
        let output = output.wait_with_output().expect("its end");
        let said = errors(&output);
        assert!(output.status.success(), "{said}");
        assert_eq!(count(&output.stdout), 200_000, "{to}");
        let summary: Value = serde_json::from_str(&said).expect("only the report");
        assert_eq!((&summary["frames"], &summary["other"]), (&200_000.into(), &"-".into()));
        assert_eq!(summary["description"], Value::Null);
        let written = fs::read_to_string(&report).expect("a report");
        assert_eq!(serde_json::from_str::<Value>(&written).expect("JSON"), summary);
    }
    // Through a shell, into a file that it opened, with a report for people.
    let (data, script) =
        (setup.path("x"), "\"$0\" capture stream-adc --samples 100k --to - > \"$1\"");
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_dmabuf-dio"), &data])
        .output()
        .expect("sh");
    assert!(output.status.success() && output.stdout.is_empty(), "{}", errors(&output));
    assert!(errors(&output).contains("100000 frames"), "{}", errors(&output));
    assert_eq!(count(&fs::read(&data).expect("the file")), 100_000);
}

#[test]
fn a_program_that_reads_some_ends_the_capture() {
    let Some(_setup) = Setup::get() else { return };
    let arguments =
        ["capture", "stream-adc", "--rate", "1M", "--block", "64K", "--to", "-", "--json"];
    let mut child = start(&arguments);
    let mut some = vec![0; 1_000_000 * FRAME / 4];
    child.stdout.take().expect("a pipe").read_exact(&mut some).expect("read");
    assert_eq!(count(&some), 250_000);
    let output = child.wait_with_output().expect("its end");
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(141), "{said}");
    let summary = report_in(&said);
    assert!(summary["frames"].as_u64() >= Some(250_000), "{summary}");
    assert_eq!(summary["complete"], false);
    assert!(summary["error"].as_str().is_some_and(|error| error.contains("standard output")));
    // The device is free again.
    let again = ["capture", "stream-adc", "--samples", "1000", "--to", "none", "--quiet"];
    assert!(start(&again).wait_with_output().expect("its end").status.success());
}

/// A reader that takes its time costs nothing, or what the report tells.
#[test]
fn a_slow_reader_of_a_pipe() {
    let Some(_setup) = Setup::get() else { return };
    for (more, lossy) in [(&[][..], false), (&["--blocks", "2", "--block", "64K"], true)] {
        let arguments = ["capture", "stream-adc", "--rate", "200k", "--seconds", "3", "--to", "-"];
        let json = ["--json", "--max-loss", "100%"];
        let mut child = start(&[&arguments[..], &json, more].concat());
        sleep(Duration::from_millis(1500));
        let bytes = read_all(child.stdout.take().expect("a pipe")).join().expect("no panic");
        let output = child.wait_with_output().expect("its end");
        assert!(output.status.success(), "{}", errors(&output));
        let summary = report_in(&errors(&output));
        let lost = summary["lost_frames"].as_u64().expect("counted");
        assert_eq!(summary["frames"], bytes.len() / FRAME);
        assert_eq!(bytes.len() as u64 / FRAME as u64 + lost, 600_000);
        assert!(missing(&bytes) <= lost && lossy == (lost > 0), "{lost}: {summary}");
    }
}

#[test]
fn a_capture_waits_for_the_reader_of_a_fifo() {
    let Some(setup) = Setup::get() else { return };
    let path = setup.path("fifo");
    fifo(&path);
    let arguments = ["capture", "stream-adc", "--rate", "1M", "--samples", "100k", "--to", &path];
    let mut child = start(&[&arguments[..], &["--json"]].concat());
    until_it_waits(&mut child);
    let bytes = read_all(File::open(&path).expect("open")).join().expect("no panic");
    assert_eq!(count(&bytes), 100_000);
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success(), "{}", errors(&output));
    // It did not start before the reader was there, and its report is on standard output.
    let summary: Value = serde_json::from_slice(&output.stdout).expect("the report");
    assert_eq!((&summary["lost_frames"], &summary["other"]), (&0.into(), &path.as_str().into()));

    let mut child = start(&arguments);
    until_it_waits(&mut child);
    signal(&child, "-INT");
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    assert!(errors(&output).contains("interrupted"), "{}", errors(&output));
}

/// Whenever a capture is killed, the reader of its pipe has whole frames from the start.
#[test]
fn a_killed_capture_leaves_a_prefix_in_the_pipe() {
    let Some(_setup) = Setup::get() else { return };
    let (mut seed, mut most) = (std::process::id(), 0);
    for block in ["16K", "64K", "1M", "8000"] {
        for _ in 0..5 {
            seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            let arguments = ["capture", "stream-adc", "--rate", "0", "--to", "-", "--block", block];
            let mut child = start(&[&arguments[..], &["--blocks", "8"]].concat());
            let reader = read_all(child.stdout.take().expect("a pipe"));
            sleep(Duration::from_millis(200 + u64::from(seed >> 16) % 300));
            signal(&child, "-KILL");
            child.wait().expect("its end");
            let bytes = reader.join().expect("no panic");
            assert_eq!(bytes.len() % FRAME, 0, "a frame is cut");
            let lost = missing(&bytes);
            println!("blocks of {block}: {} frames, {lost} missing", bytes.len() / FRAME);
            most = most.max(bytes.len());
        }
    }
    assert!(most > 0, "it never got to write");
}

#[test]
fn both_sockets_both_ways() {
    let Some(setup) = Setup::get() else { return };
    let path = setup.path("socket");
    let capture = |to: &str| {
        start(&["capture", "stream-adc", "--rate", "1M", "--samples", "100k", "--to", to, "--json"])
    };
    let check = |child: Child, reader: JoinHandle<Vec<u8>>| {
        let output = child.wait_with_output().expect("its end");
        assert!(output.status.success(), "{}", errors(&output));
        assert_eq!(count(&reader.join().expect("no panic")), 100_000);
    };
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let place = free.local_addr().expect("its number");
    let child = capture(&format!("tcp://{place}"));
    check(child, read_all(free.accept().expect("a connection").0));
    drop(free);
    let child = capture(&format!("tcp-listen://{place}"));
    check(child, read_all(connected(|| TcpStream::connect(place))));
    let child = capture(&format!("tcp-listen://:{}", place.port()));
    check(child, read_all(connected(|| TcpStream::connect(place))));
    let listener = UnixListener::bind(&path).expect("bound");
    let child = capture(&format!("unix:{path}"));
    check(child, read_all(listener.accept().expect("a connection").0));
    // A socket that nobody uses any more is replaced.
    drop(listener);
    let child = capture(&format!("unix-listen:{path}"));
    check(child, read_all(connected(|| UnixStream::connect(&path))));
}

/// What the sender loses is in the receiver's report and description.
#[test]
fn a_remote_receiver_learns_of_gaps() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.sigmf-data");
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let place = free.local_addr().expect("its number");
    drop(free);
    let socket = setup.path("socket");
    let ways = [
        (format!("tcp://{place}"), format!("tcp-listen://{place}")),
        (format!("tcp-listen://{place}"), format!("tcp://{place}")),
        (format!("unix-listen:{socket}"), format!("unix:{socket}")),
    ];
    for (to, from) in ways {
        let _ = fs::remove_file(&data);
        let capture = || {
            let arguments =
                ["capture", "stream-adc", "--rate", "100k", "--seconds", "6", "--framed"];
            start(&[&arguments[..], &["--to", &to, "--max-loss", "100%", "--json"]].concat())
        };
        let receive =
            || start(&["receive", &from, "--to", &data, "--force", "--max-loss", "100%", "--json"]);
        // Who listens comes first.
        let (sender, receiver) = if from.contains("listen") {
            let mut receiver = receive();
            until_it_waits(&mut receiver);
            (capture(), receiver)
        } else {
            let mut sender = capture();
            until_it_waits(&mut sender);
            (sender, receive())
        };
        // Once samples are there.
        within_a_minute("nothing arrives", || {
            fs::metadata(&data).is_ok_and(|facts| facts.len() > 0)
        });
        set("stream-adc", "inject_loss", "1234");
        let sender = sender.wait_with_output().expect("its end");
        assert!(sender.status.success(), "{}", errors(&sender));
        let receiver = receiver.wait_with_output().expect("its end");
        assert!(receiver.status.success(), "{}", errors(&receiver));
        let sent: Value = serde_json::from_slice(&sender.stdout).expect("JSON");
        let got: Value = serde_json::from_slice(&receiver.stdout).expect("JSON");
        // A busy machine may lose some itself.
        let lost = sent["lost_frames"].as_u64().expect("counted");
        let frames = sent["frames"].as_u64().expect("a number");
        assert!(lost >= 1234 && frames + lost == 600_000, "{lost}: {sent}");
        for key in ["frames", "bytes", "gaps", "lost_frames", "rate", "complete", "loss_known"] {
            assert_eq!(sent[key], got[key], "{key}, {from}");
        }
        println!("{} / {}, {}", sent["sink"], got["source"], got["sink"]);
        let bytes = fs::read(&data).expect("the file");
        let missing = missing(&bytes);
        assert!(bytes.len() == frames as usize * FRAME && (1234..=lost).contains(&missing));
        let meta = fs::read_to_string(setup.path("samples.sigmf-meta")).expect("described");
        let meta: Value = serde_json::from_str(&meta).expect("JSON");
        let (global, segments) = (&meta["global"], &meta["captures"]);
        assert_eq!(
            (&global["core:datatype"], &global["core:hw"]),
            (&"ru16_le".into(), &"stream-adc".into())
        );
        let last = segments.as_array().and_then(|all| all.last()).expect("segments");
        let of = |key: &str| last[key].as_u64().expect(key);
        let known = of("core:global_index") - of("core:sample_start");
        assert!((missing..=lost).contains(&known), "{known}: {meta}");
    }
}

#[test]
fn a_receiver_notices_that_the_sender_was_killed() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    let socket = setup.path("socket");
    let from = format!("unix-listen:{socket}");
    let mut receiver = start(&["receive", &from, "--to", &data, "--json"]);
    until_it_waits(&mut receiver);
    let to = format!("unix:{socket}");
    let mut sender = start(&["capture", "stream-adc", "--rate", "1M", "--to", &to, "--framed"]);
    within_a_minute("nothing arrives", || fs::metadata(&data).is_ok_and(|facts| facts.len() > 0));
    signal(&sender, "-KILL");
    sender.wait().expect("its end");
    let output = receiver.wait_with_output().expect("its end");
    let said = errors(&output);
    assert!(output.status.code() == Some(1) && said.contains("before the stream's end"), "{said}");
    let got = count(&fs::read(&data).expect("kept"));
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(got > 0 && summary["frames"] == got, "{summary}");
}

#[test]
fn a_replay_of_another_programs_samples() {
    let Some(setup) = Setup::get() else { return };
    let (data, path) = (setup.path("samples.bin"), setup.path("fifo"));
    let frames = 100_000;
    numbered(&data, frames);
    fifo(&path);
    let socket = setup.path("socket");
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let place = free.local_addr().expect("its number");
    drop(free);
    let all = fs::read(&data).expect("the samples");
    let ways = ["-", &path, &format!("tcp-listen://{place}"), &format!("unix-listen:{socket}")];
    for from in ways {
        let mut command = program();
        let to = ["replay", from, "--to", "stream-dac", "--rate", "1M", "--json"];
        command.args(to).args(["--max-loss", "100%"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let feed: Box<dyn std::io::Write> = match from {
            "-" => Box::new(child.stdin.take().expect("a pipe")),
            tcp if tcp.starts_with("tcp") => Box::new(connected(|| TcpStream::connect(place))),
            unix if unix.starts_with("unix") => {
                Box::new(connected(|| UnixStream::connect(&socket)))
            }
            fifo => Box::new(File::options().write(true).open(fifo).expect("open")),
        };
        let mut feed = feed;
        feed.write_all(&all).expect("written");
        drop(feed);
        let output = child.wait_with_output().expect("its end");
        assert!(output.status.success(), "{from}: {}", errors(&output));
        let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((&summary["frames"], &summary["complete"]), (&frames.into(), &true.into()));
        assert_eq!(number("stream-dac", "moved_frames"), frames, "{from}");
        assert_eq!(number("stream-dac", "wrong_frames"), 0, "{from}");
        assert_eq!(summary["ring"]["blocks_at_start"], summary["ring"]["blocks_at_end"]);
        println!("{from}: {}", summary["source"]);
    }
}

/// A capture on one side, a replay on the other.
#[test]
fn a_capture_is_replayed_elsewhere() {
    let Some(setup) = Setup::get() else { return };
    let socket = setup.path("socket");
    let double = &["--format", "f64_be"][..];
    // The framing tells the format.
    for (framed, sent, played) in [
        (&["--framed"][..], &[][..], &[][..]),
        (&[], &[], &[]),
        (&["--framed"], double, &[]),
        (&[], double, double),
    ] {
        let from = format!("unix-listen:{socket}");
        let (to, rate) = (format!("unix:{socket}"), ["--rate", "1M", "--max-loss", "100%"]);
        let replay = ["replay", &from, "--to", "stream-dac", "--json"];
        let mut replay = start(&[&replay[..], framed, &rate, played].concat());
        until_it_waits(&mut replay);
        let capture = ["capture", "stream-adc", "--samples", "300k", "--to", &to];
        let capture = start(&[&capture[..], framed, &rate, sent].concat());
        let output = capture.wait_with_output().expect("its end");
        assert!(output.status.success(), "{}", errors(&output));
        let output = replay.wait_with_output().expect("its end");
        assert!(output.status.success(), "{}", errors(&output));
        let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(
            (&summary["frames"], number("stream-dac", "wrong_frames")),
            (&300_000.into(), 0)
        );
        assert_eq!(summary["conversion"].is_null(), sent.is_empty());
    }
    // Samples of other channels.
    let from = format!("unix-listen:{socket}");
    let two = ["--channels", "voltage0,voltage1"];
    let replay = [&["replay", &from, "--to", "stream-dac", "--framed"][..], &two].concat();
    let mut replay = start(&replay);
    until_it_waits(&mut replay);
    let to = format!("unix:{socket}");
    let capture = start(&["capture", "stream-adc", "--samples", "1M", "--to", &to, "--framed"]);
    let output = replay.wait_with_output().expect("its end");
    let said = errors(&output);
    assert!(output.status.code() == Some(2) && said.contains("ru16_le x 4"), "{said}");
    drop(capture.wait_with_output());
}

#[test]
fn what_cannot_be_piped() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    let says = |code, arguments: &[&str], what: &str| {
        let output = start(arguments).wait_with_output().expect("its end");
        let said = errors(&output);
        assert!(output.status.code() == Some(code) && said.contains(what), "{said}");
    };
    says(2, &["capture", "stream-adc", "--to", &data, "--framed"], "leave out --framed");
    says(2, &["capture", "stream-adc", "--to", "none", "--framed"], "leave out --framed");
    says(2, &["replay", "-", "--to", "stream-dac", "--cyclic"], "cannot be repeated");
    says(2, &["replay", "tcp:x", "--to", "stream-dac"], "tcp://HOST:PORT");
    numbered(&data, 10);
    says(2, &["replay", &data, "--to", "stream-dac", "--framed"], "leave out --framed");
    says(1, &["replay", "-", "--to", "stream-dac", "--framed"], "before its first sample");
    assert!(fs::metadata(&data).expect("kept").len() == 80);
}
