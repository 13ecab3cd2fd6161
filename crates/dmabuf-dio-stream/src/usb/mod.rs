// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams to and from a USB host: endpoints of a user-space function, on a device controller with
//! scatter-gather (`Documentation/usb/functionfs.rst`).

mod endpoint;
mod function;

pub use endpoint::{UsbSink, UsbSource};
pub use function::Function;
