// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices of the Industrial I/O subsystem: their features, their attributes, and streams of their
//! samples.

mod attribute;
pub(crate) mod available;
mod buffer;
mod device;
mod ends;
pub(crate) mod facts;
mod fileio;
mod repeat;
mod settings;
mod status;
#[cfg(test)]
mod sysfs;
mod trigger;
mod users;

pub use attribute::Attribute;
pub use available::{Available, Left};
pub use device::{Channel, Device, frame_bytes};
pub use ends::{IioSink, IioSource};
pub use facts::{BufferFacts, ChannelFacts, DeviceFacts, DmaBufs};
pub use repeat::Repeat;
pub use settings::{Setting, Settings};
pub use trigger::Trigger;
pub use users::{Holds, User};
