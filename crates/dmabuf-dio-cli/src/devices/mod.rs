// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio devices`.

pub(crate) mod find;
pub(crate) mod video;

use std::io::Write as _;

use dmabuf_dio::Errno;
use dmabuf_dio_stream::{
    Available, BufferFacts, Channel, Device, DeviceFacts, DmaBufs, Encoding, Format, Holds,
    Trigger, User, VideoFacts,
};
use dmabuf_dio_terminal::exit::Failure;
use serde::Serialize;

use self::find::{one_iio, one_video, unknown};
use crate::args::DevicesArgs;
use crate::show::{Lines, json};

/// Width of the labels.
const LABELS: usize = "attributes".len();

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct DevicesOutput {
    schema: u32,
    devices: Vec<DeviceFacts>,
    triggers: Vec<Trigger>,
    video: Vec<VideoFacts>,
    /// The attributes, if one device was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<Vec<AttributeFacts>>,
}

#[derive(Debug, Serialize)]
struct AttributeFacts {
    name: String,
    /// `None` if it cannot be read.
    value: Option<String>,
    writable: bool,
    available: Option<Available>,
}

pub(crate) fn run(args: &DevicesArgs) -> Result<(), Failure> {
    let mut video = VideoFacts::all();
    let mut devices = DeviceFacts::all();
    let wanted = args.device.as_ref().map_or(Ok(None), |name| one_iio(name))?;
    if let (Some(name), None) = (&args.device, &wanted) {
        let node = one_video(name)?.ok_or_else(|| unknown(name, "IIO or video device"))?;
        video.retain(|facts| facts.node == node);
        devices.clear();
    } else if let Some(device) = &wanted {
        devices.retain(|facts| facts.id == device.id());
        video.clear();
    }
    let attributes = wanted.as_ref().map(attributes);
    let output = DevicesOutput { schema: 1, devices, triggers: Trigger::all(), video, attributes };
    let text = if args.json { json(&output)? } else { human(&output, args.device.is_some()) };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn attributes(device: &Device) -> Vec<AttributeFacts> {
    let facts = |attribute: dmabuf_dio_stream::Attribute| AttributeFacts {
        name: attribute.name().to_owned(),
        value: attribute.read().ok(),
        writable: attribute.is_writable(),
        available: attribute.available(),
    };
    device.attributes().into_iter().map(facts).collect()
}

fn human(output: &DevicesOutput, one_only: bool) -> String {
    let mut lines = Lines::new(LABELS);
    if output.devices.is_empty() && !one_only {
        lines.heading("There are no IIO devices: check that a driver is loaded (lsmod, dmesg)");
    }
    for device in &output.devices {
        one(&mut lines, device, &output.triggers);
    }
    for (number, attribute) in output.attributes.iter().flatten().enumerate() {
        let label = if number == 0 { "attributes" } else { "" };
        let value = attribute.value.as_deref().unwrap_or("(cannot be read)");
        let fixed = if attribute.writable { "" } else { ", fixed" };
        let offered =
            attribute.available.as_ref().map_or_else(String::new, |all| format!(", of: {all}"));
        lines.line(label, format!("{} = {value}{fixed}{offered}", attribute.name));
    }
    for device in &output.video {
        video::one(&mut lines, device, one_only);
    }
    lines.into_text()
}

fn one(lines: &mut Lines, device: &DeviceFacts, triggers: &[Trigger]) {
    let label = device.label.as_ref().map_or_else(String::new, |label| format!(", label {label}"));
    lines.heading(&format!("{}: {}{label}", device.id, device.name));
    if device.buffers.is_empty() {
        lines.line("buffers", "none: it has attributes only");
    }
    for buffer in &device.buffers {
        let number = format!("buffer {}", buffer.number);
        lines.line(
            &number,
            format!("{}; dma-bufs: {}", direction(buffer), dma_bufs(buffer.dma_bufs)),
        );
        lines.line("rate", rate(buffer));
        for (number, one) in buffer.channels.iter().enumerate() {
            let label = if number == 0 { "channels" } else { "" };
            let Channel { name, index, format } = &one.channel;
            let selected = if one.selected { ", selected" } else { "" };
            lines.line(label, format!("{index}: {name}, {}{selected}", layout(format)));
        }
    }
    if device.takes_trigger {
        let names: Vec<_> = triggers.iter().map(|trigger| &*trigger.name).collect();
        let all = if names.is_empty() { "there are none".into() } else { names.join(", ") };
        let current = device.trigger.as_deref().unwrap_or("none");
        lines.line("trigger", format!("{current}, of: {all}"));
    }
    lines.line("used by", users(device));
}

fn direction(buffer: &BufferFacts) -> &'static str {
    if buffer.output { "out" } else { "in" }
}

