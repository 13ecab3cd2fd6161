// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio capture` and `replay` report what they did, and do nothing that was not requested.
//! The tests without a device run anywhere.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::iio::{
    Setup, dac, end_of, fails, json, number, numbered, read_json, report, set, signal, start, told,
    until_it_is_enabled,
};

/// Fails unless some files together hold the first `bytes` bytes of every frame, one after the other.
/// Returns the frames of each.
#[track_caller]
fn continued(paths: &[String], bytes: usize) -> Vec<u64> {
    let mut next = 0_u64;
    let mut counts = Vec::new();
    for path in paths {
        let content = fs::read(path).expect("a file");
        assert_eq!(content.len() % bytes, 0, "{path}: a frame is cut");
        for frame in content.chunks_exact(bytes) {
            assert_eq!(frame, &next.to_le_bytes()[..bytes], "{path}: frame {next}");
            next += 1;
        }
        counts.push((content.len() / bytes) as u64);
    }
    counts
}

/// The lengths of these files are not multiples of a DMA transfer.
#[test]
fn rotated_files_of_any_length_have_every_frame() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("y.sigmf-data");
    for (channels, rotate, each) in [
        ("voltage0,voltage1", "0.10001s", 10_000),
        ("voltage0,voltage1", "100004", 25_000),
        ("voltage0", "0.10001s", 10_000),
        ("voltage0,voltage1,voltage2", "60010", 10_000),
        ("voltage0,voltage1", "0.1s", 10_000),
    ] {
        let bytes = 2 * channels.split(',').count();
        let words = "capture stream-adc --rate 100k --samples 60003 --force";
        let more = format!("--channels {channels} --rotate {rotate} --to {data}");
        let report = json(format!("{words} {more}"));
        assert_eq!((&report["frames"], &report["lost_frames"]), (&60_003.into(), &0.into()));
        let files = report["files"].as_array().expect("a list");
        let paths: Vec<_> =
            files.iter().map(|file| file["file"].as_str().expect("a name").to_owned()).collect();
        let counts = continued(&paths, bytes);
        assert_eq!(counts.iter().sum::<u64>(), 60_003);
        let (last, others) = counts.split_last().expect("a file");
        assert!(others.iter().all(|count| *count == each) && *last <= each, "{counts:?}");
        let mut first = 0;
        for ((path, file), count) in paths.iter().zip(files).zip(&counts) {
            assert_eq!((&file["first_frame"], &file["frames"]), (&first.into(), &(*count).into()));
            let meta = read_json(path.replace("sigmf-data", "sigmf-meta"));
            assert_eq!(meta["captures"][0]["core:global_index"], first, "{rotate}");
            assert_eq!(meta["captures"].as_array().map(Vec::len), Some(1), "{rotate}");
            first += count;
        }
        // The device has moved no more than the last transfer rounds up.
        let moved = number("stream-adc", "moved_frames");
        assert!((60_003..60_003 + 8).contains(&moved), "{moved}");
    }
    // It says what a file has.
    let words = format!("capture stream-adc --rate 100k --samples 20 --force --to {data}");
    let said = told(format!("{words} --channels voltage0 --rotate 10"));
    assert!(said.contains("4 frames instead of 5"), "{said}");
}

