// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio capture` and `replay` with other programs: pipes, FIFOs and sockets, with the simulated
//! devices of `kernel/sim/iio_stream`, if they are loaded.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Output, Stdio};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use serde_json::Value;

use crate::common::iio::{
    FRAME, Setup, counted, dac, missing, number, numbered, numbers, signal, start,
    until_it_is_enabled,
};
use crate::common::{connected, program};

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
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
fn standard_output_has_only_samples() {
    let Some(setup) = Setup::get() else { return };
    let report = setup.path("report.json");
    for to in ["-", "/dev/stdout"] {
        let output = start(format!(
            "capture stream-adc --rate 1M --samples 200k --to {to} --json --report {report}"
        ));
        let output = output.wait_with_output().expect("its end");
        let said = errors(&output);
        assert!(output.status.success(), "{said}");
        assert_eq!(counted(0, &output.stdout), 200_000, "{to}");
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
    assert_eq!(counted(0, &fs::read(&data).expect("the file")), 100_000);
}

#[test]
fn reader_that_exits_ends_the_capture() {
    let Some(_setup) = Setup::get() else { return };
    let arguments = "capture stream-adc --rate 1M --block-size 64K --to - --json";
    let mut child = start(arguments);
    let mut some = vec![0; 1_000_000 * FRAME / 4];
    child.stdout.take().expect("a pipe").read_exact(&mut some).expect("read");
    assert_eq!(counted(0, &some), 250_000);
    let output = child.wait_with_output().expect("its end");
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(141), "{said}");
    let summary = report_in(&said);
    assert!(summary["frames"].as_u64() >= Some(250_000), "{summary}");
    assert_eq!(summary["complete"], false);
    assert!(summary["error"].as_str().is_some_and(|error| error.contains("standard output")));
    // The device is free again.
    let again = "capture stream-adc --samples 1000 --to none --quiet";
    assert!(start(again).wait_with_output().expect("its end").status.success());
}

/// A reader that takes its time costs nothing, or what the report tells.
#[test]
fn slow_pipe_reader_loses_only_reported_frames() {
    let Some(_setup) = Setup::get() else { return };
    for (more, lossy) in [("", false), ("--blocks 2 --block-size 64K", true)] {
        let mut child = start(format!(
            "capture stream-adc --rate 200k --seconds 2 --to - --json --max-loss 100% {more}"
        ));
        until_it_is_enabled("stream-adc");
        sleep(Duration::from_secs(1));
        let bytes = read_all(child.stdout.take().expect("a pipe")).join().expect("no panic");
        let output = child.wait_with_output().expect("its end");
        assert!(output.status.success(), "{}", errors(&output));
        let summary = report_in(&errors(&output));
        let lost = summary["lost_frames"].as_u64().expect("counted");
        assert_eq!(summary["frames"], bytes.len() / FRAME);
        assert_eq!(bytes.len() as u64 / FRAME as u64 + lost, 400_000);
        assert!(missing(&numbers(&bytes)) <= lost && lossy == (lost > 0), "{lost}: {summary}");
    }
}

#[test]
fn a_capture_waits_for_the_reader_of_a_fifo() {
    let Some(setup) = Setup::get() else { return };
    let path = setup.path("fifo");
    fifo(&path);
    let arguments = format!("capture stream-adc --rate 1M --samples 100k --to {path}");
    let mut child = start(format!("{arguments} --json"));
    until_it_waits(&mut child);
    let bytes = read_all(File::open(&path).expect("open")).join().expect("no panic");
    assert_eq!(counted(0, &bytes), 100_000);
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
    // Returns the bytes that the reader got before the capture was killed.
    let kill_after = |block: &str, milliseconds: u64| {
        let mut child =
            start(format!("capture stream-adc --rate 0 --to - --block-size {block} --blocks 8"));
        let reader = read_all(child.stdout.take().expect("a pipe"));
        sleep(Duration::from_millis(milliseconds));
        signal(&child, "-KILL");
        child.wait().expect("its end");
        let bytes = reader.join().expect("no panic");
        assert_eq!(bytes.len() % FRAME, 0, "a frame is cut");
        let lost = missing(&numbers(&bytes));
        println!("blocks of {block}: {} frames, {lost} missing", bytes.len() / FRAME);
        bytes.len()
    };
    let (mut seed, mut most) = (std::process::id(), 0);
    for block in ["16K", "64K", "1M", "8000"] {
        for _ in 0..2 {
            seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            most = most.max(kill_after(block, 200 + u64::from(seed >> 16) % 300));
        }
    }
    // A busy machine may need longer to begin.
    let mut milliseconds = 500;
    while most == 0 && milliseconds < 60_000 {
        milliseconds *= 2;
        most = kill_after("64K", milliseconds);
    }
    assert!(most > 0, "it never got to write");
}

#[test]
fn unix_and_tcp_sockets_work_both_ways() {
    let Some(setup) = Setup::get() else { return };
    let path = setup.path("socket");
    let capture =
        |to: &str| start(format!("capture stream-adc --rate 1M --samples 100k --to {to} --json"));
    let check = |child: Child, reader: JoinHandle<Vec<u8>>| {
        let output = child.wait_with_output().expect("its end");
        assert!(output.status.success(), "{}", errors(&output));
        assert_eq!(counted(0, &reader.join().expect("no panic")), 100_000);
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
    // A socket without a listener is replaced.
    drop(listener);
    let child = capture(&format!("unix-listen:{path}"));
    check(child, read_all(connected(|| UnixStream::connect(&path))));
}

#[test]
fn replay_reads_samples_from_another_program() {
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
        let to = format!("replay {from} --to stream-dac --rate 1M --json --max-loss 100%");
        command.args(to.split(' '));
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
        assert_eq!(dac(), (frames, 0), "{from}");
        assert_eq!(summary["ring"]["blocks_at_start"], summary["ring"]["blocks_at_end"]);
        println!("{from}: {}", summary["source"]);
    }
}

/// A capture on one side, a replay on the other.
#[test]
fn captured_stream_is_replayed_over_a_socket() {
    let Some(setup) = Setup::get() else { return };
    let socket = setup.path("socket");
    let double = "--format f64_be";
    for format in ["", double] {
        let (to, rate) = (format!("unix:{socket}"), "--rate 1M --max-loss 100%");
        let replay = format!("replay unix-listen:{socket} --to stream-dac --json");
        let mut replay = start(format!("{replay} {rate} {format}"));
        until_it_waits(&mut replay);
        let capture = format!("capture stream-adc --samples 300k --to {to}");
        let capture = start(format!("{capture} {rate} {format}"));
        let output = capture.wait_with_output().expect("its end");
        assert!(output.status.success(), "{}", errors(&output));
        let output = replay.wait_with_output().expect("its end");
        assert!(output.status.success(), "{}", errors(&output));
        let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(
            (&summary["frames"], number("stream-dac", "wrong_frames")),
            (&300_000.into(), 0)
        );
        assert_eq!(summary["conversion"].is_null(), format.is_empty());
    }
}

#[test]
fn unsupported_pipe_arguments_are_refused() {
    let Some(_setup) = Setup::get() else { return };
    let says = |code, arguments: &str, what: &str| {
        let output = start(arguments).wait_with_output().expect("its end");
        let said = errors(&output);
        assert!(output.status.code() == Some(code) && said.contains(what), "{said}");
    };
    says(2, "replay - --to stream-dac --cyclic", "cannot be repeated");
    says(2, "replay tcp:x --to stream-dac", "tcp://HOST:PORT");
}
