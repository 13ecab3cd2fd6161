// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats, cuts and archives of `dmabuf-dio capture` and `replay`, with the simulated devices. A
//! device always delivers the numbers of its frames; `scan_type` defines their meaning.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::iio::{
    FRAME, Setup, counted, dac, end_of, fails, json, missing, number, numbered, numbers, read_json,
    set, signal, start, told, until_it_moves,
};
use crate::common::ok;

/// The meaning of two bytes of the device, from -1 to 1, by arithmetic that the library does not use.
fn meaning(scan_type: &str, bytes: [u8; 2]) -> f64 {
    let word = if scan_type.starts_with("be") {
        u16::from_be_bytes(bytes)
    } else {
        u16::from_le_bytes(bytes)
    };
    let (kind, rest) = scan_type[3..].split_at(1);
    let (bits, shift) = rest.split_once("/16>>").expect("16 bits");
    let (bits, shift): (u32, u32) = (bits.parse().expect("bits"), shift.parse().expect("a shift"));
    let range = f64::from(1_u32 << bits);
    let value = (f64::from(word) / f64::from(1_u32 << shift)).floor() % range;
    let value = if kind == "u" {
        value - range / 2.0
    } else if value >= range / 2.0 {
        value - range
    } else {
        value
    };
    value / (range / 2.0)
}

/// Restores the devices' own formats.
struct Types;

impl Types {
    fn set(scan_type: &str) -> Self {
        set("stream-adc", "scan_type", scan_type);
        set("stream-dac", "scan_type", scan_type);
        Self
    }
}

impl Drop for Types {
    fn drop(&mut self) {
        set("stream-adc", "scan_type", "le:u16/16>>0");
        set("stream-dac", "scan_type", "le:u16/16>>0");
    }
}

/// The values in the file have the meaning of the device's bytes. Replayed to a device, the bytes
/// are the same: the DAC checks them. `count`: numbers below it set no bit outside of the value.
#[test]
fn capture_and_replay_convert_formats() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.sigmf-data");
    let meta = setup.path("samples.sigmf-meta");
    for (scan_type, count) in [
        ("le:u16/16>>0", 100_003_u64),
        ("be:s16/16>>0", 100_003),
        ("le:s12/16>>0", 2048),
        ("be:s12/16>>4", 256),
        ("be:u10/16>>6", 256),
    ] {
        let types = Types::set(scan_type);
        for (format, name, bytes) in [
            ("cf32", "cf32_le", 4),
            ("f64_be", "rf64_be", 8),
            ("ci16", "ci16_le", 2),
            ("u32_be", "ru32_be", 4),
        ] {
            let samples = count.to_string();
            let report = json(format!(
                "capture stream-adc --rate 1M --samples {samples} --to {data} --format {format} --force"
            ));
            let conversion = &report["conversion"];
            assert_eq!(conversion["from"], format!("{scan_type} x 4"));
            assert_eq!((&conversion["frames"], &report["lost_frames"]), (&count.into(), &0.into()));
            assert_eq!(conversion["to_bytes"], count * 4 * bytes);
            assert_eq!(read_json(&meta)["global"]["core:datatype"], name);
            let file = fs::read(&data).expect("the file");
            assert_eq!(file.len() as u64, count * 4 * bytes);
            let device =
                (0..count).flat_map(|number| number.to_le_bytes().into_iter().collect::<Vec<_>>());
            let device: Vec<u8> = device.collect();
            for (word, value) in device.chunks_exact(2).zip(file.chunks_exact(bytes as usize)) {
                let wanted = meaning(scan_type, word.try_into().expect("two"));
                let found = match name {
                    "cf32_le" => f64::from(f32::from_le_bytes(value.try_into().expect("four"))),
                    "rf64_be" => f64::from_be_bytes(value.try_into().expect("eight")),
                    "ci16_le" => {
                        f64::from(i16::from_le_bytes(value.try_into().expect("two"))) / 32768.0
                    }
                    _ => {
                        f64::from(u32::from_be_bytes(value.try_into().expect("four")))
                            / 2_147_483_648.0
                            - 1.0
                    }
                };
                assert!(
                    found.to_bits() == wanted.to_bits(),
                    "{scan_type} to {format}: {word:x?} is {found}, not {wanted}"
                );
            }
            let back = json(format!("replay {data} --to stream-dac"));
            assert_eq!(
                (&back["frames"], &back["conversion"]["frames"]),
                (&count.into(), &count.into())
            );
            assert_eq!(dac(), (count, 0), "{scan_type} from {format}");
        }
        // The device's own format needs no copy, and the description has it exactly.
        let report = json(format!("capture stream-adc --samples 1000 --to {data} --force"));
        assert_eq!(report["conversion"], Value::Null);
        let back = json(format!("replay {data} --to stream-dac"));
        assert_eq!((&back["conversion"], number("stream-dac", "wrong_frames")), (&Value::Null, 0));
        drop(types);
    }
}

