// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the targets of the fuzzer call: tests/fuzz/library. Each panics if a promise is broken.

use std::path::{Component, Path, PathBuf};

use reqwest::header::{HeaderMap, HeaderValue, RETRY_AFTER};

use crate::address::{Address, escaped, is_nearly_url, is_url, shown};
use crate::origin::web::parse_content_range;
use crate::prefix::{as_files, key_of};
use crate::profile::settings;
use crate::sums::Sums;
use crate::trouble::{LONGEST_AFTER, code_in, retry_after, status_in};

/// Any text as a file of sums.
pub fn sums(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(sum) = Sums::parse_sha256(text) {
        assert_eq!(crate::sums::hex(&sum), text.to_ascii_lowercase());
    }
    let Ok(sums) = Sums::parse(text) else { return };
    assert_eq!(Sums::parse(&sums.to_json()).expect("sums"), sums);
    let (length, size) = (sums.length(), sums.chunk_size());
    if length == 0 {
        return;
    }
    // Chunks cover the whole, without a gap.
    let count = length.div_ceil(size);
    for number in [0, count / 2, count - 1] {
        let chunk = sums.chunk(number);
        assert!(chunk.start < chunk.end && chunk.end <= length, "{chunk:?}");
        assert!(number + 1 == count || chunk.end == sums.chunk(number + 1).start);
    }
    assert_eq!((sums.chunk(0).start, sums.chunk(count - 1).end), (0, length));
}

/// Any bytes as headers and pages of an answer, and as the file of a profile.
pub fn answers(bytes: &[u8]) {
    if let Ok(value) = HeaderValue::from_bytes(bytes) {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, value)]);
        assert!(retry_after(&headers).is_none_or(|after| after <= LONGEST_AFTER));
    }
    let text = &*String::from_utf8_lossy(bytes);
    if let Some((range, length)) = parse_content_range(text) {
        assert!(range.start < range.end && range.end <= length, "{range:?} of {length}");
    }
    if let Some(code) = code_in(text) {
        assert!(
            code.len() <= 60 && code.bytes().all(|byte| byte.is_ascii_alphanumeric()),
            "{code}"
        );
    }
    assert!(status_in(text).is_none_or(|status| status < 1000));
    for (name, value) in settings(text, &["default".into(), "profile default".into()]) {
        assert!(name.trim() == name && value.trim() == value, "{name}={value}");
        assert!(!name.contains(['\n', '=']) && !value.contains('\n'), "{name}={value}");
    }
}

/// What a server takes the path of a URL for.
fn bytes_of(url: &reqwest::Url) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = url.path().as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|two| two.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(byte) = byte.filter(|_| *first == b'%') {
            bytes.push(byte);
            rest = &behind[2..];
        } else {
            bytes.push(*first);
            rest = behind;
        }
    }
    bytes
}

/// Any text as a URL, in which `\u{1}` stands for a secret, and `\u{2}` for a slash and a name.
pub fn addresses(bytes: &[u8]) {
    const SECRET: &str = "hunter2";
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (text, name) = text.split_once('\u{2}').unwrap_or((text, "k"));
    if text.contains(SECRET) {
        return;
    }
    let text = &text.replace('\u{1}', SECRET);
    let path = Path::new(text);
    assert!(!(is_url(path) && is_nearly_url(path)), "{text}");
    let seen = shown(text).to_string_lossy().into_owned();
    let address = match Address::parse(text) {
        Ok(address) => address,
        Err(error) => {
            // Behind a ? everything may sign, and before an @ is a password.
            let (before, behind) = text.split_once(SECRET).unwrap_or((text, ""));
            if before.contains(['?', '#']) || behind.contains('@') {
                let said = format!("{error} {error:?} {} {seen}", error.hint());
                assert!(!said.contains(SECRET), "{said}");
            }
            return;
        }
    };
    let url = address.url();
    let host_and_path = format!("{:?} {}", url.host_str(), url.path());
    if !host_and_path.contains(SECRET) {
        assert!(!seen.contains(SECRET) && !format!("{address:?}").contains(SECRET), "{seen}");
    }
    // What is shown is not taken for one that has a user and a password.
    if let Some((folder, last)) = address.split() {
        assert!(folder.is_prefix(), "{folder:?} of {address:?}");
        let found = folder.join(Path::new(&last));
        assert_eq!(bytes_of(found.url()), bytes_of(url), "{address:?}");
    }
    let is_plain = |part| matches!(part, Component::Normal(_));
    let name = Path::new(name);
    if !name.as_os_str().is_empty() && name.components().all(is_plain) {
        let joined = address.join(name);
        let path = joined.url().path().strip_prefix(url.path()).expect("it is in the folder");
        assert!(!path.contains('+'), "S3 takes it for a blank: {path}");
        let place =
            |url: &reqwest::Url| format!("{:?} {:?}", url.host_str(), (url.port(), url.query()));
        assert_eq!(place(joined.url()), place(url), "{}", name.display());
        if let Some(text) = name.to_str().filter(|text| !text.contains("//")) {
            let again = format!("s3://b/{}", escaped(text));
            if let Ok(again) = Address::parse(&again) {
                assert!(again.url().query().is_none() && again.url().fragment().is_none());
            }
        }
    }
}

/// Any lines as the keys of objects in a store, those that end with a slash without bytes.
pub fn listings(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let start = object_store::path::Path::from("models/one");
    let mut found: Vec<(PathBuf, u64)> = Vec::new();
    for (line, length) in text.lines().zip(0..) {
        let name = Path::new(line.trim_end_matches('/'));
        let Ok(key) = key_of(&start, name) else { continue };
        // As a store lists it.
        let rest = key.prefix_match(&start).expect("it begins so");
        let name: PathBuf = rest.map(|part| part.as_ref().to_owned()).collect();
        let plain = |part| matches!(part, Component::Normal(_));
        assert!(name.components().all(plain), "{} leads out of its folder", name.display());
        if !name.as_os_str().is_empty() {
            found.push((name, if line.ends_with('/') { 0 } else { length }));
        }
    }
    let count = found.len();
    let Ok(files) = as_files(found) else { return };
    assert!(files.len() <= count && files.windows(2).all(|two| two[0].0 < two[1].0), "{files:?}");
    for (name, _) in &files {
        let is_folder = |other: &(PathBuf, u64)| other.0 != *name && other.0.starts_with(name);
        assert!(!files.iter().any(is_folder), "{} is a folder, too", name.display());
    }
}

/// Ranges of objects and their sums, from a simulated server.
#[cfg(fuzzed)]
pub fn ranges(bytes: &[u8]) {
    use crate::properties::*;
    crate::drawn::with(bytes, || {
        every_byte_of_a_range_is_the_objects_or_an_error_says_why();
        sums_are_of_chunks_that_cover_everything();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept_inputs::try_all;

    #[test]
    fn kept_sums_keep_their_promises() {
        try_all("sums", sums);
    }

    #[test]
    fn kept_answers_keep_their_promises() {
        try_all("answers", answers);
    }

    #[test]
    fn kept_addresses_keep_their_promises() {
        try_all("addresses", addresses);
    }

    #[test]
    fn kept_listings_keep_their_promises() {
        try_all("listings", listings);
    }
}
