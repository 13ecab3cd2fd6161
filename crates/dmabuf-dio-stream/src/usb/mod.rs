// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams to a USB host: a user-space function, on a device controller with scatter-gather
//! (`Documentation/usb/functionfs.rst`).

mod endpoint;
mod function;

pub use endpoint::UsbSink;
pub use function::Function;
