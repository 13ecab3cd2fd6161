// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the targets of the fuzzer call: tests/fuzz/library. Each panics if a promise is broken.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use clap::Parser as _;
use dmabuf_dio_stream::Channel;
use dmabuf_dio_stream::convert::SampleType;
use dmabuf_dio_terminal::size::{parse_count, parse_rate, parse_size};
use serde_json::Value;

use crate::args::Cli;
use crate::args::address::{Address, Target, Use};
use crate::args::values::{
    Assignment, MaxLoss, Rotate, parse_fps, parse_frame_size, parse_seconds,
};
use crate::dashes::with_dashes;
use crate::load::plan::parts;
use crate::load::template;
use crate::stream::numbered;
use crate::stream::sigmf::described::Described;
use crate::stream::sigmf::names::UNFINISHED;
use crate::stream::sigmf::promises::{Samples, broken};
use crate::stream::sigmf::{archive, names, repair};

/// Any bytes as a command line, a word a line, and as the arguments of a command that is run.
pub fn command_lines(bytes: &[u8]) {
    let words = bytes.split(|byte| *byte == b'\n').map(|word| OsString::from_vec(word.to_vec()));
    let words: Vec<OsString> = words.collect();
    let line: Vec<OsString> = [&["dmabuf-dio".into()], &words[..]].concat();
    if let Err(error) = Cli::try_parse_from(&line) {
        if let Some(with) = with_dashes(&line, &error) {
            assert!(with.contains(" -- "), "{with}");
        }
    }
    let path = Path::new("/m/x.gguf");
    let filled = template::arguments(&words, Some(path));
    let has_place = filled.iter().skip(1).any(|word| word.to_string_lossy().contains("/m/x.gguf"));
    assert!(has_place || !template::wants_path(&words), "{words:?}");
}

/// Any text as the value of an option.
pub fn values(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(size) = parse_size(text) {
        assert_eq!(parse_size(&size.to_string()), Ok(size));
    }
    assert!(parse_count(text).is_ok_and(|count| count > 0) || parse_count(text).is_err());
    if let Ok(rate) = parse_rate(text) {
        assert!((0.0..=1e15).contains(&rate), "{rate}");
    }
    if let Ok(fps) = parse_fps(text) {
        assert!((0.01..=1e6).contains(&fps), "{fps}");
    }
    if let Ok(seconds) = parse_seconds(text) {
        assert!(std::time::Duration::try_from_secs_f64(seconds).is_ok(), "{seconds}");
    }
    if let Ok((width, height)) = parse_frame_size(text) {
        assert_eq!(parse_frame_size(&format!("{width}x{height}")), Ok((width, height)));
    }
    match Rotate::parse(text) {
        Ok(Rotate::Seconds(seconds)) => {
            assert!(std::time::Duration::try_from_secs_f64(seconds).is_ok(), "{seconds}");
        }
        Ok(Rotate::Bytes(bytes)) => assert!(bytes > 0),
        Err(_) => {}
    }
    match MaxLoss::parse(text) {
        Ok(MaxLoss::Part(part)) => assert!((0.0..=1.0).contains(&part), "{part}"),
        Ok(frames @ MaxLoss::Frames(_)) => {
            assert_eq!(MaxLoss::parse(&frames.to_string()), Ok(frames));
        }
        Err(_) => {}
    }
    if let Ok(Assignment { owner, attribute, value }) = Assignment::parse(text) {
        assert!(!attribute.is_empty() && !value.is_empty() && !attribute.contains('/'));
        let owner = owner.map_or_else(String::new, |owner| format!("{owner}/"));
        assert_eq!(format!("{owner}{attribute}={value}"), text);
    }
    // Files of this machine are looked at: none are there.
    let is_address = text.contains(':') && !text.contains('/');
    if is_address && !text.contains('\0') {
        if let Ok(Some(address)) = Address::parse(text, Use::Read) {
            assert_eq!(Address::parse(&address.to_string(), Use::Read), Ok(Some(address)));
        }
        if let Ok(target) = text.parse::<Target>() {
            assert_eq!(target.to_string().parse(), Ok(target));
        }
    }
}