/// Whether blocks can be dma-bufs, and why not.
pub(crate) fn dma_bufs(dma_bufs: DmaBufs) -> String {
    match dma_bufs {
        DmaBufs::Yes => "yes".into(),
        DmaBufs::No(errno) if errno == Errno::NOTTY => {
            "no: the kernel is older than Linux 6.11".into()
        }
        DmaBufs::No(_) => {
            "no: the driver does not support them, samples are copied by the CPU".into()
        }
        DmaBufs::Unknown(errno) if errno == Errno::BUSY => "not known while it is in use".into(),
        DmaBufs::Unknown(errno) => format!("not known: {errno}"),
    }
}

fn rate(buffer: &BufferFacts) -> String {
    let Some(rate) = buffer.rate else { return "the device reports none".into() };
    let attribute = buffer.rate_attribute.as_deref().unwrap_or_default();
    let all = buffer.rates.as_ref().map_or_else(String::new, |rates| format!(", of: {rates}"));
    format!("{rate} frames per second ({attribute}){all}")
}

/// The layout of a sample as in sysfs: `le:s12/16>>4`.
fn layout(format: &Format) -> String {
    let order = if format.big_endian { "be" } else { "le" };
    let kind = match format.kind {
        Encoding::Unsigned => 'u',
        Encoding::Signed => 's',
        Encoding::Float => 'f',
    };
    let repeat = if format.repeat > 1 { format!("X{}", format.repeat) } else { String::new() };
    format!("{order}:{kind}{}/{}{repeat}>>{}", format.bits, format.storage_bits, format.shift)
}

fn users(device: &DeviceFacts) -> String {
    let one = |user: &User| {
        let what = match user.holds {
            Holds::Node => "has the device open",
            Holds::Buffer => "has a buffer open",
            Holds::SomeBuffer => "has a buffer open, of this device or another that is in use",
        };
        format!("{} (process {}), {what}", user.command, user.pid)
    };
    if !device.users.is_empty() {
        return device.users.iter().map(one).collect::<Vec<_>>().join("; ");
    }
    let used = device.buffers.iter().any(|buffer| buffer.open);
    if used {
        "a process of another user".into()
    } else if device.buffers.iter().any(|buffer| buffer.enabled) {
        "none, but a buffer is enabled: perhaps its last user was killed".into()
    } else {
        "nobody".into()
    }
}

/// Rows of `dmabuf-dio doctor`.
pub(crate) fn doctor(lines: &mut Lines, devices: &[DeviceFacts]) {
    lines.heading("IIO devices, for capture and replay");
    if devices.is_empty() {
        lines.line("", "no   there are none");
        lines.remedy(Some("load the driver of a device"));
    }
    for device in devices {
        let name = format!("{} {}", device.id, device.name);
        if device.buffers.is_empty() {
            lines.line("", format!("no   {name}: attributes only, for --set"));
        }
        for buffer in &device.buffers {
            let (state, remedy) = match buffer.dma_bufs {
                DmaBufs::Yes => ("yes", None),
                DmaBufs::No(_) => ("no ", None),
                DmaBufs::Unknown(errno) if errno == Errno::ACCESS => (
                    "no ",
                    Some(
                        "run as root, or add a udev rule that gives this user access to the device",
                    ),
                ),
                DmaBufs::Unknown(_) => ("?  ", None),
            };
            let (number, way) = (buffer.number, direction(buffer));
            let dma_bufs = dma_bufs(buffer.dma_bufs);
            lines
                .line("", format!("{state}  {name}, buffer {number}, {way}: dma-bufs: {dma_bufs}"));
            lines.remedy(remedy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_print_as_in_sysfs() {
        let mut format = Format {
            big_endian: false,
            kind: Encoding::Signed,
            bits: 12,
            storage_bits: 16,
            shift: 4,
            repeat: 1,
        };
        assert_eq!(layout(&format), "le:s12/16>>4");
        (format.big_endian, format.kind, format.repeat) = (true, Encoding::Float, 4);
        assert_eq!(layout(&format), "be:f12/16X4>>4");
    }
}
