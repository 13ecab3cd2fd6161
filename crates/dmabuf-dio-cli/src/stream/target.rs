// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens the destination of a capture.

use std::os::fd::OwnedFd;

use dmabuf_dio::CancelToken;
use dmabuf_dio_stream::{Discard, FdSink, FileSink, Function, Sink, SocketSink, UsbSink};
use dmabuf_dio_terminal::exit::{Failure, say};
use rustix::net::AddressFamily;

use super::connect::{is_stdout, nobody};
use crate::args::address::{Address, Target, Use};

/// An open sink.
pub(crate) struct Open<'a> {
    pub(crate) sink: Box<dyn Sink + 'a>,
    /// The samples go to standard output.
    pub(crate) is_stdout: bool,
    /// The USB function that the sink needs, if it is ours. Kept as long as the sink.
    pub(crate) _function: Option<Function>,
}

impl<'a> Open<'a> {
    pub(crate) fn new(sink: impl Sink + 'a) -> Self {
        Self { sink: Box::new(sink), is_stdout: false, _function: None }
    }
}

impl Target {
    /// Opens the destination of frames of `frame` bytes, and waits for a USB host or another reader.
    pub(crate) fn open(&self, frame: u64, cancel: &CancelToken) -> Result<Open<'static>, Failure> {
        Ok(match self {
            Self::None => Open::new(Discard::default()),
            Self::File(path) => Open::new(FileSink::create(path)?),
            Self::To(address) => {
                let (fd, name) = address.open(Use::Write, cancel)?;
                let is_stdout = *address == Address::Standard || is_stdout(&fd);
                Open { is_stdout, sink: connected(fd, name, frame)?, _function: None }
            }
            Self::Usb(path) if path.is_dir() => {
                let mut ours = Function::new(path)?;
                say("dmabuf-dio: waiting for a USB host: bind the gadget if it is not bound \
                     (echo CONTROLLER > /sys/kernel/config/usb_gadget/NAME/UDC)");
                if !ours.wait(cancel)? {
                    return Err(nobody());
                }
                let sink = UsbSink::open(ours.endpoint())?;
                Open { _function: Some(ours), ..Open::new(sink) }
            }
            Self::Usb(path) => Open::new(UsbSink::open(path)?),
        })
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