/// Any bytes as the name of a file of a recording, or of a part of a model.
pub fn file_names(bytes: &[u8]) {
    let name = OsStr::from_bytes(bytes);
    let path = Path::new(name);
    if let Some(parts) = parts(path) {
        let parts: Vec<_> = parts.take(100_000).collect();
        assert!(parts.iter().any(|part| Some(&**part) == path.file_name().and_then(OsStr::to_str)));
    }
    for first in ["c.sigmf-data", "c", "c.x.bin"] {
        let Some(number) = numbered::number_of(Path::new(first), path) else { continue };
        let data = numbered::name(path.with_file_name(first).as_path(), number);
        let meta = names::path_of(&data);
        assert!(path.file_name() == data.file_name() || path.file_name() == meta.file_name());
    }
}

fn channels(formats: &[&str]) -> Vec<Channel> {
    let channel = |(index, format): (u32, &&str)| Channel {
        name: format!("in_voltage{index}"),
        index,
        format: format.parse().expect("a format"),
    };
    (0..).zip(formats).map(channel).collect()
}

fn check_description(value: &Value) {
    for (formats, frame) in [
        (&["le:s12/16>>0", "le:s12/16>>0"][..], 4),
        (&["le:u8/8>>0"], 1),
        (&["be:f32/32>>0", "le:s64/64>>0"], 16),
    ] {
        let channels = channels(formats);
        if let Ok(Some(layout)) = Described::of_value(value).layout(&channels, frame) {
            assert!(layout.count() == channels.len() && layout.frame() > 0, "{layout}");
        }
    }
    let samples = |cut| Samples {
        file: Path::new("/dev/null"),
        part: (0, 0),
        name: None,
        cut,
        with_rate: true,
        with_format: true,
    };
    let said = broken(value, &samples(false)).expect("nothing to read");
    assert!(said.iter().all(|one| !one.is_empty()));
    if said.is_empty() {
        let rate = Described::of_value(value).rate;
        assert!(rate.is_none_or(|rate| rate.is_finite() && rate > 0.0), "{rate:?}");
        assert!(broken(value, &samples(true)).expect("nothing to read").is_empty());
        let named = value["global"]["core:datatype"].as_str().expect("a type");
        let _: Result<SampleType, _> = named.parse();
    }
    let Some(frame) = repair::frame_of(value) else { return };
    assert!(frame > 0);
    for frames in [0, 5, u64::MAX / frame] {
        let mut value = value.clone();
        repair::complete(&mut value, frames);
        assert!(value["global"][UNFINISHED].is_null());
        let number = |note: &Value, key: &str| note[key].as_u64().unwrap_or(0);
        for note in value["annotations"].as_array().expect("a list") {
            let (start, count) =
                (number(note, "core:sample_start"), number(note, "core:sample_count"));
            assert!(
                start.checked_add(count).is_some_and(|end| end <= frames),
                "{note} of {frames}"
            );
        }
        let again = value.clone();
        // What is complete stays as it is, but for what is unknown then.
        let mut known = value;
        known["global"][UNFINISHED] = frames.into();
        repair::complete(&mut known, frames);
        assert_eq!(known, again);
    }
}

/// Any bytes as the description of samples.
pub fn descriptions(bytes: &[u8]) {
    let Ok(value) = names::parse(bytes) else { return };
    check_description(&value);
    let data = Path::new("/recordings/x.sigmf-data");
    if let Some(other) = names::described(data, &value) {
        assert!(other.file_name().is_none() || !other.as_os_str().is_empty());
    }
}

/// Any bytes as an archive of a recording.
pub fn archives(bytes: &[u8]) {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::memfd_create("archive", flags).expect("a memfd"));
    file.write_all(bytes).expect("written");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let Ok(found) = archive::find(Path::new(&path)) else { return };
    let end = found.start.checked_add(found.bytes).expect("no overflow");
    // Samples without a byte may begin anywhere.
    assert!(found.bytes == 0 || end <= bytes.len() as u64, "{found:?}");
    check_description(&found.description);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept_inputs::try_all;

    #[test]
    fn kept_command_lines_keep_their_promises() {
        try_all("command_lines", command_lines);
    }

    #[test]
    fn kept_values_keep_their_promises() {
        try_all("values", values);
    }

    #[test]
    fn kept_file_names_keep_their_promises() {
        try_all("file_names", file_names);
    }

    #[test]
    fn kept_descriptions_keep_their_promises() {
        try_all("descriptions", descriptions);
    }

    #[test]
    fn kept_archives_keep_their_promises() {
        try_all("archives", archives);
    }
}
