// SPDX-License-Identifier: MIT OR Apache-2.0
//! URLs of objects, and how they are shown: without what may be secret.

use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use reqwest::Url;

use crate::trouble::{Trouble, failed};

/// The schemes, and who serves them.
const SCHEMES: [(&str, Kind); 8] = [
    ("s3", Kind::S3),
    ("gs", Kind::Google),
    ("az", Kind::Azure),
    ("abfs", Kind::Azure),
    ("abfss", Kind::Azure),
    ("azure", Kind::Azure),
    ("https", Kind::Web),
    ("http", Kind::Web),
];

/// Who serves an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    S3,
    Google,
    Azure,
    Web,
}

/// Whether a path is the URL of an object: `s3://`, `gs://`, `az://`, `https://`, `http://`.
pub fn is_url(path: &Path) -> bool {
    path.to_str().is_some_and(|text| scheme(text).is_some())
}

/// Whether a path is all but the URL of an object: with one slash, without the colon, or behind a blank. It may have
/// what is secret.
pub fn is_nearly_url(path: &Path) -> bool {
    let is_near = |text: &str| {
        // A folder may be called like a scheme, but its files rarely have what may be secret in a URL.
        let is_odd = |rest: &str| {
            rest.starts_with(":/") || rest.starts_with("//") || rest.contains(['@', '?'])
        };
        after_scheme(text).is_some_and(|(_, rest)| is_odd(rest))
    };
    !is_url(path) && path.to_str().is_some_and(is_near)
}

/// A scheme at the start of a text, and what is behind it: `://` in a URL, perhaps less of that if it is mistyped.
fn after_scheme(text: &str) -> Option<(&'static str, &str)> {
    let text = text.trim_start();
    let (first, rest) = text.split_at(text.find([':', '/', '@', '?', '#']).unwrap_or(text.len()));
    let (known, _) = SCHEMES.iter().find(|(known, _)| first.eq_ignore_ascii_case(known))?;
    Some((known, rest))
}

/// A URL as messages show it: without what may be secret, and with the characters that `%` stands for.
pub fn shown(url: &str) -> PathBuf {
    match Address::parse(url) {
        Ok(address) => address.name,
        Err(dmabuf_dio::Error::Content { name, .. }) => name,
        Err(_) => PathBuf::new(),
    }
}

/// Writes the characters of a name that mean something else in a URL as `%` and two digits.
pub fn escaped(name: &str) -> String {
    name.replace('%', "%25").replace('?', "%3F").replace('#', "%23")
}

fn scheme(text: &str) -> Option<Kind> {
    let (scheme, _) = text.split_once("://")?;
    let found = SCHEMES.iter().find(|(name, _)| scheme.eq_ignore_ascii_case(name))?;
    Some(found.1)
}

/// Where an object is. `Debug` and [`name`](Self::name) show neither the query, which signs URLs, nor a password.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) kind: Kind,
    url: Url,
    name: PathBuf,
}

impl Address {
    /// Takes a URL apart.
    pub(crate) fn parse(text: &str) -> Result<Self, dmabuf_dio::Error> {
        let bare = |what: &str| {
            // Not all of it: it may have a secret.
            let start = |text: &str| text.split(['?', '#']).next().unwrap_or_default().to_owned();
            // Where a password begins and ends is not known: it may have a # or a ?.
            let shown = if text.contains('@') {
                format!("{}://", after_scheme(text).map_or("", |(scheme, _)| scheme))
            } else {
                start(text)
            };
            failed(Path::new(&shown), 0..0, &Trouble::Address(what.to_owned()))
        };
        let kind = scheme(text).ok_or_else(|| bare("it begins with no known scheme"))?;
        let url = Url::parse(text).map_err(|error| bare(&error.to_string()))?;
        if url.host_str().is_none_or(str::is_empty) {
            return Err(bare("it names no bucket or host"));
        }
        if url.fragment().is_some_and(|fragment| fragment.contains('@')) {
            return Err(bare("a # is written %23"));
        }
        let mut shown = url.clone();
        shown.set_query(None);
        shown.set_fragment(None);
        let _ = shown.set_username("");
        let _ = shown.set_password(None);
        // As it was typed, but for what may be secret: names are not escaped in messages.
        let name = percent_decoded(shown.as_str());
        Ok(Self { kind, url, name: name.into() })
    }

