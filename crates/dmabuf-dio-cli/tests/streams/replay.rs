// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the reports of `dmabuf-dio replay` with the counts of the simulated DAC.

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::common::eventually;
use crate::common::iio::{
    FRAME, Setup, dac, end_of, fails, number, numbered, report, set, signal, start, until_it_moves,
};

/// Sum of the frames in all reported gaps, each of which has to be an underrun.
fn told(summary: &Value) -> u64 {
    let gaps = summary["gaps"].as_array().expect("a list");
    let frames = |gap: &Value| {
        assert_eq!(gap["kind"], "underrun", "{gap}");
        assert!(gap["at"].as_u64() <= gap["to"].as_u64(), "{gap}");
        gap["frames"].as_u64().expect("counted")
    };
    gaps.iter().map(frames).sum()
}

/// The device has nothing to output between two blocks: the report has as many frames as the device
/// counts, and says where.
#[test]
fn underruns_are_reported_with_their_place() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    let count = 500_000;
    numbered(&data, count);
    for device in ["stream-dac", "stream-dac-fileio"] {
        let (code, summary) = report(format!(
            "replay {data} --to {device} --rate 100M --block-size 64K --blocks 2 --max-loss 100%"
        ));
        let lost = number(device, "lost_frames");
        assert_eq!((number(device, "wrong_frames"), &summary["frames"]), (0, &count.into()));
        assert!(lost > 0, "the machine is too fast for this test");
        assert_eq!((&summary["lost_frames"], told(&summary)), (&lost.into(), lost), "{device}");
        assert_eq!((code, &summary["loss_known"]), (0, &true.into()));
        let gaps = summary["gaps"].as_array().expect("a list");
        let within = |gap: &Value| gap["to"].as_u64().is_some_and(|to| to <= count * FRAME as u64);
        assert!(gaps.iter().all(within), "{gaps:?}");
        if device == "stream-dac" {
            // Dma-bufs tell the place to the block.
            let exact = |gap: &&Value| {
                gap["at"] == gap["to"] && gap["at"].as_u64().is_some_and(|at| at % (64 << 10) == 0)
            };
            assert!(gaps.iter().filter(exact).count() > 0, "{gaps:?}");
        }
    }
    // At a rate that the machine keeps up with, there are none, nor any after the last block.
    let slow = format!("replay {data} --to stream-dac --rate 1M --samples 200k");
    let (code, summary) = report(&slow);
    assert_eq!((&summary["lost_frames"], number("stream-dac", "lost_frames")), (&0.into(), 0));
    assert_eq!((code, told(&summary)), (0, 0));
}

#[test]
fn underruns_of_a_cyclic_block_are_reported() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    numbered(&data, 10_000);
    let child =
        start(format!("replay {data} --to stream-dac --cyclic --rate 1M --max-loss 100% --json"));
    until_it_moves("stream-dac");
    set("stream-dac", "inject_loss", "1234");
    thread::sleep(Duration::from_millis(300));
    signal(&child, "-INT");
    let (code, summary) = end_of(child);
    assert_eq!(number("stream-dac", "lost_frames"), 1234, "as set");
    assert_eq!((code, &summary["lost_frames"], told(&summary)), (0, &1234.into(), 1234));
    let cpu = summary["cpu_seconds"].as_f64().expect("measured");
    assert!(cpu > 0.0, "{summary}");
}

/// The DMA transfers multiples of 8 bytes: a frame of 2 bytes is repeated in whole transfers, and a
/// file without a frame is no success.
#[test]
fn a_cyclic_file_of_any_length_is_output() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    let words = format!("replay {data} --to stream-dac --channels voltage0 --rate 1M");
    let cyclic = format!("{words} --cyclic --json");
    let bytes: Vec<u8> = (0..1001_u16).flat_map(u16::to_le_bytes).collect();
    fs::write(&data, bytes).expect("written");
    let child = start(&cyclic);
    until_it_moves("stream-dac");
    eventually("it does not repeat", || number("stream-dac", "moved_frames") > 10_000);
    signal(&child, "-INT");
    let (code, summary) = end_of(child);
    let (moved, wrong) = dac();
    assert_eq!((code, &summary["bytes"]), (0, &(2 * moved).into()), "{summary}");
    // Only each jump back to the first frame is wrong.
    let jumps = moved / 1001 - 1..=moved / 1001;
    assert!(jumps.contains(&wrong), "{wrong} of {moved}");
    assert!(summary["source"].as_str().is_some_and(|text| text.contains("4 times")), "{summary}");

    fs::write(&data, b"").expect("written");
    for more in ["--cyclic --seconds 0.1", ""] {
        let said = fails(1, format!("{words} {more}"));
        assert!(said.contains("nothing was output"), "{said}");
    }
    let said = fails(1, "replay - --to stream-dac");
    assert!(said.contains("no frame was moved"), "{said}");
}

/// Signals interrupt the calls of `write()` at any moment: no frame is output twice or left out.
/// The kernel's `write()` may fail with a signal although it has written a part (docs/streams.md).
#[test]
fn interrupted_writes_output_every_frame_once() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    let count = 1_000_000;
    numbered(&data, count);
    let (mut wrong, mut runs) = (0, 0);
    for run in 0..8 {
        let mut child = start(format!(
            "replay {data} --to stream-dac-fileio --rate 20M --max-loss 100% --json"
        ));
        while child.try_wait().expect("its state").is_none() {
            if run % 2 == 0 {
                // A stopped process is interrupted, too, and goes on with the same call.
                signal(&child, "-STOP");
                signal(&child, "-CONT");
            }
            thread::sleep(Duration::from_millis(1));
        }
        let (code, summary) = end_of(child);
        assert_eq!((code, &summary["frames"]), (0, &count.into()));
        let twice = number("stream-dac-fileio", "wrong_frames");
        wrong += u32::from(twice > 0);
        runs += 1;
    }
    assert_eq!(wrong, 0, "of {runs} runs, so many output frames out of order");
}
