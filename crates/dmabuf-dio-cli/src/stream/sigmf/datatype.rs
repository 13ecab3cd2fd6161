// SPDX-License-Identifier: MIT OR Apache-2.0
//! SigMF's names for the types of samples.

use dmabuf_dio_stream::Channel;
use dmabuf_dio_stream::convert::SampleType;

/// Whether SigMF's type describes the samples completely.
pub(super) fn is_plain(channels: &[Channel]) -> bool {
    channels.iter().all(|channel| {
        let sample = SampleType { complex: false, format: channel.format };
        sample.is_plain() && channel.format == channels[0].format
    })
}

/// For example `in_voltage0 (le:s12/16>>4)`.
pub(super) fn describe(channel: &Channel) -> String {
    format!("{} ({})", channel.name, channel.format)
}

/// SigMF's data type of a sample, and the number of samples per frame. Formats that SigMF cannot
/// express are bytes.
pub(super) fn datatype(channels: &[Channel], frame: u64, iq: bool) -> (String, u64) {
    let bytes = ("ru8".to_owned(), frame);
    let Some(first) = channels.first() else { return bytes };
    let count = channels.len() as u64;
    let complex = iq && count % 2 == 0;
    let uniform = channels.iter().all(|channel| channel.format == first.format);
    match (SampleType { complex, format: first.format }).sigmf() {
        Some(name) if uniform => (name, if complex { count / 2 } else { count }),
        _ => bytes,
    }
}

/// Whether SigMF can describe the channels as pairs.
pub(crate) fn is_pairs(channels: &[Channel], frame: u64) -> bool {
    datatype(channels, frame, true).0.starts_with('c')
}

/// Whether the channels are pairs of an in-phase and a quadrature part, by IIO's modifiers:
/// `voltage0_i`, `voltage0_q`.
pub(crate) fn is_complex(channels: &[Channel]) -> bool {
    channels.len() % 2 == 0
        && channels.chunks_exact(2).all(|pair| {
            let (i, q) = (pair[0].name.strip_suffix("_i"), pair[1].name.strip_suffix("_q"));
            i.is_some() && i == q
        })
}