    /// The folder that it is in, and its name there.
    pub(crate) fn split(&self) -> Option<(Self, String)> {
        let (path, name) = self.url.path().rsplit_once('/').filter(|(_, name)| !name.is_empty())?;
        // A name that is no text, or is in another folder, would be another one in a URL of its own.
        let name = decoded(name).filter(|name| is_one_part(name))?;
        let mut folder = self.url.clone();
        folder.set_path(&format!("{path}/"));
        Some((Self::parse(folder.as_str()).ok()?, name))
    }

    /// An object of this folder.
    pub(crate) fn join(&self, name: &Path) -> Self {
        let mut url = self.url.clone();
        let mut path = url.path().strip_suffix('/').unwrap_or(url.path()).to_owned();
        // `path_segments_mut()` would leave out tabs and newlines.
        for part in name.iter().filter(|part| *part != "/" && *part != "." && *part != "..") {
            path.push('/');
            path.push_str(&percent_encoded(part.as_bytes()));
        }
        url.set_path(&path);
        Self { kind: self.kind, url, name: self.name.join(name) }
    }

    /// What messages call it.
    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// The whole URL, with what may be secret.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// The name of the object in its bucket: the path, as it was typed.
    pub(crate) fn key(&self) -> String {
        percent_decoded(self.url.path().trim_start_matches('/'))
    }

    /// Whether it stands for all objects whose names begin so.
    pub(crate) fn is_prefix(&self) -> bool {
        self.url.path().ends_with('/') || self.key().is_empty()
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.name).finish()
    }
}

/// Whether it is the name of a file in its folder.
fn is_one_part(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    let first = parts.next();
    !name.contains('/') && matches!(first, Some(Component::Normal(_))) && parts.next().is_none()
}