/// The report has a line, and a file without a description needs `--format`.
#[test]
fn report_describes_the_conversion() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.cf32");
    let arguments = format!("capture stream-adc --samples 50k --format cf32 --to {data}");
    let text = ok(format!("{arguments} --channels voltage0,voltage1"));
    let line = text.lines().find(|line| line.starts_with("converted")).expect(&text);
    assert!(
        line.contains("le:u16/16>>0 x 2 to le:f32/32>>0 x 2") && line.contains("400000 bytes"),
        "{line}"
    );
    fs::remove_file(setup.path("samples.sigmf-meta")).expect("removed");
    let replay = format!("replay {data} --to stream-dac --channels voltage0,voltage1");
    assert_eq!(json(&replay)["frames"], 100_000, "as the device has it");
    let report = json(format!("{replay} --format cf32"));
    assert_eq!((&report["frames"], number("stream-dac", "wrong_frames")), (&50_000.into(), 0));
    // By one block that repeats.
    let child = start(format!("{replay} --format cf32 --cyclic --rate 1M --json"));
    until_it_moves("stream-dac");
    signal(&child, "-INT");
    let (code, report) = end_of(child);
    assert_eq!((code, &report["conversion"]["to_bytes"]), (0, &200_000.into()), "{report}");
    // Only the jump back to the first frame is wrong.
    let (moved, wrong) = dac();
    assert!(moved > 0 && wrong <= moved / 50_000, "{wrong} of {moved}");
}

#[test]
fn recordings_are_rotated_by_time_and_size() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.sigmf-data");
    let name = |number: u64, end: &str| setup.path(&format!("samples-{number:06}.sigmf-{end}"));
    // A machine that emulates another opens few files per second.
    for (rotate, each, rate, all) in [
        ("0.1s", 100_000, "1M", 350_003_u64),
        ("1M", 131_072, "1M", 350_003),
        ("100000", 12_500, "50k", 60_003),
        ("600K", 76_800, "1M", 350_003),
    ] {
        let samples = all.to_string();
        let capture = format!("capture stream-adc --rate {rate} --samples {samples} --to {data}");
        let report = json(format!("{capture} --rotate {rotate} --force"));
        assert_eq!((&report["frames"], &report["lost_frames"]), (&all.into(), &0.into()));
        let files = report["files"].as_array().expect("a list");
        assert_eq!(files.len() as u64, all.div_ceil(each), "{rotate}");
        for (number, file) in (0..).zip(files) {
            let (first, count) = (number * each, each.min(all - number * each));
            assert_eq!((&file["first_frame"], &file["frames"]), (&first.into(), &count.into()));
            assert_eq!(file["file"], name(number, "data"));
            let bytes = fs::read(name(number, "data")).expect("a file");
            assert_eq!(counted(first, &bytes) as u64, count);
            let meta = read_json(name(number, "meta"));
            assert_eq!(meta["captures"][0]["core:global_index"], first);
            assert_eq!(meta["global"]["core:dataset"], Value::Null);
        }
        assert!(!Path::new(&name(files.len() as u64, "data")).exists(), "none of the longer ones");
        assert!(!Path::new(&data).exists());
        let sink = report["sink"].as_str().expect("text");
        println!("{rotate}: {sink}");
        // Each file is a recording of its own.
        let back = json(["replay", &name(1, "data"), "--to", "stream-dac"]);
        assert_eq!(&back["frames"], &files[1]["frames"]);
        let again = fails(2, format!("{capture} --rotate {rotate}"));
        assert!(again.contains("samples-000000.sigmf-data already exists"), "{again}");
    }
    let other = setup.path("other.bin");
    let report = json(format!(
        "capture stream-adc --samples 30000 --format i32_be --to {other} --rotate 160000"
    ));
    assert_eq!(report["files"].as_array().map(Vec::len), Some(3));
    for number in 0..3_u64 {
        let bytes = fs::read(setup.path(&format!("other-{number:06}.bin"))).expect("a file");
        assert_eq!(bytes.len(), 160_000);
        let first = i32::from_be_bytes(bytes[..4].try_into().expect("four"));
        assert_eq!(i64::from(first), (number as i64 * 10_000 - 32_768) << 16);
        let meta = read_json(setup.path(&format!("other-{number:06}.sigmf-meta")));
        assert_eq!(meta["global"]["core:dataset"], format!("other-{number:06}.bin"));
    }
}

