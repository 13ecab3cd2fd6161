// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the time, losses and memory of `dmabuf-dio capture` with the counts of the simulated
//! ADC.

use std::fs;
use std::io::Read as _;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::common::iio::{
    FRAME, Setup, counted, end_of, numbers, report, set, signal, start, until_it_moves,
};

/// Frames that the device has sampled: those that arrived and those that were lost.
fn of_the_device(summary: &Value) -> u64 {
    let number = |name: &str| summary[name].as_u64().expect(name);
    number("frames") + number("lost_frames")
}

/// How many frames are missing in a file, with those before the number `end`.
fn missing(path: &str, end: u64) -> u64 {
    let numbers = numbers(&fs::read(path).expect("a file"));
    let last = numbers.last().map_or(0, |last| last + 1);
    crate::common::iio::missing(&numbers) + end.checked_sub(last).expect("none behind the end")
}

#[test]
fn seconds_count_device_time() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    // With `sparse` the simulated device does not limit the rate. The file system does.
    for (rate, frames, sparse) in [("20M", 5_000_000, "0"), ("300M", 75_000_000, "1")] {
        set("stream-adc", "sparse", sparse);
        let arguments = format!("capture stream-adc --rate {rate} --to {data} --force");
        let (code, summary) = report(format!(
            "{arguments} --block-size 64K --blocks 2 --seconds 0.25 --max-loss 100%"
        ));
        set("stream-adc", "sparse", "0");
        println!("{rate}: {} lost", summary["lost_frames"]);
        assert!(summary["lost_frames"].as_u64() > Some(0), "the machine is too fast for this test");
        assert_eq!(of_the_device(&summary), frames, "{rate}");
        assert_eq!((code, &summary["complete"]), (0, &true.into()), "{rate}");
        assert_eq!(summary["asked_frames"], frames);
        if sparse == "0" {
            assert_eq!(summary["lost_frames"], missing(&data, frames));
        }
    }
}

#[test]
fn exceeding_max_loss_fails_the_capture() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    let lose = |more: &str| {
        let child = start(format!(
            "capture stream-adc --rate 100k --seconds 1 --json --to {data} --force {more}"
        ));
        until_it_moves("stream-adc");
        set("stream-adc", "inject_loss", "1000");
        end_of(child)
    };
    // 1000 of 100,000 frames.
    for (more, good) in [
        ("", false),
        ("--max-loss 999", false),
        ("--max-loss 0.99%", false),
        ("--max-loss 1k", true),
        ("--max-loss 1%", true),
    ] {
        let (code, summary) = lose(more);
        assert_eq!((code, &summary["lost_frames"]), (i32::from(!good), &1000.into()), "{more:?}");
        assert_eq!(of_the_device(&summary), 100_000);
        let error = summary["error"].as_str();
        assert_eq!(error.is_none(), good, "{error:?}");
        assert!(error.is_none_or(|error| error.contains("--max-loss")), "{error:?}");
    }
}

#[test]
fn incomplete_capture_fails() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    for limit in ["--seconds 60", "--samples 1G"] {
        let child =
            start(format!("capture stream-adc --rate 1M --json --to {data} --force {limit}"));
        until_it_moves("stream-adc");
        thread::sleep(Duration::from_millis(700));
        signal(&child, "-INT");
        let (code, summary) = end_of(child);
        assert_eq!((code, &summary["complete"]), (1, &false.into()), "{summary}");
        let got = summary["frames"].as_u64().expect("a number");
        assert!(got > 0 && fs::metadata(&data).expect("kept").len() == got * FRAME as u64);
        let error = summary["error"].as_str().expect("told");
        assert!(error.contains(&got.to_string()), "{error}");
    }
}

/// A receiver that takes nothing for 5 of 6 s.
fn stalled(rate: &str, more: &str) -> (Value, Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("tcp://{}", listener.local_addr().expect("its number"));
    let receiver = thread::spawn(move || {
        let mut stream = listener.accept().expect("a connection").0;
        thread::sleep(Duration::from_secs(5));
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("all of it");
        bytes
    });
    let summary =
        report(format!("capture stream-adc --rate {rate} --seconds 6 --to {address} {more}")).1;
    (summary, receiver.join().expect("the receiver"))
}

#[test]
fn ring_is_sized_by_time_and_grows() {
    let Some(_setup) = Setup::get() else { return };
    let (summary, bytes) = stalled("500k", "");
    assert_eq!((&summary["lost_frames"], &summary["complete"]), (&0.into(), &true.into()));
    assert_eq!(counted(0, &bytes), 3_000_000);
    let ring = &summary["ring"];
    let of = |name: &str| ring[name].as_u64().expect(name);
    // Two seconds at first, as little more as was necessary at the end.
    let at_start = of("blocks_at_start") * of("block_bytes");
    assert!((8_000_000..9_000_000).contains(&at_start), "{ring}");
    let at_end = of("blocks_at_end") * of("block_bytes");
    assert!(at_end > 10_000_000 && of("blocks_at_end") <= of("most_blocks"), "{ring}");
    let seconds = summary["ring_seconds"]["at_end"].as_f64().expect("a rate");
    assert!((seconds - at_end as f64 / 4e6).abs() < 0.01, "{ring}");
}

/// Blocks that are added while requests are in flight get the right samples.
#[test]
fn growing_ring_keeps_frame_order() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    for block in ["64K", "256K"] {
        let ring = format!("--ring 0.001 --max-ring 200M --block-size {block} --json");
        let all = format!(
            "capture stream-adc --rate 5M --seconds 2 --to {data} {ring} --force --max-loss 100%"
        );
        let child = start(&all);
        // The machine may be fast enough for two blocks, unless the process does not run.
        until_it_moves("stream-adc");
        thread::sleep(Duration::from_millis(100));
        signal(&child, "-STOP");
        thread::sleep(Duration::from_millis(200));
        signal(&child, "-CONT");
        let (code, summary) = end_of(child);
        assert_eq!((code, of_the_device(&summary)), (0, 10_000_000));
        assert_eq!(summary["lost_frames"], missing(&data, 10_000_000));
        assert_eq!(summary["ring"]["blocks_at_start"], 2);
        let at_end = summary["ring"]["blocks_at_end"].as_u64();
        println!("blocks of {block}: {at_end:?} at the end, {} lost", summary["lost_frames"]);
        assert!(at_end > Some(2), "{summary}");
    }
}

#[test]
fn ring_grows_up_to_its_limit() {
    let Some(_setup) = Setup::get() else { return };
    for (more, bytes) in [("--max-ring 40M --max-loss 100%", Some(40 << 20)), ("--blocks 4", None)]
    {
        let (summary, _) = stalled("2M", more);
        let ring = &summary["ring"];
        assert!(summary["lost_frames"].as_u64() > Some(0), "{ring}");
        let at_end = ring["blocks_at_end"].as_u64().expect("a number");
        let block = ring["block_bytes"].as_u64().expect("a number");
        let blocks = bytes.map_or(4, |bytes: u64| bytes / block);
        assert!(at_end <= blocks && ring["most_blocks"].as_u64() == Some(at_end), "{ring}");
    }
    let (code, summary) =
        report("capture stream-adc --to none --ring 0.25 --max-ring 1G --samples 1000 --rate 1M");
    // Blocks are whole pages, and so a little less than an eighth of a second.
    assert_eq!((code, &summary["ring"]["blocks_at_start"]), (0, &3.into()));
}
