// SPDX-License-Identifier: MIT OR Apache-2.0
//! The destination of a capture.

use std::fmt;
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use dmabuf_dio::CancelToken;
use dmabuf_dio_stream::{Discard, FileSink, Function, Sink, SocketSink, UsbSink};

use crate::exit::{FAILED, Failure, USAGE, say};
use crate::size::show_size;

/// Space behind the end of a file that is worth a word, in bytes.
const LEFT: u64 = 4 << 20;

/// The value of `--to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    File(PathBuf),
    Tcp(String),
    Usb(PathBuf),
    None,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scheme = text.split_once(':').filter(|(scheme, _)| {
            !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_lowercase())
        });
        if text == "-" || scheme.is_some_and(|(scheme, _)| scheme != "tcp" && scheme != "ffs") {
            return Err(
                "write FILE, tcp://HOST:PORT, ffs:FOLDER or none; for a file of that name, \
                        ./NAME"
                    .into(),
            );
        }
        if scheme.is_some_and(|(scheme, rest)| scheme == "tcp" && !rest.starts_with("//")) {
            return Err("write tcp://HOST:PORT".into());
        }
        Ok(if let Some(address) = text.strip_prefix("tcp://") {
            Self::Tcp(address.into())
        } else if let Some(path) = text.strip_prefix("ffs:") {
            Self::Usb(path.into())
        } else if text == "none" {
            Self::None
        } else {
            Self::File(text.into())
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
            Self::Usb(path) => write!(f, "ffs:{}", path.display()),
            Self::None => f.write_str("none"),
        }
    }
}

/// An open sink, and the USB function that it needs.
pub(crate) struct Open {
    sink: Box<dyn Sink>,
    function: Option<Function>,
}

impl Open {
    /// The sink, and what has to live as long.
    pub(crate) fn into_parts(self) -> (Box<dyn Sink>, Option<Function>) {
        (self.sink, self.function)
    }
}

impl Target {
    /// Opens the destination and waits for a USB host. `None` if that was interrupted.
    pub(crate) fn open(&self, cancel: &CancelToken) -> Result<Option<Open>, Failure> {
        let mut function = None;
        let sink: Box<dyn Sink> = match self {
            Self::None => Box::new(Discard::default()),
            Self::File(path) => Box::new(FileSink::create(path)?),
            Self::Tcp(address) => Box::new(connect(address)?),
            Self::Usb(path) if path.is_dir() => {
                let mut ours = Function::new(path)?;
                say("dmabuf-dio: waiting for a USB host: bind the gadget if it is not bound \
                     (echo CONTROLLER > /sys/kernel/config/usb_gadget/NAME/UDC)");
                if !ours.wait(cancel)? {
                    return Ok(None);
                }
                let sink = UsbSink::open(ours.endpoint())?;
                function = Some(ours);
                Box::new(sink)
            }
            Self::Usb(path) => Box::new(UsbSink::open(path)?),
        };
        Ok(Some(Open { sink, function }))
    }
}

/// Fails if the path exists, unless `force` is set.
pub(crate) fn refuse_to_replace(path: &Path, force: bool) -> Result<(), Failure> {
    if force || !path.exists() {
        return Ok(());
    }
    let what = format!("{} exists already", path.display());
    let hint = "choose another name, or replace it: --force";
    Err(Failure::new(USAGE, what, format!("{hint}{}", left_allocated(path).unwrap_or_default())))
}

/// How to release the space behind the end of a file, if much is allocated there: a killed capture
/// cannot.
fn left_allocated(path: &Path) -> Option<String> {
    let facts = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let (length, beyond) = (facts.len(), (facts.blocks() * 512).checked_sub(facts.len())?);
    (beyond > LEFT).then(|| {
        format!(
            ". {} are allocated behind its end, as a killed capture leaves them; this releases \
             them: truncate -s {length} {}",
            show_size(beyond),
            path.display()
        )
    })
}

fn connect(address: &str) -> Result<SocketSink, Failure> {
    let name = format!("tcp://{address}");
    let socket = TcpStream::connect(address).map_err(|error| {
        let hint = "write tcp://HOST:PORT of a listener: nc -l -p PORT > samples";
        Failure::new(FAILED, format!("{name}: cannot connect: {error}"), hint)
    })?;
    Ok(SocketSink::new(socket, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_told_apart() {
        let target = |text: &str| text.parse::<Target>().expect("a target");
        assert_eq!(target("tcp://host:1"), Target::Tcp("host:1".into()));
        assert_eq!(target("ffs:/dev/ffs/ep1"), Target::Usb("/dev/ffs/ep1".into()));
        assert_eq!(target("none"), Target::None);
        assert_eq!(target("a/none"), Target::File("a/none".into()));
        assert_eq!(target("./udp:x"), Target::File("./udp:x".into()));
        for text in ["-", "tcp:host:1", "udp://host:1"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
