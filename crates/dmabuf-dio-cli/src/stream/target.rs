// SPDX-License-Identifier: MIT OR Apache-2.0
//! The destination of a capture.

use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use dmabuf_dio::CancelToken;
use dmabuf_dio_stream::{Discard, FdSink, FileSink, Function, Sink, SocketSink, UsbSink};
use dmabuf_dio_terminal::exit::{Failure, USAGE, say};
use dmabuf_dio_terminal::size::show_size;
use rustix::net::AddressFamily;

use super::address::{self, Address, Use};

/// Space beyond the end of a file that is worth reporting, in bytes.
const LEFT: u64 = 4 << 20;

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
            Err(error) if address::scheme(text).is_some_and(|(word, _)| word.contains("tcp")) => {
                Err(error)
            }
            Err(_) => Err(format!(
                "write {}, ffs:FOLDER or none; for a file of that name, ./NAME",
                address::FORMS
            )),
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

/// An open sink, and the USB function that it needs.
pub(crate) struct Open {
    pub(crate) sink: Box<dyn Sink>,
    /// The samples go to standard output.
    pub(crate) is_stdout: bool,
    function: Option<Function>,
}

impl Open {
    /// The sink, and what must exist as long.
    pub(crate) fn into_parts(self) -> (Box<dyn Sink>, Option<Function>) {
        (self.sink, self.function)
    }
}

impl Target {
    /// Opens the destination of frames of `frame` bytes, and waits for a USB host or another reader.
    /// `None` if that was interrupted.
    pub(crate) fn open(&self, frame: u64, cancel: &CancelToken) -> Result<Option<Open>, Failure> {
        let (mut function, mut is_stdout) = (None, false);
        let sink: Box<dyn Sink> = match self {
            Self::None => Box::new(Discard::default()),
            Self::File(path) => Box::new(FileSink::create(path)?),
            Self::To(address) => {
                let Some((fd, name)) = address.open(Use::Write, cancel)? else { return Ok(None) };
                is_stdout = *address == Address::Standard || address::is_stdout(&fd);
                connected(fd, name, frame)?
            }
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
        Ok(Some(Open { sink, is_stdout, function }))
    }
}

/// A sink to a descriptor: TCP takes pages without a copy.
fn connected(fd: OwnedFd, name: String, frame: u64) -> Result<Box<dyn Sink>, Failure> {
    let domain = rustix::net::sockopt::socket_domain(&fd);
    if matches!(domain, Ok(AddressFamily::INET | AddressFamily::INET6)) {
        return Ok(Box::new(SocketSink::new(fd, name)));
    }
    Ok(Box::new(FdSink::new(fd, name, frame)?))
}

/// Fails if the path exists, unless `force` is set.
pub(crate) fn refuse_to_replace(path: &Path, force: bool) -> Result<(), Failure> {
    if force || !path.exists() {
        return Ok(());
    }
    let what = format!("{} already exists", path.display());
    let hint = "choose another name, or replace it: --force";
    Err(Failure::new(USAGE, what, format!("{hint}{}", left_allocated(path).unwrap_or_default())))
}

/// How to release the space beyond the end of a file, if much is allocated there: a killed capture
/// cannot.
fn left_allocated(path: &Path) -> Option<String> {
    let facts = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let (length, beyond) = (facts.len(), (facts.blocks() * 512).checked_sub(facts.len())?);
    (beyond > LEFT).then(|| {
        format!(
            ". {} are allocated beyond its end, as a killed capture leaves them; this releases \
             them: truncate -s {length} {}",
            show_size(beyond),
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
