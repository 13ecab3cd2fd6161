// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources and destinations of samples that are not IIO devices: files, standard input and output,
//! FIFOs, sockets and USB.

use std::fmt;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The addresses, for messages.
pub(crate) const FORMS: &str =
    "FILE, -, tcp://HOST:PORT, tcp-listen://[HOST]:PORT, unix:PATH, unix-listen:PATH";

/// The other end of a capture or a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// Standard input or output.
    Standard,
    Tcp(String),
    TcpListen(String),
    Unix(PathBuf),
    UnixListen(PathBuf),
    /// A FIFO, a terminal or another character device.
    Special(PathBuf),
}

impl Address {
    /// The address that a text names; `None` if it names a file.
    pub(crate) fn parse(text: &str, used: Use) -> Result<Option<Self>, String> {
        let Some((scheme, rest)) = scheme(text) else {
            let path = Path::new(text);
            return Ok(match (text, used) {
                ("-", _) | ("/dev/stdin", Use::Read) | ("/dev/stdout", Use::Write) => {
                    Some(Self::Standard)
                }
                _ => is_special(path).then(|| Self::Special(path.into())),
            });
        };
        let host = || rest.strip_prefix("//").filter(|address| address.contains(':'));
        Ok(Some(match scheme {
            "tcp" => Self::Tcp(host().ok_or("write tcp://HOST:PORT")?.into()),
            "tcp-listen" => {
                let address = host().ok_or("write tcp-listen://[HOST]:PORT, such as ://:5000")?;
                Self::TcpListen(address.into())
            }
            "unix" if !rest.is_empty() => Self::Unix(rest.into()),
            "unix-listen" if !rest.is_empty() => Self::UnixListen(rest.into()),
            _ => return Err(format!("write {FORMS}; for a file of that name, ./NAME")),
        }))
    }
}

/// The scheme of an address, and the text after the colon.
pub(crate) fn scheme(text: &str) -> Option<(&str, &str)> {
    let is_scheme =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    text.split_once(':').filter(|(word, _)| is_scheme(word))
}

fn is_special(path: &Path) -> bool {
    let kind = path.metadata().map(|facts| facts.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_char_device())
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard => f.write_str("-"),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
            Self::TcpListen(address) => write!(f, "tcp-listen://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::UnixListen(path) => write!(f, "unix-listen:{}", path.display()),
            Self::Special(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The use of an open address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

/// The value of `--to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    File(PathBuf),
    To(Address),
    Usb(PathBuf),
    None,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("ffs:") {
            return Ok(Self::Usb(path.into()));
        }
        if text == "none" {
            return Ok(Self::None);
        }
        match Address::parse(text, Use::Write) {
            Ok(Some(address)) => Ok(Self::To(address)),
            Ok(None) => Ok(Self::File(text.into())),
            Err(error) if scheme(text).is_some_and(|(word, _)| word.contains("tcp")) => Err(error),
            Err(_) => {
                Err(format!("write {FORMS}, ffs:FOLDER or none; for a file of that name, ./NAME"))
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::To(address) => address.fmt(f),
            Self::Usb(path) => write!(f, "ffs:{}", path.display()),
            Self::None => f.write_str("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_kinds_are_distinguished() {
        let address = |text: &str| Address::parse(text, Use::Write).expect("no error");
        let input = |text: &str| Address::parse(text, Use::Read).expect("no error");
        assert_eq!(address("-"), Some(Address::Standard));
        assert_eq!(address("/dev/stdout"), Some(Address::Standard));
        assert_eq!(input("/dev/stdin"), Some(Address::Standard));
        assert_ne!(address("/dev/stdin"), Some(Address::Standard));
        assert_ne!(input("/dev/stdout"), Some(Address::Standard));
        assert_eq!(address("tcp://host:1"), Some(Address::Tcp("host:1".into())));
        assert_eq!(address("tcp-listen://:1"), Some(Address::TcpListen(":1".into())));
        assert_eq!(address("unix:/run/x"), Some(Address::Unix("/run/x".into())));
        assert_eq!(address("unix-listen:x"), Some(Address::UnixListen("x".into())));
        assert_eq!(address("/dev/null"), Some(Address::Special("/dev/null".into())));
        for file in ["x", "./tcp:x", "/a:b", "A:b", "./-", ":x"] {
            assert_eq!(address(file), None, "{file}");
        }
        let bad =
            ["tcp:host:1", "tcp://host", "tcp-listen:1", "udp://host:1", "unix:", "unix-listen:"];
        for text in bad {
            assert!(Address::parse(text, Use::Read).is_err(), "{text}");
        }
        for text in ["-", "tcp://a:1", "tcp-listen://:1", "unix:x", "unix-listen:x", "/dev/null"] {
            assert_eq!(address(text).map(|address| address.to_string()).as_deref(), Some(text));
        }
    }

    #[test]
    fn target_kinds_are_distinguished() {
        let target = |text: &str| text.parse::<Target>().expect("a target");
        assert_eq!(target("tcp://host:1"), Target::To(Address::Tcp("host:1".into())));
        assert_eq!(target("-"), Target::To(Address::Standard));
        assert_eq!(target("ffs:/dev/ffs/ep1"), Target::Usb("/dev/ffs/ep1".into()));
        assert_eq!(target("none"), Target::None);
        assert_eq!(target("a/none"), Target::File("a/none".into()));
        assert_eq!(target("./udp:x"), Target::File("./udp:x".into()));
        for text in ["tcp:host:1", "udp://host:1"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
