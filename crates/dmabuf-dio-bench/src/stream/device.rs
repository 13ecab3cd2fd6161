// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device at full speed.

use dmabuf_dio_stream::{Channel, Device, frame_bytes};
use dmabuf_dio_terminal::exit::{FAILED, Failure};

use super::usb::Usb;

/// An ADC with all its channels.
#[derive(Debug)]
pub(crate) struct Adc {
    /// What the user calls it.
    pub(crate) called: String,
    pub(crate) device: Device,
    pub(crate) channels: Vec<Channel>,
}

impl Adc {
    pub(crate) fn find(name: &str) -> Result<Self, Failure> {
        let device = Device::find(name).ok_or_else(|| {
            let hint = "name one: --device NAME (ls /sys/bus/iio/devices)";
            Failure::new(FAILED, format!("there is no IIO device {name}"), hint)
        })?;
        let channels = device.channels(0)?;
        // The simulated device then gives samples as fast as blocks come.
        let _ = device.set_rate(0, 0.0);
        Ok(Self { called: name.to_owned(), device, channels })
    }

    pub(crate) fn name(&self) -> &str {
        self.device.name()
    }

    pub(crate) fn frame(&self) -> u64 {
        frame_bytes(&self.channels)
    }

    /// The simulated device uses CPU time for work that real hardware does itself; this is disabled
    /// during measurements.
    pub(crate) fn set_sparse(&self, sparse: bool) {
        let _ = self.device.write("sparse", if sparse { "1" } else { "0" });
    }
}

impl Drop for Adc {
    fn drop(&mut self) {
        // As it was found.
        self.set_sparse(false);
        Usb::set_sparse(false);
    }
}
