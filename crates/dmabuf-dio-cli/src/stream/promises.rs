// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a description says of a file beside the format of its samples, and a replay cannot honour.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use serde_json::Value;
use sha2::{Digest as _, Sha512};

use crate::verify::hex;

/// The extensions that a replay knows.
const KNOWN: &str = "dmabuf_dio";

/// The content of a description. A byte order mark is not a part of it.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("it is not UTF-8: {error}"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err("it is empty".into());
    }
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    if !value["global"].is_object() {
        return Err("it has no object \"global\"".into());
    }
    Ok(value)
}

/// Why the description `value` of the samples at `start` to `end` of a file is not that of plain
/// samples in it, or says what is not supported. `with_rate`: its rate is used.
pub(super) fn broken(
    value: &Value,
    file: &Path,
    part: (u64, u64),
    with_rate: bool,
) -> io::Result<Vec<String>> {
    let global = &value["global"];
    let mut all = Vec::new();
    if !global["core:datatype"].is_string() {
        all.push("it does not say the type of the samples, core:datatype".to_owned());
    }
    let rate = &global["core:sample_rate"];
    if with_rate
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
    let parts = value["captures"].as_array();
    if let Some(start) = parts.and_then(|parts| parts.first()?["core:sample_start"].as_u64()) {
        if start > 0 {
            all.push(format!("its first segment begins with sample {start}"));
        }
    }
    let own = file.file_name().and_then(|name| name.to_str());
    if let Some(other) = global["core:dataset"].as_str().filter(|name| Some(*name) != own) {
        all.push(format!("it describes another file, {other}"));
    }
    if let Some(wanted) = global["core:sha512"].as_str() {
        if !wanted.eq_ignore_ascii_case(&sha512(file, part)?) {
            all.push("the samples are not those that it describes: core:sha512 differs".to_owned());
        }
    }
    Ok(all)
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

    #[test]
    fn unreadable_description_is_reported() {
        let good = br#"{"global": {"core:datatype": "ri16_le"}}"#;
        assert!(parse(good).is_ok() && parse(&[b"\xef\xbb\xbf", &good[..]].concat()).is_ok());
        for (bad, why) in [
            (&b""[..], "empty"),
            (b" \n", "empty"),
            (br#"{"global": {"core:datatype": "ri16_le"},}"#, "trailing comma"),
            (&good[..20], "EOF"),
            (b"{\"global\": {\"core:author\": \"J\xfcrgen\"}}", "not UTF-8"),
            (b"[]", "no object"),
            (b"{}", "no object"),
        ] {
            let said = parse(bad).expect_err("bad");
            assert!(said.contains(why), "{said}");
        }
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
            broken(&value, &file, (1, 4), true).expect("read").join("; ")
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
        let said = broken(&bare, &file, (0, 5), true).expect("read").join("; ");
        assert!(said.contains("core:datatype"), "{said}");
    }
}
