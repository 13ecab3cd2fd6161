// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completes recordings of killed captures when they are opened.

use std::fs::{self, File};
use std::path::Path;

use dmabuf_dio_stream::convert::SampleType;
use dmabuf_dio_terminal::exit::say;
use rustix::fs::FlockOperation;
use serde_json::{Value, json};

use super::super::atomic::replace;
use super::names::{self, UNFINISHED};

/// Completes the description of the samples in a file, cuts the file to whole frames, and releases
/// the space allocated beyond its end, unless a capture is still writing it. Prints what it does. If
/// a step fails, the file stays as it is.
pub(crate) fn repair(data: &Path) {
    let description = names::path_of(data);
    let read = || names::parse(&fs::read(&description).ok()?).ok();
    let is_unfinished = |value: &Value| {
        let own = names::described(data, value).is_some_and(|file| file == data);
        own && value["global"][UNFINISHED].is_u64()
    };
    if !read().is_some_and(|value| is_unfinished(&value)) {
        return;
    }
    let name = data.display();
    let opened = File::options().write(true).open(data).or_else(|_| File::open(data));
    let Ok(file) = opened else { return };
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
        == Err(rustix::io::Errno::WOULDBLOCK)
    {
        return say(&format!("dmabuf-dio: {name} is still being written"));
    }
    // The capture may have ended meanwhile.
    let Some(mut value) = read().filter(is_unfinished) else { return };
    let Some(frame) = frame_of(&value) else { return };
    let cut = file.metadata().and_then(|facts| {
        let frames = facts.len() / frame;
        // This releases the space even if the length does not change.
        file.set_len(frames * frame)?;
        Ok(frames)
    });
    let repaired = cut.and_then(|frames| {
        complete(&mut value, frames);
        replace(&description, &value).map(|()| frames)
    });
    match repaired {
        Ok(frames) => say(&format!(
            "dmabuf-dio: the capture of {name} did not end: its {frames} whole frames are kept, and its \
             description completed"
        )),
        Err(error) => say(&format!(
            "dmabuf-dio: the capture of {name} did not end, and it cannot be completed: {error}"
        )),
    }
}

/// Bytes of a frame in the file.
pub(crate) fn frame_of(value: &Value) -> Option<u64> {
    let global = &value["global"];
    let sample: SampleType = global["core:datatype"].as_str()?.parse().ok()?;
    let values = if sample.complex { 2 } else { 1 };
    let count = match &global["core:num_channels"] {
        Value::Null => 1,
        count => count.as_u64()?,
    };
    sample.format.bytes().checked_mul(values)?.checked_mul(count).filter(|bytes| *bytes > 0)
}

/// Removes the mark from a description, and notes the frame from which on losses are unknown.
/// `frames` is the number of frames in the file. After a power cut it may be less than the described
/// number.
pub(crate) fn complete(value: &mut Value, frames: u64) {
    let known = value["global"][UNFINISHED].as_u64().unwrap_or(0).min(frames);
    if let Some(global) = value["global"].as_object_mut() {
        global.remove(UNFINISHED);
    }
    let start = |part: &Value| part["core:sample_start"].as_u64().unwrap_or(0);
    if let Some(parts) = value["captures"].as_array_mut() {
        parts.retain(|part| start(part) == 0 || start(part) < frames);
    }
    if !value["annotations"].is_array() {
        value["annotations"] = json!([]);
    }
    let Some(notes) = value["annotations"].as_array_mut() else { return };
    notes.retain(|note| start(note) < frames);
    for note in notes.iter_mut() {
        let left = frames - start(note);
        if note["core:sample_count"].as_u64().is_some_and(|count| count > left) {
            note["core:sample_count"] = json!(left);
        }
    }
    if known < frames {
        notes.push(json!({
            "core:sample_start": known,
            "core:sample_count": frames - known,
            "core:label": "unfinished",
            "core:comment": "whether samples are missing here is not known: the capture was killed",
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const META: &str = r#"{
        "global": {"core:datatype": "ri16_le", "core:num_channels": 2, "dmabuf_dio:unfinished": 5},
        "captures": [{"core:sample_start": 0}, {"core:sample_start": 4, "core:global_index": 7}],
        "annotations": [{"core:sample_start": 4, "core:sample_count": 1, "core:label": "gap"}]
    }"#;

    fn recording(bytes: usize) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("x.sigmf-data");
        fs::write(&data, vec![1; bytes]).expect("written");
        fs::write(names::path_of(&data), META).expect("written");
        (folder, data)
    }

    fn described(data: &Path) -> Value {
        let text = fs::read(names::path_of(data)).expect("read");
        serde_json::from_slice(&text).expect("JSON")
    }

    #[test]
    fn unfinished_recording_is_repaired() {
        // Frames of 4 bytes: 8 and a half, and 4 after a power cut.
        for (bytes, frames, segments, notes) in
            [(34, 8, 2, vec![(4, 1), (5, 3)]), (20, 5, 2, vec![(4, 1)]), (16, 4, 1, vec![])]
        {
            let (_folder, data) = recording(bytes);
            repair(&data);
            assert_eq!(fs::metadata(&data).expect("there").len(), frames * 4);
            let value = described(&data);
            assert!(value["global"][UNFINISHED].is_null(), "{value}");
            assert_eq!(value["captures"].as_array().map(Vec::len), Some(segments));
            let all = value["annotations"].as_array().expect("a list");
            let number = |note: &Value, name: &str| note[name].as_u64().expect("a number");
            let found: Vec<_> = all
                .iter()
                .map(|note| (number(note, "core:sample_start"), number(note, "core:sample_count")))
                .collect();
            assert_eq!(found, notes, "{bytes} bytes");
            // Once is enough.
            repair(&data);
            assert_eq!(described(&data), value);
        }
    }

    /// The description describes another file, or cannot be parsed.
    #[test]
    fn other_file_is_not_repaired() {
        let (folder, data) = recording(34);
        let other = folder.path().join("x.bin");
        fs::write(&other, [1; 35]).expect("written");
        let said = fs::read_to_string(names::path_of(&data)).expect("read");
        for (from, to) in [
            ("", ""),
            (
                "\"core:num_channels\": 2",
                "\"core:num_channels\": \"2\", \"core:dataset\": \"x.bin\"",
            ),
            ("\"core:num_channels\": 2", "\"core:num_channels\": 2, \"core:dataset\": \"y.bin\""),
            ("\"core:num_channels\": 2", "\"core:num_channels\": 2, \"core:dataset\": [\"x.bin\"]"),
        ] {
            fs::write(names::path_of(&data), said.replacen(from, to, 1)).expect("written");
            repair(&other);
            assert_eq!(fs::metadata(&other).expect("there").len(), 35, "{to}");
            assert_eq!(described(&data)["global"][UNFINISHED], 5, "{to}");
        }
    }

    #[test]
    fn recording_being_written_is_not_repaired() {
        let (_folder, data) = recording(34);
        let writer = File::open(&data).expect("open");
        rustix::fs::flock(&writer, FlockOperation::NonBlockingLockExclusive).expect("locked");
        repair(&data);
        assert_eq!(fs::metadata(&data).expect("there").len(), 34);
        assert_eq!(described(&data)["global"][UNFINISHED], 5);
        drop(writer);
        repair(&data);
        assert_eq!(fs::metadata(&data).expect("there").len(), 32);
    }
}
