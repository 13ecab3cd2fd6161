// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio capture` that is refused or ends at once leaves the device, the files and the memory
//! as they were, and says so.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::common::eventually;
use crate::common::iio::{FRAME, Setup, end_of, fails, json, number, report, set, signal, start};

/// The blocks need more memory than is available, although each one would fit. No process is killed
/// for it.
#[test]
fn blocks_exceeding_memory_are_refused() {
    let Some(_setup) = Setup::get() else { return };
    let said =
        fails(1, "capture stream-adc --to none --blocks 1000 --block-size 16M --samples 1000");
    assert!(said.contains("not enough memory") && said.contains("fewer or smaller"), "{said}");
}

#[test]
fn loss_that_ends_the_capture_is_reported() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    for rate in ["30M", "100M"] {
        let arguments = format!("capture stream-adc --rate {rate} --to {data} --force");
        let (code, summary) =
            report(format!("{arguments} --block-size 64K --blocks 2 --overrun fail"));
        let error = summary["error"].as_str().expect("told");
        assert!(code == 1 && error.contains("EOVERFLOW"), "{summary}");
        assert!(summary["lost_frames"].as_u64() > Some(0), "{summary}");
        let gaps = summary["gaps"].as_array().expect("a list");
        // A block that was full when the loss was noticed may still follow it.
        let lost: u64 = gaps.iter().filter_map(|gap| gap["frames"].as_u64()).sum();
        assert_eq!(summary["lost_frames"], lost, "{summary}");
        let length = fs::metadata(&data).expect("a file").len();
        assert!(gaps.iter().all(|gap| gap["at"].as_u64() <= Some(length)), "{summary}");
        assert_eq!(summary["bytes"], length);
    }
}

#[test]
fn capture_without_disk_space_leaves_no_files() {
    let Some(setup) = Setup::get() else { return };
    let (data, meta) = (setup.path("samples.bin"), setup.path("samples.sigmf-meta"));
    // 80 TB.
    let long = format!("capture stream-adc --rate 10M --seconds 1000000 --to {data}");
    let said = fails(1, &long);
    assert!(said.contains("make room"), "{said}");
    assert!(!Path::new(&data).exists() && !Path::new(&meta).exists(), "{said}");
    // An existing recording stays.
    let short = format!("capture stream-adc --rate 1M --samples 1000 --to {data}");
    json(&short);
    let before = (fs::read(&data).expect("the samples"), fs::read(&meta).expect("described"));
    fails(1, format!("{long} --force"));
    assert!(before == (fs::read(&data).expect("kept"), fs::read(&meta).expect("kept")));
}

#[test]
fn refused_capture_keeps_the_rate() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    set("stream-adc", "sampling_frequency", "123456");
    let capture = |more: &str| {
        fails(1, format!("capture stream-adc --samples 1000 {more}"));
        assert_eq!(number("stream-adc", "sampling_frequency"), 123_456, "{more:?}");
    };
    capture(&format!("--rate 5G --to {data}"));
    capture("--rate 2M --to /no/such/folder/x");
    capture(&format!("--rate 2M --to {data} --blocks 4096 --block-size 1G"));
    capture("--rate 2M --to tcp://127.0.0.1:1");
    json(format!("capture stream-adc --samples 1000 --rate 2M --to {data}"));
    assert_eq!(number("stream-adc", "sampling_frequency"), 2_000_000, "as asked");

    set("stream-dac", "sampling_frequency", "123456");
    fails(1, format!("replay {data} --to stream-dac --rate 5G"));
    assert_eq!(number("stream-dac", "sampling_frequency"), 123_456);
}

#[test]
fn pairs_need_an_even_number_of_channels() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    let three = "--channels voltage0,voltage1,voltage2 --iq --samples 100";
    let said = fails(2, format!("capture stream-adc --to {data} {three}"));
    assert!(said.contains("--iq") && said.contains('3'), "{said}");
    assert!(!Path::new(&data).exists());
}

#[test]
fn interrupt_before_the_first_block_leaves_no_files() {
    let Some(setup) = Setup::get() else { return };
    let (data, meta) = (setup.path("samples.bin"), setup.path("samples.sigmf-meta"));
    let child = start(format!("capture stream-adc --rate 100k --block-size 8M --to {data} --json"));
    eventually("no description", || Path::new(&meta).exists());
    thread::sleep(Duration::from_millis(500));
    signal(&child, "-INT");
    let (code, summary) = end_of(child);
    let error = summary["error"].as_str().unwrap_or_default();
    assert!(code == 1 && error.contains("before the first block"), "exit code {code}: {summary}");
    assert_eq!(summary["complete"], false);
    assert!(!Path::new(&data).exists() && !Path::new(&meta).exists());
}

/// A killed capture cannot release the space that was allocated for it: the next one says how.
#[test]
fn space_left_by_a_killed_capture_is_reported() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    let arguments = format!("capture stream-adc --rate 1M --block-size 1M --to {data}");
    let mut child = start(&arguments);
    let length = || fs::metadata(&data).map_or(0, |facts| facts.len());
    eventually("the file does not grow", || length() >= 4 << 20);
    signal(&child, "-KILL");
    child.wait().expect("its end");
    let allocated = || fs::metadata(&data).expect("the file").blocks() * 512;
    let (length, before) = (length(), allocated());
    assert!(length > 0 && length % FRAME as u64 == 0, "{length}");
    if before < length + (8 << 20) {
        println!("skipped: {before} bytes allocated for {length}");
        return;
    }
    let said = fails(2, &arguments);
    let trim = format!("truncate -s {length} {data}");
    assert!(said.contains("--force") && said.contains(&trim), "{said}");
    let trimmed = Command::new("sh").args(["-c", &trim]).status().expect("sh").success();
    assert!(trimmed && allocated() <= length + (1 << 20), "{} of {before}", allocated());
    assert!(!fails(2, &arguments).contains("truncate"), "nothing is left");
}
