// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds statements of a description, other than the format of samples, that a replay cannot honour.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use dmabuf_dio_stream::Format;
use dmabuf_dio_stream::convert::SampleType;
use serde_json::Value;
use sha2::{Digest as _, Sha512};

use super::names::{FORMATS, UNFINISHED};
use crate::show::hex;

/// The extensions that a replay knows.
const KNOWN: &str = "dmabuf_dio";

/// The samples that a description is checked against.
pub(crate) struct Samples<'a> {
    pub(crate) file: &'a Path,
    /// The first byte of the samples in the file, and the one behind the last.
    pub(crate) part: (u64, u64),
    /// Their name, if they are in an archive.
    pub(crate) name: Option<&'a Path>,
    /// The end of the samples is missing.
    pub(crate) cut: bool,
    /// Its rate is used, and its format.
    pub(crate) with_rate: bool,
    pub(crate) with_format: bool,
}

/// Why the description `value` cannot be honoured: it does not describe plain samples, or has
/// unsupported entries.
pub(crate) fn broken(value: &Value, samples: &Samples<'_>) -> io::Result<Vec<String>> {
    let global = &value["global"];
    let mut all = wrong_types(value);
    match &global["core:datatype"] {
        Value::String(name) if samples.with_format && !says_byte_order(name) => {
            let how = "--format tells it";
            all.push(format!("its core:datatype {name} lacks the byte order, _le or _be; {how}"));
        }
        Value::String(_) => {}
        _ => all.push("it does not say the type of the samples, core:datatype".to_owned()),
    }
    let rate = &global["core:sample_rate"];
    if samples.with_rate
        && !rate.is_null()
        && rate.as_f64().is_none_or(|rate| rate <= 0.0 || !rate.is_finite())
    {
        all.push(format!("its core:sample_rate is {rate}, not a rate"));
    }
    for extension in global["core:extensions"].as_array().into_iter().flatten() {
        let name = extension["name"].as_str().unwrap_or("without a name");
        if extension["optional"] != true && name != KNOWN {
            all.push(format!("it needs the extension {name}, which is not supported"));
        }
    }
    if global["core:metadata_only"] == true {
        all.push("it says that there are no samples: core:metadata_only is true".to_owned());
    }
    let parts = value["captures"].as_array();
    if let Some(start) = parts.and_then(|parts| parts.first()?["core:sample_start"].as_u64()) {
        if start > 0 {
            all.push(format!("its first segment begins with sample {start}"));
        }
    }
    let own = samples.name.unwrap_or(samples.file).file_name().and_then(|name| name.to_str());
    if let Some(other) = global["core:dataset"].as_str().filter(|name| Some(*name) != own) {
        all.push(format!("it describes another file, {other}"));
    }
    // The checksum covers all samples, so it is not checked if some are missing.
    let sum = global["core:sha512"].as_str().filter(|_| !samples.cut);
    if let Some(wanted) = sum {
        if !wanted.eq_ignore_ascii_case(&sha512(samples.file, samples.part)?) {
            all.push("the samples are not those that it describes: core:sha512 differs".to_owned());
        }
    }
    Ok(all)
}

/// Whether a type of SigMF has a byte order, or only one byte.
fn says_byte_order(name: &str) -> bool {
    let has_one = |sample: SampleType| sample.format.bytes() == 1;
    name.ends_with("_le") || name.ends_with("_be") || name.parse().map_or(true, has_one)
}

/// Whether a value is what a key stands for.
type Check = fn(&Value) -> bool;

/// The keys of known types that a description may have, at its top and in each segment.
const GLOBAL: [(&str, &str, Check); 7] = [
    ("core:num_channels", "a number of channels", |value| value.as_u64().is_some_and(|it| it > 0)),
    ("core:dataset", "the name of a file", Value::is_string),
    ("core:sha512", "a sum in hexadecimal digits", Value::is_string),
    ("core:metadata_only", "true or false", Value::is_boolean),
    ("core:extensions", "a list of extensions", is_list_of_objects),
    (FORMATS, "a list of formats", is_list_of_formats),
    (UNFINISHED, "a number of frames", Value::is_u64),
];
const SEGMENT: [(&str, &str, Check); 2] = [
    ("core:sample_start", "the number of a sample", Value::is_u64),
    ("core:header_bytes", "a number of bytes", Value::is_u64),
];

