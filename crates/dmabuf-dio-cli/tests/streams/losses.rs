// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports about losses of devices that count them, only note them, or do not report them.

use std::fs;

use serde_json::Value;

use crate::common::eventually;
use crate::common::iio::{
    Setup, end_of, number, numbers, read_json, report, set, signal, start, until_it_moves,
};

/// How the simulated devices report losses, until this is dropped.
struct Reports;

impl Reports {
    fn set(how: &str) -> Self {
        for device in ["stream-adc", "stream-dac"] {
            set(device, "reports", how);
        }
        Self
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        for device in ["stream-adc", "stream-dac"] {
            set(device, "reports", "2");
        }
    }
}

/// A capture in which the device loses `lost` frames inside: exit code, report and description.
fn capture(setup: &Setup, lost: u64, more: &str) -> (i32, Value, Value) {
    let data = setup.path("samples.sigmf-data");
    let child = start(format!(
        "capture stream-adc --rate 100k --block-size 64K --json --force --to {data} {more}"
    ));
    let length = || fs::metadata(&data).map_or(0, |facts| facts.len());
    until_it_moves("stream-adc");
    eventually("no samples", || length() > 0);
    if lost > 0 {
        set("stream-adc", "inject_loss", &lost.to_string());
        eventually("not lost", || number("stream-adc", "inject_loss") == 0);
    }
    // Until the frames behind them are in the file.
    let end = length() + (256 << 10);
    eventually("it does not go on", || length() > end);
    signal(&child, "-INT");
    let (code, summary) = end_of(child);
    (code, summary, read_json(setup.path("samples.sigmf-meta")))
}

#[test]
fn device_without_loss_report_has_unknown_losses() {
    let Some(setup) = Setup::get() else { return };
    let _reports = Reports::set("0");
    let (code, summary, meta) = capture(&setup, 5000, "");
    assert_eq!((code, &summary["loss_known"]), (0, &false.into()), "{summary}");
    assert_eq!(meta["global"]["dmabuf_dio:loss_known"], false, "{meta}");
    let text = meta["global"]["core:description"].as_str().expect("a text");
    assert!(text.contains("not known"), "{text}");
    for (limit, wanted) in [("0", 1), ("100%", 0)] {
        let (code, summary, _) = capture(&setup, 0, &format!("--max-loss {limit}"));
        assert_eq!(code, wanted, "{summary}");
    }
}

#[test]
fn loss_register_reveals_overruns() {
    let Some(setup) = Setup::get() else { return };
    let _reports = Reports::set("1");
    let (code, summary, meta) = capture(&setup, 0, "--max-loss 0");
    assert_eq!((code, &summary["loss_known"]), (0, &true.into()), "{summary}");
    assert_eq!(summary["gaps"], serde_json::json!([]), "{summary}");
    assert!(meta["global"]["dmabuf_dio:loss_known"].is_null(), "{meta}");
    let (code, summary, meta) = capture(&setup, 5000, "");
    let gaps = summary["gaps"].as_array().expect("a list");
    assert_eq!((code, gaps.len(), &summary["loss_known"]), (1, 1, &true.into()), "{summary}");
    assert!(gaps[0]["frames"].is_null(), "{summary}");
    let text = meta["annotations"][0]["core:comment"].as_str().expect("a gap");
    assert!(text.contains("does not report how many"), "{text}");
    // The numbers in the file jump at the reported gap, to within the content of the ring.
    let numbers = numbers(&fs::read(setup.path("samples.sigmf-data")).expect("samples"));
    let jump = numbers.windows(2).position(|pair| pair[1] != pair[0] + 1).expect("a gap") + 1;
    assert_eq!(numbers[jump], numbers[jump - 1] + 5001);
    let (at, to) = (gaps[0]["at"].as_u64(), gaps[0]["to"].as_u64());
    let jump = Some(jump as u64 * 8);
    assert!(at <= jump && jump <= to, "{jump:?} in {summary}");
    // Losses before the start do not count.
    let (code, summary, _) = capture(&setup, 0, "--max-loss 0");
    assert_eq!(code, 0, "{summary}");
}

#[test]
fn loss_register_reveals_underruns() {
    let Some(setup) = Setup::get() else { return };
    let _reports = Reports::set("1");
    let data = setup.path("samples.bin");
    crate::common::iio::numbered(&data, 50_000);
    let words = format!("replay {data} --to stream-dac --rate 100k");
    let (code, summary) = report(&words);
    let unknown = |gap: &Value| gap["kind"] == "underrun" && gap["frames"].is_null();
    let gaps = summary["gaps"].as_array().expect("a list");
    assert!(summary["loss_known"] == true && gaps.iter().all(unknown), "{summary}");
    assert_eq!(code, i32::from(!gaps.is_empty()), "{summary}");
    let child = start(format!("{words} --json"));
    until_it_moves("stream-dac");
    set("stream-dac", "inject_loss", "100");
    let (code, summary) = end_of(child);
    let gaps = summary["gaps"].as_array().expect("a list");
    assert!(code == 1 && !gaps.is_empty() && gaps.iter().all(unknown), "{summary}");
    // Without a register or a counter: not known.
    let _reports = Reports::set("0");
    let (code, summary) = report(&words);
    assert_eq!((code, &summary["loss_known"]), (0, &false.into()), "{summary}");
    let (code, summary) = report(format!("{words} --cyclic --seconds 0.2"));
    assert_eq!((code, &summary["loss_known"]), (0, &false.into()), "{summary}");
}