#[test]
fn default_blocks_are_accepted_at_low_rates() {
    let Some(setup) = Setup::get() else { return };
    let (data, one) = (setup.path("a.sigmf-data"), "--channels voltage0");
    for (channels, rate, samples, more) in [
        ("voltage0", "1000", 100, ""),
        ("voltage0", "500", 100, ""),
        ("voltage0,voltage1", "10", 5, ""),
        ("voltage0,voltage1,voltage2", "1000", 100, ""),
        ("voltage0", "1000", 100, "--format f32"),
        ("voltage0,voltage1", "1", 1, "--format cf32"),
    ] {
        let (count, bytes) = (samples.to_string(), 2 * channels.split(',').count());
        let to = format!("--channels {channels} --to {data}");
        let report =
            json(format!("capture stream-adc --rate {rate} --samples {count} --force {to} {more}"));
        assert_eq!((&report["frames"], &report["complete"]), (&samples.into(), &true.into()));
        if more.is_empty() {
            assert_eq!(continued(std::slice::from_ref(&data), bytes), [samples]);
        }
    }
    let raw = setup.path("p.bin");
    let bytes: Vec<u8> = (0..1000_u16).flat_map(u16::to_le_bytes).collect();
    fs::write(&raw, bytes).expect("written");
    let report = json(format!("replay {raw} --to stream-dac --rate 1000 {one}"));
    assert_eq!((&report["frames"], number("stream-dac", "wrong_frames")), (&1000.into(), 0));
    // The request is refused before the device is touched.
    set("stream-adc", "sampling_frequency", "123456");
    let said = fails(
        2,
        format!("capture stream-adc --rate 1000 --block-size 12 --force {one} --to {data}"),
    );
    assert!(said.contains("multiple of 8 bytes") && said.contains("--block-size 4096"), "{said}");
    assert_eq!(number("stream-adc", "sampling_frequency"), 123_456);
}

/// Neither a stream that is refused late nor one without a sample leaves another rate.
#[test]
fn stream_without_samples_keeps_the_rate() {
    let Some(setup) = Setup::get() else { return };
    for device in ["stream-adc", "stream-dac"] {
        set(device, "sampling_frequency", "123456");
    }
    let data = setup.path("samples.bin");
    let child = start(format!("capture stream-adc --rate 100k --block-size 8M --to {data} --json"));
    until_it_is_enabled("stream-adc");
    assert_eq!(number("stream-adc", "sampling_frequency"), 100_000, "meanwhile");
    signal(&child, "-INT");
    assert_eq!(end_of(child).0, 1);
    assert_eq!(number("stream-adc", "sampling_frequency"), 123_456);
    // No sample comes.
    let said = fails(1, "replay - --to stream-dac --rate 2M");
    assert!(said.contains("no frame was moved"), "{said}");
    assert_eq!(number("stream-dac", "sampling_frequency"), 123_456);
    // With samples, it stays.
    numbered(&data, 1000);
    json(format!("replay {data} --to stream-dac --rate 2M"));
    assert_eq!(number("stream-dac", "sampling_frequency"), 2_000_000);
}

#[test]
fn old_files_do_not_end_a_rotated_capture() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("c.sigmf-data");
    let words = "capture stream-adc --rate 100k --rotate 0.1s --samples 40k";
    let words = format!("{words} --to {data}");
    for old in ["c-000001.sigmf-data", "c-000002.sigmf-meta", "c-000009.sigmf-data"] {
        let old = setup.path(old);
        fs::write(&old, "old").expect("written");
        let said = fails(2, &words);
        assert!(said.contains("already exists") && said.contains(&old), "{said}");
        assert!(!Path::new(&setup.path("c-000000.sigmf-data")).exists());
        let report = json(format!("{words} --force"));
        assert_eq!((&report["frames"], &report["complete"]), (&40_000.into(), &true.into()));
        let paths: Vec<_> =
            (0..4).map(|number| setup.path(&format!("c-{number:06}.sigmf-data"))).collect();
        assert_eq!(continued(&paths, 8), [10_000; 4]);
        assert!(!Path::new(&setup.path("c-000009.sigmf-data")).exists());
        for path in &paths {
            fs::remove_file(path).expect("removed");
            fs::remove_file(path.replace("-data", "-meta")).expect("removed");
        }
    }
}

/// A recording of frames 0, 1, 2, ... that is described with these keys too.
fn described(setup: &Setup, name: &str, count: u64, more: &Value) {
    numbered(&setup.path(&format!("{name}.sigmf-data")), count);
    let mut global = serde_json::json!({"core:datatype": "ru16_le", "core:num_channels": 4,
        "core:sample_rate": 1_000_000, "core:version": "1.2.0"});
    for (key, value) in more.as_object().into_iter().flatten() {
        global[key] = value.clone();
    }
    let meta = serde_json::json!({"global": global, "captures": [{"core:sample_start": 0}]});
    fs::write(setup.path(&format!("{name}.sigmf-meta")), meta.to_string()).expect("written");
}