/// Writes all but what RFC 3986 leaves unreserved as `%` and two digits: S3 takes a `+` in a path for a blank.
fn percent_encoded(name: &[u8]) -> String {
    let mut path = String::with_capacity(name.len());
    for &byte in name {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(byte.into());
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

/// Replaces `%41` by `A`, where that gives text.
fn percent_decoded(text: &str) -> String {
    decoded(text).unwrap_or_else(|| text.to_owned())
}

/// The same; `None` if it is no text then.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = |at: usize| tail.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        if let (b'%', Some(high), Some(low)) = (first, hex(0), hex(1)) {
            bytes.push((high * 16 + low) as u8);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn urls_are_told_from_paths() {
        for url in ["s3://b/k", "S3://b/k", "gs://b/k", "az://c/k", "https://h/p", "http://h/p"] {
            assert!(is_url(Path::new(url)), "{url}");
        }
        for path in ["s3:/b/k", "model.gguf", "/s3://b", "ftp://h/p", "file:///p", "://", "s3"] {
            assert!(!is_url(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn mistyped_urls_are_told_from_files() {
        for text in [
            "https:/h/x",
            " s3://b/k",
            "https//h/x",
            "HTTP//h",
            "https/TOKEN@h/x",
            "https/h/x?X-Amz-Signature=1",
            "https:TOKEN@h/x",
            "gs@b",
            "abfss?sig=1",
        ] {
            assert!(is_nearly_url(Path::new(text)), "{text}");
        }
        for file in [
            "https/x",
            "s3/b/k",
            "azure",
            "https.txt",
            "https:x",
            "httpsx//y",
            "gs-a@b",
            "./s3//b",
            "a@b?c",
        ] {
            assert!(!is_nearly_url(Path::new(file)), "{file}");
        }
    }

    #[test]
    fn no_secret_is_shown() {
        let text = "https://user:pass@host:81/a%20b/c?X-Amz-Signature=0123abc&token=t#frag";
        let address = Address::parse(text).expect("a URL");
        assert_eq!(address.name(), Path::new("https://host:81/a b/c"));
        assert_eq!(format!("{address:?}"), r#"Address("https://host:81/a b/c")"#);
        assert_eq!(address.key(), "a b/c");
        assert_eq!(shown(&format!("s3://b/{}", escaped("a?b#c%d"))), Path::new("s3://b/a?b#c%d"));
        assert!(address.url().as_str().contains("0123abc"), "it is still asked for");
        for wrong in [
            "https://user:pass@/x?secret",
            "https://user:pass@h:99999/x?secret",
            "https://user:pass#secret@h/x",
            "https://user:12#secret@h/x",
            "https://user:pass?secret@h/x",
            " https://user:pass@h/x?secret",
            "https:/user:pass@h/x?secret",
            "https:/h/x?secret",
            "https//h/x?secret&from=s3://a@b",
            "user:pass@h/x?secret",
            "https//pass@h/x",
            "https//pass:secret@h/x",
            "https//pass@h:80/x",
            "https/pass@h/x?secret",
            "https/h/x?secret",
            "https:pass@h/x?secret",
            "https@pass@h",
            "s3?secret",
            "pass@h",
        ] {
            let error = Address::parse(wrong).expect_err("it is no URL");
            let said = format!("{error} {} {error:?}", error.hint());
            assert!(!said.contains("pass") && !said.contains("secret"), "{said}");
            assert!(!shown(wrong).to_string_lossy().contains("secret"));
            let (is_url, is_nearly) = (is_url(Path::new(wrong)), is_nearly_url(Path::new(wrong)));
            let is_known = ["https", "s3"].iter().any(|name| wrong.trim().starts_with(name));
            assert_eq!(is_url != is_nearly, is_known, "{wrong}");
        }
    }

    #[test]
    fn folders_have_their_objects() {
        for (url, folder, name) in [
            ("s3://b/a/k%201", "s3://b/a/", "k 1"),
            ("https://h/k?sig=1", "https://h/?sig=1", "k"),
            ("gs://b/k", "gs://b/", "k"),
            ("https://h/a/new%0Aline", "https://h/a/", "new\nline"),
            ("s3://b/%C3%BC%25", "s3://b/", "ü%"),
            ("https://h//k", "https://h//", "k"),
            ("https://h/a//k", "https://h/a//", "k"),
        ] {
            let address = Address::parse(url).expect("a URL");
            let (found, found_name) = address.split().expect("a name");
            assert_eq!((found.url().as_str(), &found_name[..]), (folder, name));
            assert_eq!(found.join(Path::new(&found_name)).url(), address.url());
        }
        // In Latin-1: its name as text would be that of another object.
        assert!(Address::parse("https://h/a/caf%E9.gguf").expect("a URL").split().is_none());
        // Nor is this the name of an object of the folder.
        for url in
            ["https://h/a/b%2Fc", "https://h/b%2F..%2Fc", "https://h/%2Fetc%2Fx", "s3://b/%2F"]
        {
            assert!(Address::parse(url).expect("a URL").split().is_none(), "{url}");
        }
        let folder = Address::parse("https://h/a").expect("a URL");
        // S3 takes a plus sign in a path for a blank.
        let object = folder.join(Path::new("b+c (1)/~d-e._f&=:@,;!$'*"));
        let path = "/a/b%2Bc%20%281%29/~d-e._f%26%3D%3A%40%2C%3B%21%24%27%2A";
        assert_eq!(object.url().path(), path);
        let object = folder.join(Path::new(OsStr::from_bytes(b"caf\xe9/\xff")));
        assert_eq!(object.url().path(), "/a/caf%E9/%FF", "byte for byte");
        let object = folder.join(Path::new("b?/c#"));
        assert_eq!(object.url().as_str(), "https://h/a/b%3F/c%23");
        assert_eq!(object.name(), Path::new("https://h/a/b?/c#"));
        assert!(Address::parse("https://h/a/").expect("a URL").split().is_none());
    }

    #[test]
    fn prefixes_end_with_a_slash() {
        for (url, is_prefix) in
            [("s3://b/k", false), ("s3://b/k/", true), ("s3://b", true), ("s3://b/", true)]
        {
            assert_eq!(Address::parse(url).expect("a URL").is_prefix(), is_prefix, "{url}");
        }
    }
}