fn is_list_of_objects(value: &Value) -> bool {
    value.as_array().is_some_and(|all| all.iter().all(Value::is_object))
}

fn is_list_of_formats(value: &Value) -> bool {
    let is_format = |one: &Value| one.as_str().is_some_and(|text| text.parse::<Format>().is_ok());
    value.as_array().is_some_and(|all| all.iter().all(is_format))
}

/// Values of a wrong type, whose meaning is unknown. `null` has no meaning.
fn wrong_types(value: &Value) -> Vec<String> {
    let mut all = Vec::new();
    let mut check = |place: &Value, keys: &[(&str, &str, Check)]| {
        for (key, what, is_sound) in keys {
            let found = &place[*key];
            if !found.is_null() && !is_sound(found) {
                all.push(format!("its {key} is {}, not {what}", short(found)));
            }
        }
    };
    check(&value["global"], &GLOBAL);
    check(value, &[("captures", "a list of segments", is_list_of_objects)]);
    for segment in value["captures"].as_array().into_iter().flatten() {
        check(segment, &SEGMENT);
    }
    all
}

/// A value in a message.
fn short(value: &Value) -> String {
    const MOST: usize = 40;
    let text = value.to_string();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

fn sha512(file: &Path, (start, end): (u64, u64)) -> io::Result<String> {
    let mut file = File::open(file)?;
    file.seek(SeekFrom::Start(start))?;
    let (mut file, mut hash) = (file.take(end.saturating_sub(start)), Sha512::new());
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hex(&hash.finalize())),
            read => hash.update(&piece[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::sigmf::names::parse;

    fn samples(file: &Path, part: (u64, u64)) -> Samples<'_> {
        Samples { file, part, name: None, cut: false, with_rate: true, with_format: true }
    }

    #[test]
    fn unsupported_keys_are_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("x.bin");
        std::fs::write(&file, "xabcx").expect("written");
        let told = |more: &str, captures: &str| {
            let text = format!(
                "{{\"global\": {{\"core:datatype\": \"ru8\"{more}}}, \"captures\": [{captures}]}}"
            );
            let value = parse(text.as_bytes()).expect("sound");
            broken(&value, &samples(&file, (1, 4))).expect("read").join("; ")
        };
        // `printf abc | sha512sum`
        let sum = "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                   2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f";
        for good in [
            String::new(),
            r#", "core:sample_rate": 1.5, "core:dataset": "x.bin""#.into(),
            r#", "core:extensions": [{"name": "other", "optional": true}]"#.into(),
            r#", "core:extensions": [{"name": "dmabuf_dio", "optional": false}]"#.into(),
            format!(r#", "core:sha512": "{sum}""#),
        ] {
            assert_eq!(told(&good, r#"{"core:sample_start": 0}"#), "", "{good}");
        }
        for (bad, why) in [
            (r#", "core:sample_rate": "1M""#, "not a rate"),
            (r#", "core:sample_rate": -1"#, "not a rate"),
            (r#", "core:dataset": "y.bin""#, "another file, y.bin"),
            (r#", "core:sha512": "00""#, "core:sha512 differs"),
            (r#", "core:extensions": [{"name": "antenna", "optional": false}]"#, "antenna"),
            (r#", "core:extensions": [{"name": "antenna"}]"#, "antenna"),
        ] {
            let said = told(bad, "");
            assert!(said.contains(why), "{said}");
        }
        assert!(told("", r#"{"core:sample_start": 5}"#).contains("sample 5"));
        let bare = parse(b"{\"global\": {}}").expect("sound");
        let said = broken(&bare, &samples(&file, (0, 5))).expect("read").join("; ");
        assert!(said.contains("core:datatype"), "{said}");
    }

    /// The message for a description of three bytes.
    fn told(global: &str, captures: &str) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("x.bin");
        std::fs::write(&file, "abc").expect("written");
        let text = format!(r#"{{"global": {{{global}}}, "captures": {captures}}}"#);
        let value = parse(text.as_bytes()).expect("sound");
        broken(&value, &samples(&file, (0, 3))).expect("read").join("; ")
    }

    #[test]
    fn values_of_another_type_are_not_ignored() {
        let with = |more: &str| told(&format!(r#""core:datatype": "ru8"{more}"#), "[]");
        for good in [
            "",
            r#", "core:num_channels": 2"#,
            r#", "core:num_channels": null, "core:dataset": null, "core:extensions": null"#,
            r#", "core:metadata_only": false"#,
            r#", "core:extensions": []"#,
            r#", "dmabuf_dio:formats": ["le:u8/8>>0"]"#,
        ] {
            assert_eq!(with(good), "", "{good}");
        }
        for bad in [
            r#""core:num_channels": "4""#,
            r#""core:num_channels": 4.0"#,
            r#""core:num_channels": -4"#,
            r#""core:num_channels": 0"#,
            r#""core:extensions": {"name": "antenna"}"#,
            r#""core:extensions": "antenna""#,
            r#""core:extensions": ["antenna"]"#,
            r#""core:sha512": 12"#,
            r#""core:dataset": ["x"]"#,
            r#""core:metadata_only": true"#,
            r#""core:metadata_only": "yes""#,
            r#""dmabuf_dio:formats": "le:u8/8>>0""#,
            r#""dmabuf_dio:formats": ["no format"]"#,
            r#""dmabuf_dio:unfinished": "5""#,
        ] {
            let key = bad.split('"').nth(1).expect("a key");
            let said = with(&format!(", {bad}"));
            assert!(said.contains(key), "{bad}: {said}");
        }
        let long = format!(r#", "core:num_channels": "{}""#, "\u{e9}".repeat(1000));
        assert!(with(&long).chars().count() < 150);
    }

    #[test]
    fn segments_of_another_type_are_not_ignored() {
        for (captures, why) in [
            (r#"{"core:sample_start": 0}"#, "captures"),
            ("[0]", "captures"),
            (r#""all""#, "captures"),
            (r#"[{"core:sample_start": "5"}]"#, r#"core:sample_start is "5""#),
            (r#"[{"core:sample_start": 5.0}]"#, "core:sample_start is 5.0"),
            (r#"[{"core:sample_start": 0}, {"core:sample_start": -3}]"#, "core:sample_start is -3"),
            (r#"[{"core:header_bytes": "0"}]"#, "core:header_bytes"),
        ] {
            let said = told(r#""core:datatype": "ru8""#, captures);
            assert!(said.contains(why), "{captures}: {said}");
        }
    }

    #[test]
    fn missing_byte_order_is_reported() {
        let sound = ["ru16_le", "cf32_be", "ci8", "ru8"].map(|datatype| (datatype, false));
        let bad = ["ru16", "cf32", "ri32"].map(|datatype| (datatype, true));
        for (datatype, bad) in sound.into_iter().chain(bad) {
            let said = told(&format!(r#""core:datatype": "{datatype}""#), "[]");
            assert_eq!(said.contains("byte order"), bad, "{datatype}: {said}");
        }
    }

    /// The checksum of all samples does not match a part of them.
    #[test]
    fn sum_of_cut_samples_is_not_checked() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("x.sigmf");
        std::fs::write(&file, "abc").expect("written");
        let value = serde_json::json!({"global": {"core:datatype": "ru8", "core:sha512": "00",
            "core:dataset": "x.bin"}});
        let whole = samples(&file, (0, 3));
        let said = broken(&value, &whole).expect("read").join("; ");
        assert!(said.contains("core:sha512") && said.contains("x.bin"), "{said}");
        let cut = Samples { cut: true, name: Some(Path::new("x/x.bin")), ..whole };
        assert!(broken(&value, &cut).expect("read").is_empty());
    }
}
