// SPDX-License-Identifier: MIT OR Apache-2.0
//! The format of the samples in a file, which may differ from the device's.

use dmabuf_dio_stream::convert::{Layout, SampleType};
use dmabuf_dio_stream::{Channel, Converted, Format};
use dmabuf_dio_terminal::exit::{Failure, USAGE, say};

use super::device::Chosen;
use super::sigmf::datatype;
use super::sigmf::described::Described;
use crate::args::streams::{CaptureArgs, ReplayArgs};

/// The samples in the file of a capture.
pub(crate) struct Samples {
    /// The device's channels, with the format in the file.
    pub(crate) channels: Vec<Channel>,
    /// Bytes per frame.
    pub(crate) frame: u64,
    /// Whether they are pairs.
    pub(crate) iq: bool,
    /// The device's frames and the file's, if they differ.
    pub(crate) conversion: Option<(Layout, Layout)>,
}

impl Samples {
    /// The samples that a capture is to write.
    pub(crate) fn of(args: &CaptureArgs, chosen: &Chosen) -> Result<Self, Failure> {
        let Some(sample) = args.format else {
            let channels = chosen.channels.clone();
            let pairs = datatype::is_complex(&channels);
            if args.iq && !datatype::is_pairs(&channels, chosen.frame()) {
                return Err(no_pairs("--iq", chosen, "leave out --iq"));
            }
            let frame = chosen.frame();
            return Ok(Self { channels, frame, iq: args.iq || pairs, conversion: None });
        };
        let (from, to) = layouts(chosen, sample)?;
        let iq = args.iq || sample.complex;
        if iq && to.count() % 2 != 0 {
            let what = if sample.complex { format!("--format {sample}") } else { "--iq".into() };
            return Err(no_pairs(&what, chosen, "choose a real format"));
        }
        let each = |channel: &Channel| {
            let converted = Channel { format: sample.format, ..channel.clone() };
            std::iter::repeat_n(converted, channel.format.repeat as usize)
        };
        let channels = chosen.channels.iter().flat_map(each).collect();
        let frame = to.frame();
        Ok(Self { channels, frame, iq, conversion: (from != to).then_some((from, to)) })
    }

    /// The conversion of `frames` frames.
    pub(super) fn converted(&self, frames: u64) -> Option<Converted> {
        self.conversion.as_ref().map(|conversion| converted(conversion, frames))
    }
}

/// A conversion of `frames` frames.
pub(super) fn converted((from, to): &(Layout, Layout), frames: u64) -> Converted {
    Converted {
        from: from.to_string(),
        to: to.to_string(),
        from_frame_bytes: from.frame(),
        to_frame_bytes: to.frame(),
        frames,
    }
}

fn no_pairs(option: &str, chosen: &Chosen, otherwise: &str) -> Failure {
    let (count, names) = (chosen.channels.len(), chosen.describe());
    let what = format!("{option} needs pairs of channels of one type, not these {count}: {names}");
    Failure::new(USAGE, what, format!("choose them: --channels I,Q; or {otherwise}"))
}

/// Layouts of the device's frames and of a file's frames with this sample type.
fn layouts(chosen: &Chosen, sample: SampleType) -> Result<(Layout, Layout), Failure> {
    if let Some(channel) = chosen.channels.iter().find(|one| one.name.ends_with("timestamp")) {
        let what = format!("{} is not a sample and cannot be converted", channel.name);
        return Err(Failure::new(USAGE, what, "leave it out: --channels; or leave out --format"));
    }
    let device = device(chosen);
    let file = Layout::uniform(sample.format, device.count());
    Ok((device, file))
}

fn device(chosen: &Chosen) -> Layout {
    let formats: Vec<Format> = chosen.channels.iter().map(|channel| channel.format).collect();
    Layout::of(&formats)
}

/// The file's frames and the device's, if a replay has to convert them. `--format`, or else the
/// description, has the file's format. Without both it is the device's.
pub(crate) fn of_replay(
    args: &ReplayArgs,
    described: Option<&Described>,
    chosen: &Chosen,
) -> Result<Option<(Layout, Layout)>, Failure> {
    let wanted = device(chosen);
    let file = if let Some(sample) = args.format {
        layouts(chosen, sample)?.1
    } else {
        let Some(described) = described else { return Ok(None) };
        if args.force {
            let overridden = match described.layout(&chosen.channels, chosen.frame()) {
                Ok(Some(layout)) if layout != wanted => format!("it has {layout}"),
                Ok(_) => return Ok(None),
                Err(why) => why,
            };
            let file = args.file.display();
            say(&format!("dmabuf-dio: --force overrides the description of {file}: {overridden}"));
            return Ok(None);
        }
        match described.layout(&chosen.channels, chosen.frame()) {
            Ok(None) => return Ok(None),
            Ok(Some(layout)) => layout,
            Err(why) => {
                let (file, device) = (args.file.display(), chosen.device.name());
                return Err(Failure::new(
                    USAGE,
                    format!("{file} does not fit {device}: {why}"),
                    "choose other channels (--channels) or another file, or output it anyway: \
                     --force",
                ));
            }
        }
    };
    Ok((file != wanted).then_some((file, wanted)))
}