fn pack(setup: &Setup, archive: &str, files: &[&str]) -> String {
    let path = setup.path(archive);
    let mut tar = Command::new("tar");
    tar.args(["cf", &path, "-C", &setup.path(".")]).args(files);
    assert!(tar.status().expect("tar").success());
    path
}

#[test]
fn only_the_own_description_is_used() {
    let Some(setup) = Setup::get() else { return };
    described(&setup, "a", 1000, &serde_json::json!({"core:sample_rate": 77_000}));
    described(&setup, "b", 1000, &serde_json::json!({"core:sample_rate": 50_000}));
    set("stream-dac", "sampling_frequency", "123456");
    let other = setup.path("a.bin");
    numbered(&other, 1000);
    let said = fails(2, format!("replay {other} --to stream-dac"));
    assert!(said.contains("describes another file") && said.contains("a.sigmf-data"), "{said}");
    assert_eq!(number("stream-dac", "sampling_frequency"), 123_456);
    let report = json(format!("replay {other} --to stream-dac --force"));
    assert_eq!((&report["frames"], &report["rate"]), (&1000.into(), &123_456.0.into()));
    // In an archive too.
    let files = ["a.sigmf-data", "a.sigmf-meta", "b.sigmf-meta", "b.sigmf-data"];
    let said = fails(1, ["replay", &pack(&setup, "two.sigmf", &files), "--to", "stream-dac"]);
    assert!(said.contains("several recordings: a, b"), "{said}");
    for (name, text) in [("._a.sigmf-data", "attributes"), ("._a.sigmf-meta", "attributes")] {
        fs::write(setup.path(name), text).expect("written");
    }
    let files = ["._a.sigmf-data", "._a.sigmf-meta", "a.sigmf-data", "a.sigmf-meta"];
    let report = json(["replay", &pack(&setup, "mac.sigmf", &files), "--to", "stream-dac"]);
    assert_eq!((&report["frames"], &report["rate"]), (&1000.into(), &77_000.0.into()));
    assert_eq!(number("stream-dac", "wrong_frames"), 0);
    // A value of another type is not "no value".
    let text = serde_json::json!({"core:num_channels": "4"});
    described(&setup, "d", 1000, &text);
    let data = setup.path("d.sigmf-data");
    let said = fails(2, format!("replay {data} --to stream-dac"));
    assert!(said.contains("core:num_channels") && said.contains("--force"), "{said}");
    json(format!("replay {data} --to stream-dac --force"));
}

#[test]
fn samples_of_a_truncated_archive_are_output() {
    let Some(setup) = Setup::get() else { return };
    described(&setup, "a", 10_000, &serde_json::json!({"core:sha512": "00"}));
    let files = ["a.sigmf-meta", "a.sigmf-data"];
    let archive = pack(&setup, "a.sigmf", &files);
    let whole = fails(2, format!("replay {archive} --to stream-dac"));
    assert!(whole.contains("core:sha512 differs"), "{whole}");
    let length = 512 * 3 + 40_003;
    fs::File::options().write(true).open(&archive).expect("open").set_len(length).expect("cut");
    let said = told(format!("replay {archive} --to stream-dac"));
    assert!(said.contains("ends early, its 40003 bytes"), "{said}");
    assert_eq!(dac(), (5000, 0));
    // Packed after the capture was killed, within a frame.
    described(&setup, "u", 100, &serde_json::json!({"dmabuf_dio:unfinished": 60}));
    let data = setup.path("u.sigmf-data");
    let file = fs::File::options().write(true).open(data).expect("open");
    file.set_len(795).expect("cut");
    let archive = pack(&setup, "u.sigmf", &["u.sigmf-meta", "u.sigmf-data"]);
    let said = told(format!("replay {archive} --to stream-dac"));
    assert!(said.contains("had not ended") && said.contains("its first 60 frames"), "{said}");
    assert_eq!(dac(), (99, 0));
}