/// At a rate at which frames are lost, each is in a file or in a gap that is told.
#[test]
fn rotated_recording_describes_losses() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    let more = format!("--samples 200k --max-loss 100% --to {data} --force");
    let report = json(format!(
        "capture stream-adc --rate 30M --block-size 8K --blocks 3 {more} --rotate 300K"
    ));
    let files = report["files"].as_array().expect("a list");
    let mut all = Vec::new();
    for file in files {
        let bytes = fs::read(file["file"].as_str().expect("a name")).expect("a file");
        assert!(bytes.len() <= 300 << 10, "{file}");
        assert_eq!(file["first_frame"], all.len(), "{file}");
        all.extend(numbers(&bytes));
    }
    let lost = missing(&all);
    assert_eq!((all.len(), &report["frames"]), (200_000, &200_000.into()));
    let told = report["lost_frames"].as_u64().expect("counted");
    // The device may fill the last block and lose more before its counter is read: the last gap then
    // reaches to the end.
    let gap = report["gaps"].as_array().and_then(|gaps| gaps.last()).expect("a gap");
    let to_the_end = gap["to"] == 200_000 * FRAME;
    let is_told = told == lost || told > lost && to_the_end;
    assert!(lost > 0 && is_told, "{lost}, told {told}, {gap}");
}

/// A description that cannot be read or honoured is refused. `--force` overrides it and prints the
/// overridden part.
#[test]
fn unsupported_description_needs_force() {
    let Some(setup) = Setup::get() else { return };
    let (data, meta) = (setup.path("x.sigmf-data"), setup.path("x.sigmf-meta"));
    json(format!("capture stream-adc --rate 1M --samples 1000 --to {data}"));
    let sound = fs::read_to_string(&meta).expect("a description");
    let replay = format!("replay {data} --to stream-dac");
    let with = |key: &str, value: Value| {
        let mut all: Value = serde_json::from_str(&sound).expect("JSON");
        all["global"][key] = value;
        all.to_string().into_bytes()
    };
    let later = sound.replace("\"core:sample_start\": 0", "\"core:sample_start\": 7");
    let needed = serde_json::json!([{ "name": "antenna", "version": "1.0.0", "optional": false }]);
    for (bytes, why) in [
        (sound.replacen('}', "},", 1).into_bytes(), "not JSON"),
        (sound.as_bytes()[..sound.len() / 2].to_vec(), "not JSON"),
        (Vec::new(), "empty"),
        ([sound.as_bytes(), &[0xfc]].concat(), "not UTF-8"),
        (with("core:sample_rate", "1000000".into()), "not a rate"),
        (with("core:sample_rate", 2e12.into()), "described rate"),
        (with("core:extensions", needed), "antenna"),
        (with("core:sha512", "00".into()), "core:sha512 differs"),
        (with("core:dataset", "y.bin".into()), "another file, y.bin"),
        (later.into_bytes(), "sample 7"),
    ] {
        fs::write(&meta, &bytes).expect("written");
        let output = crate::common::run(&replay);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{why}: {said}");
        let said = told(format!("{replay} --force"));
        assert!(said.contains(why) || said.contains("keeps its rate"), "{why}: {said}");
        assert_eq!(dac(), (1000, 0), "{why}");
    }
    // Other unusual descriptions are honoured: a byte order mark, no bytes before the samples, half
    // a frame per second.
    let mark = [b"\xef\xbb\xbf", sound.as_bytes()].concat();
    let none = sound
        .replace("\"core:sample_start\": 0", "\"core:sample_start\": 0, \"core:header_bytes\": 0");
    for (bytes, rate) in [
        (mark, 1e6),
        (none.into_bytes(), 1e6),
        (with("core:sample_rate", 2_000_000.5.into()), 2_000_001.0),
    ] {
        fs::write(&meta, bytes).expect("written");
        let report = json(&replay);
        assert_eq!((&report["frames"], &report["rate"]), (&1000.into(), &rate.into()));
        assert_eq!(number("stream-dac", "wrong_frames"), 0);
    }
}

