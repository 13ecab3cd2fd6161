// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams of sample blocks from a source to a sink, without CPU copies.
//!
//! A [`BlockRing`] holds a few dma-bufs. A [`Source`] fills them, a [`Sink`] empties them, and
//! [`Stream::run`] passes them on until a limit is reached or it is cancelled. Lost data is
//! counted, and the position of every gap is reported.
//!
//! | | source | sink |
//! |---|---|---|
//! | an IIO device | [`IioSource`] | [`IioSink`], [`Repeat`] |
//! | a video capture device | [`VideoSource`] | |
//! | a file | [`FileSource`] | [`FileSink`], [`RotatingSink`] |
//! | a USB host | | [`UsbSink`] |
//! | a TCP connection | [`FdSource`] | [`SocketSink`] |
//! | a pipe, a Unix socket | [`FdSource`] | [`FdSink`] |
//! | nothing | | [`Discard`] |
//! | samples in another format | [`ConvertingSource`] | [`ConvertingSink`] |
//!
//! A [`Capture`] passes the blocks of a source to the program instead of a sink, one at a time.
//!
//! ```no_run
//! use dmabuf_dio_stream::{Device, FileSink, IioSource, BlockRing, Stream};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::find("cf-ad9361-lpc").ok_or("no such device")?;
//! let mut source = IioSource::open(device.clone(), 0, &device.channels(0)?)?;
//! let mut sink = FileSink::create("capture.bin")?;
//! let ring = BlockRing::new(8, 4 << 20)?;
//! let summary = Stream::new(&mut source, &mut sink, ring).limit(1 << 30).run()?;
//! println!("{} bytes by {}, {} gaps", summary.bytes, summary.sink, summary.gaps.len());
//! # Ok(())
//! # }
//! ```

#![cfg(target_os = "linux")]

mod capture;
pub mod convert;
mod copied;
mod discard;
#[cfg(any(test, fuzzed))]
#[path = "../../../tests/drawn.rs"]
mod drawn;
mod ends;
mod error;
mod fenced;
mod file;
mod format;
#[cfg(any(test, fuzzed))]
#[doc(hidden)]
pub mod fuzzing;
mod gaps;
mod iio;
#[cfg(test)]
#[path = "../../../tests/fuzz/library/kept.rs"]
mod kept_inputs;
mod net;
mod numbered;
#[cfg(any(test, fuzzed))]
mod properties;
mod pump;
mod ring;
mod usb;
mod v4l2;
mod wait;

pub use capture::{Capture, Captured, Losses};
pub use convert::adapter::{Converted, ConvertingSink, ConvertingSource};
pub use discard::Discard;
pub use ends::{Facts, Live, Pending, Sink, Source};
pub use error::{Error, Refused, Result};
pub use file::{FileSink, FileSource, RotatingSink};
pub use format::{Encoding, Format};
pub use gaps::{Gap, Loss, Reading};
pub use iio::{
    Attribute, Available, BufferFacts, Channel, ChannelFacts, Device, DeviceFacts, DmaBufs, Holds,
    IioSink, IioSource, Left, Repeat, Setting, Settings, Trigger, User, frame_bytes,
};
pub use net::{FdSink, FdSource, SocketSink};
pub use pump::{Begin, Interrupted, Known, Overrun, State, Stream, Summary};
pub use ring::{BlockRing, Filled, RingUse, available};
pub use usb::{Function, UsbSink};
pub use v4l2::{
    Clock, Frame, FrameLog, FrameMemory, FrameSizes, OfferedFormat, PixelFormat, VideoDevice,
    VideoFacts, VideoFormat, VideoSource,
};
pub use wait::Wait;
