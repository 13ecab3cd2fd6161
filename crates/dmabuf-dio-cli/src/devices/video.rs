// SPDX-License-Identifier: MIT OR Apache-2.0
//! Video devices in `dmabuf-dio devices` and `dmabuf-dio doctor`.

use dmabuf_dio::Errno;
use dmabuf_dio_stream::{DmaBufs, FrameSizes, OfferedFormat, VideoFacts};

use crate::show::Lines;

/// The rows of one device. `all`: also the sizes of each format.
pub(crate) fn one(lines: &mut Lines, device: &VideoFacts, all: bool) {
    let VideoFacts { node, name, driver, bus, .. } = device;
    let node = node.display();
    if let (true, DmaBufs::Unknown(errno)) = (name.is_empty(), device.dma_bufs) {
        lines.heading(&format!("{node}: cannot open it: {errno}"));
        return;
    }
    lines.heading(&format!("{node}: {name}, video ({driver}, {bus})"));
    lines.line("dma-bufs", dma_bufs(device.dma_bufs));
    let planar = if device.multi_planar { ", multi-planar" } else { "" };
    lines.line(
        "format",
        match &device.format {
            Some(format) => {
                let most = if format.compressed { "at most " } else { "" };
                let rate =
                    device.rate.map_or_else(String::new, |rate| format!(", {rate} per second"));
                format!("{format}, frames of {most}{} bytes{rate}{planar}", format.frame_bytes)
            }
            None => format!("one that is not captured: choose another (--pixel-format){planar}"),
        },
    );
    if !all {
        let names: Vec<_> = device.formats.iter().map(|one| one.pixel_format.to_string()).collect();
        lines.line("formats", names.join(", "));
        return;
    }
    for (number, format) in device.formats.iter().enumerate() {
        let label = if number == 0 { "formats" } else { "" };
        lines.line(label, offered(format));
    }
}

/// For example `NV12 (Y/UV 4:2:0): 640x480, 1920x1080`.
fn offered(format: &OfferedFormat) -> String {
    let OfferedFormat { pixel_format, description, compressed, sizes } = format;
    let sizes: Vec<_> = sizes.iter().map(FrameSizes::to_string).collect();
    let compressed = if *compressed { ", compressed" } else { "" };
    let colon = if sizes.is_empty() { "" } else { ": " };
    format!("{pixel_format} ({description}{compressed}){colon}{}", sizes.join(", "))
}

/// Whether a device imports dma-bufs, and why not.
fn dma_bufs(dma_bufs: DmaBufs) -> String {
    match dma_bufs {
        DmaBufs::Yes => "yes".into(),
        DmaBufs::No(_) => {
            "no: its driver cannot import them, frames are copied from its own buffers".into()
        }
        DmaBufs::Unknown(Errno::BUSY) => "not known while it is in use".into(),
        DmaBufs::Unknown(errno) => format!("not known: {errno}"),
    }
}

/// Rows of `dmabuf-dio doctor`.
pub(crate) fn doctor(lines: &mut Lines, devices: &[VideoFacts]) {
    lines.heading("Video devices");
    if devices.is_empty() {
        lines.line("", "no   there are none");
    }
    for device in devices {
        let state = match device.dma_bufs {
            DmaBufs::Yes => "yes",
            DmaBufs::Unknown(Errno::BUSY) => "?  ",
            _ => "no ",
        };
        let (node, name) = (device.node.display(), &device.name);
        let dma_bufs = dma_bufs(device.dma_bufs);
        lines.line("", format!("{state}  {node} {name}: dma-bufs: {dma_bufs}"));
        if device.dma_bufs == DmaBufs::Unknown(Errno::ACCESS) {
            lines.remedy(Some("run as root, or add this user to the group video"));
        }
    }
}
