// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dmabuf-dio doctor`.

use std::io::Write as _;

use dmabuf_dio::probe::{self, FileFacts, Lending, SecureBoot, System};
use dmabuf_dio_stream::{DeviceFacts, VideoFacts};
use dmabuf_dio_terminal::exit::Failure;
use dmabuf_dio_terminal::size::show_size;
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::devices;
use crate::show::{Lines, exact, json, mapped};

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct DoctorOutput<'a> {
    schema: u32,
    #[serde(flatten)]
    system: &'a System,
    iio: &'a [DeviceFacts],
    video: &'a [VideoFacts],
    file: Option<&'a FileFacts>,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let system = probe::system();
    let (iio, video) = (DeviceFacts::all(), VideoFacts::all());
    let file = args.file.as_ref().map(probe::file).transpose()?;
    let text = if args.json {
        let output = DoctorOutput {
            schema: 1,
            system: &system,
            iio: &iio,
            video: &video,
            file: file.as_ref(),
        };
        json(&output)?
    } else {
        human(&system, &iio, &video, file.as_ref())
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn human(
    system: &System,
    iio: &[DeviceFacts],
    video: &[VideoFacts],
    file: Option<&FileFacts>,
) -> String {
    let longest = system.backends.iter().map(|status| status.backend.name().len()).max();
    let mut lines = Lines::new(longest.unwrap_or(0));
    lines.line(
        "kernel",
        format!("{}, {}, pages of {}", system.kernel, system.machine, show_size(system.page_size)),
    );
    lines.heading("Backends, in the order a load tries them");
    for status in &system.backends {
        match (&status.detail, &status.refusal) {
            (Some(detail), _) => lines.line(status.backend.name(), format!("yes  {detail}")),
            (None, Some(refusal)) => {
                let errno = refusal.errno.map_or_else(String::new, |errno| format!(": {errno}"));
                lines.line(status.backend.name(), format!("no   {}{errno}", refusal.reason));
                lines.remedy(refusal.remedy.as_deref());
            }
            (None, None) => lines.line(status.backend.name(), "no"),
        }
    }
    lines.heading("Devices");
    for device in &system.devices {
        let state = match (&device.error, &device.detail) {
            (Some(errno), _) => format!("no   {}: {errno}", device.path),
            (None, Some(detail)) => format!("yes  {}: {detail}", device.path),
            (None, None) => format!("yes  {}", device.path),
        };
        lines.line("", state);
    }
    if let Some(secure_boot) = &system.secure_boot {
        lines.heading("Secure Boot, which has the kernel load signed modules only");
        signed(&mut lines, secure_boot);
    }
    if let Some(lending) = &system.lending {
        lines.heading("Exporters that the kernel module borrows pages from");
        lenders(&mut lines, lending);
    }
    devices::doctor(&mut lines, iio);
    devices::video::doctor(&mut lines, video);
    lines.heading("Memory and io_uring");
    memory(&mut lines, system);
    if let Some(file) = file {
        lines.heading("File");
        facts(&mut lines, file);
    }
    lines.into_text()
}

fn signed(lines: &mut Lines, secure_boot: &SecureBoot) {
    let state = match (&secure_boot.key, secure_boot.enrolled) {
        (None, _) => "no   DKMS has no key yet: it makes one when it builds the module".into(),
        (Some(key), true) => format!("yes  DKMS's key is enrolled: {key}"),
        (Some(key), false) => format!("no   DKMS's key is not enrolled: {key}"),
    };
    lines.line("", state);
    lines.remedy(secure_boot.remedy.as_deref());
}

fn lenders(lines: &mut Lines, lending: &Lending) {
    lines.line("", "yes  the module's own buffers, made by loads");
    for lender in &lending.tried {
        let from = format!("{}, from {}", lender.exporter, lender.path);
        match &lender.refusal {
            None => lines.line("", format!("yes  {from}")),
            Some(refusal) => {
                lines.line("", format!("no   {from}: {}", refusal.reason));
                lines.remedy(refusal.remedy.as_deref());
            }
        }
    }
    for device in &lending.drm {
        let from = format!("buffers of the driver {}, from {}", device.driver, device.path);
        if device.is_known {
            lines.line("", format!("yes  {from}, if the device needs no synchronisation"));
        } else {
            lines.line("", format!("no   {from}: they may move, or are not ordinary memory"));
            lines.remedy(Some("let the device import a dma-buf of one of the others"));
        }
    }
    if !lending.exporters.is_empty() {
        let names = lending.exporters.join(", ");
        lines.line("", format!("also, at the administrator's risk: {names}"));
    }
}

fn yes(value: bool) -> &'static str {
    if value { "yes" } else { "no " }
}

fn memory(lines: &mut Lines, system: &System) {
    let huge = &system.huge_pages;
    let number = |value: Option<u64>| value.map_or_else(|| "?".into(), |value| value.to_string());
    lines.line(
        "huge pages",
        format!(
            "{}  transparent, for shared memory: shmem_enabled is {}",
            yes(huge.transparent),
            huge.shmem_enabled.as_deref().unwrap_or("missing")
        ),
    );
    lines.line("", format!("{}  collapsed from small pages (MADV_COLLAPSE)", yes(huge.collapsed)));
    lines.line(
        "",
        format!(
            "{}  reserved: {} of {} free in the pool, {} more on demand",
            yes(huge.reserved),
            number(huge.free),
            number(huge.pool),
            number(huge.overcommit)
        ),
    );
    lines.remedy(huge.remedy.as_deref());
    let ring = &system.io_uring;
    let disabled = ring
        .disabled
        .map_or_else(String::new, |value| format!("kernel.io_uring_disabled is {value}, "));
    let memlock = ring.memlock.map_or_else(|| "unlimited".into(), show_size);
    lines.line(
        "io_uring",
        format!("{}  {disabled}RLIMIT_MEMLOCK is {memlock}", yes(ring.available)),
    );
    if let Some(refusal) = &ring.refusal {
        lines.line("", format!("     {}", refusal.reason));
        lines.remedy(refusal.remedy.as_deref());
    }
}

fn facts(lines: &mut Lines, file: &FileFacts) {
    lines.line("path", &file.path);
    lines.line("length", exact(file.length));
    lines.line("file system", file.file_system.as_deref().unwrap_or("unknown"));
    let direct = match (file.o_direct_open, file.o_direct_read) {
        (Some(errno), _) => format!("no   open: {errno}; loads go through the page cache"),
        (None, Some(errno)) => format!("no   read: {errno}; loads go through the page cache"),
        (None, None) => "yes  a test read succeeded".into(),
    };
    lines.line("O_DIRECT", direct);
    if let (Some(offset), Some(memory)) = (file.offset_align, file.memory_align) {
        lines.line(
            "alignment",
            format!("file offsets: multiples of {offset}; buffer offsets: of {memory}"),
        );
    }
    if let Some(cached) = file.cached {
        lines.line("page cache", exact(cached));
    }
    if let Some(dma) = &file.dma {
        lines.line("DMA", mapped(dma));
    }
}
