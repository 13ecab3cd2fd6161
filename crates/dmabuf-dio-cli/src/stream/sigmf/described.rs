// SPDX-License-Identifier: MIT OR Apache-2.0
//! The content of a description of samples.

use dmabuf_dio_stream::convert::{Layout, SampleType};
use dmabuf_dio_stream::{Channel, Format};
use serde_json::Value;

use super::datatype::{datatype, is_complex};
use super::names::FORMATS;

/// The contents of an existing description.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) rate: Option<f64>,
    global: Value,
    captures: Value,
}

impl Described {
    pub(crate) fn of_value(value: &Value) -> Self {
        let global = value["global"].clone();
        let rate = global["core:sample_rate"].as_f64().filter(|rate| *rate > 0.0);
        Self { rate, global, captures: value["captures"].clone() }
    }

    /// The layout of frames in the file; `None` if it is the device's own layout with these
    /// channels, or if the description does not say. The error says why the samples do not fit.
    pub(crate) fn layout(
        &self,
        channels: &[Channel],
        frame: u64,
    ) -> Result<Option<Layout>, String> {
        let has = |bytes: &Value| !bytes.is_null() && *bytes != 0;
        let headers = self
            .captures
            .as_array()
            .is_some_and(|all| all.iter().any(|part| has(&part["core:header_bytes"])));
        if headers || has(&self.global["core:trailing_bytes"]) {
            return Err("it contains other bytes besides samples".into());
        }
        let formats: Vec<Format> = channels.iter().map(|channel| channel.format).collect();
        let device = Layout::of(&formats);
        let exact = self.formats().map(|formats| Layout::of(&formats));
        let Some(found) = self.global["core:datatype"].as_str() else {
            return match exact {
                Some(layout) if layout.count() != device.count() => {
                    let (has, needs) = (layout.count(), device.count());
                    Err(format!("it has {has} values per frame, the device needs {needs}"))
                }
                exact => Ok(exact),
            };
        };
        let count = self.global["core:num_channels"].as_u64().unwrap_or(1);
        // Formats without a name in SigMF are described as bytes.
        let (bytes, number) = datatype(channels, frame, false);
        let as_bytes = (&*bytes, number) == (found, count) && device.frame() == count;
        if exact.is_none() && as_bytes {
            return Ok(None);
        }
        let named: Option<SampleType> = found.parse().ok();
        let by_name = || {
            let sample = named?;
            let values = count.checked_mul(if sample.complex { 2 } else { 1 })?;
            let same = values == device.count() as u64;
            same.then(|| Layout::uniform(sample.format, device.count()))
        };
        let exact = exact.filter(|layout| layout.count() == device.count());
        exact.or_else(by_name).map(Some).ok_or_else(|| {
            let (wanted, number) = datatype(channels, frame, is_complex(channels));
            format!("it has {found} x {count}, the device needs {wanted} x {number}")
        })
    }

    /// The exact formats, if they are described.
    pub(super) fn formats(&self) -> Option<Vec<Format>> {
        let formats = self.global[FORMATS].as_array()?;
        formats.iter().map(|format| format.as_str()?.parse().ok()).collect()
    }
}