/// An archive that tar packs from a capture is replayed; its end may be missing.
#[test]
fn tar_archives_are_replayed() {
    let Some(setup) = Setup::get() else { return };
    let (data, archive) = (setup.path("x.sigmf-data"), setup.path("x.sigmf"));
    for (format, count) in [("", 300_007_u64), ("--format cf32", 5003)] {
        json(format!("capture stream-adc --samples {count} --to {data} --force {format}"));
        let mut tar = Command::new("tar");
        tar.args(["cf", &archive, "-C", &setup.path("."), "x.sigmf-meta", "x.sigmf-data"]);
        assert!(tar.status().expect("tar").success());
        let back = json(format!("replay {archive} --to stream-dac"));
        assert_eq!(
            (&back["frames"], &back["conversion"].is_null()),
            (&count.into(), &format.is_empty())
        );
        assert_eq!(dac(), (count, 0));
    }
    // In frames of 16 bytes: four floating-point values, behind the three headers.
    let whole = fs::read(&archive).expect("read");
    let cut = 65_536 + 5;
    fs::write(&archive, &whole[..cut]).expect("cut");
    let output = crate::common::run(format!("replay {archive} --to stream-dac --json"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("ends early"), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let frames = report["frames"].as_u64().expect("a number");
    assert!((1..cut as u64 / 16).contains(&frames), "{report}");
    assert_eq!(number("stream-dac", "wrong_frames"), 0);
    assert_eq!(number("stream-dac", "moved_frames"), frames);
}

#[test]
fn invalid_formats_and_rotations_are_refused() {
    let Some(setup) = Setup::get() else { return };
    let data = setup.path("samples.bin");
    let says = |arguments: &str, what: &str| {
        let said = fails(2, arguments);
        assert!(said.contains(what), "{said}");
    };
    let capture = |more: &str| format!("capture stream-adc --samples 9 --to {data} {more}");
    says(&capture("--format ci12"), "cf32");
    says(&capture("--format le:s17/16>>0"), "is not a format");
    says(&capture("--format ci16 --channels voltage0,voltage1,voltage2"), "choose a real format");
    says(&capture("--format i16 --iq --channels voltage0"), "needs pairs");
    says(&capture("--rotate 5x"), "write 60s");
    says("capture stream-adc --to none --rotate 1s", "--rotate needs a file");
    let archive = setup.path("a.sigmf");
    says(&format!("capture stream-adc --to {archive}"), "tar cf NAME.sigmf");
    assert!(!Path::new(&data).exists() && !Path::new(&archive).exists());
    numbered(&data, 10);
    fs::write(&archive, [0; 4096]).expect("written");
    let said = fails(1, format!("replay {archive} --to stream-dac"));
    assert!(said.contains("cannot read the archive"), "{said}");
    let cut = fails(1, format!("replay {data} --to stream-dac --format cf64_le --samples 1"));
    assert!(cut.contains("not a whole number of frames of 32 bytes"), "{cut}");
}