#[test]
fn cyclic_replay_reports_what_the_device_has_output() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("z.bin");
    numbered(&data, 1_000_000);
    let (code, summary) =
        report(format!("replay {data} --to stream-dac --rate 1M --cyclic --seconds 0.3"));
    let moved = number("stream-dac", "moved_frames");
    assert_eq!((&summary["frames"], &summary["bytes"]), (&moved.into(), &(8 * moved).into()));
    assert!(code == 0 && moved > 0 && summary["complete"] == true, "{summary}");
}

#[test]
fn unknown_losses_have_a_hint_of_their_own() {
    let Some(setup) = Setup::get() else { return };
    set("stream-adc", "reports", "0");
    let data = setup.path("samples.bin");
    let words = format!("capture stream-adc --samples 1000 --max-loss 0 --to {data}");
    let output = crate::common::run(&words);
    set("stream-adc", "reports", "2");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("not known") && said.contains("--max-loss 100%"), "{said}");
    assert!(!said.contains("lower rate"), "{said}");
}

/// These need no device: they are refused before it is looked for.
#[test]
fn report_that_would_replace_samples_is_refused() {
    let folder = crate::common::folder();
    let path = |name: &str| crate::common::text(&folder.path().join(name)).to_owned();
    let (data, meta) = (path("o.sigmf-data"), path("o.sigmf-meta"));
    let refused = |words: &str| {
        let said = fails(2, words);
        assert!(said.contains("would replace the samples"), "{words:?}: {said}");
        assert!(said.contains("--report NAME.json"), "{said}");
    };
    for report in [&data, &meta, &path("./o.sigmf-data")] {
        refused(&format!("capture no-such-adc --to {data} --report {report}"));
    }
    let piece = path("o-000003.sigmf-data");
    refused(&format!("capture no-such-adc --to {data} --rotate 1s --report {piece}"));
    fs::write(&data, "samples").expect("written");
    fs::write(&meta, "{}").expect("written");
    for report in [&data, &meta] {
        refused(&format!("replay {data} --to no-such-dac --report {report}"));
    }
    assert_eq!(fs::read(&data).expect("kept"), b"samples");
    assert_eq!(fs::read(&meta).expect("kept"), b"{}");
    // Other report files are allowed.
    let other = path("o.sigmf-data.json");
    let said = fails(1, format!("replay {data} --to no-such-dac --report {other}"));
    assert!(said.contains("no-such-dac"), "{said}");
}

#[test]
fn options_for_a_file_are_refused_without_one() {
    for option in ["--frequency 1G", "--iq", "--force", "--rotate 1s"] {
        for to in ["none", "-", "tcp://127.0.0.1:1", "unix:/no/such/socket"] {
            let said = fails(2, format!("capture no-such-adc --to {to} {option}"));
            let what = format!(
                "{} needs a file, not {to}",
                option.split_once(' ').map_or(option, |words| words.0)
            );
            assert!(said.contains(&what) && said.contains("NAME.sigmf-data"), "{said}");
        }
    }
    let said = fails(2, "video no-such-camera --to none --force");
    assert!(said.contains("--force needs a file, not none") && said.contains("NAME.raw"), "{said}");
}

#[test]
fn options_for_a_file_are_refused_for_a_replayed_stream() {
    for from in ["-", "tcp://127.0.0.1:1", "unix:/no/such/socket"] {
        for (option, what) in [("--force", "no description"), ("--cyclic", "cannot be repeated")] {
            let said = fails(2, format!("replay {from} --to no-such-dac {option}"));
            assert!(said.contains(&format!("{from} ")) && said.contains(what), "{said}");
        }
    }
}

#[test]
fn missing_camera_is_called_missing() {
    let folder = crate::common::folder();
    let to = folder.path().join("z.raw");
    for command in ["capture", "video"] {
        let said = fails(1, [command, "/dev/video77", "--to", crate::common::text(&to)]);
        let is_named = said.contains("there is no device /dev/video77");
        assert!(is_named && !said.contains("IIO device /") && !to.exists(), "{said}");
    }
    let said = fails(1, "devices /dev/video77");
    assert!(said.contains("there is no device /dev/video77"), "{said}");
}
