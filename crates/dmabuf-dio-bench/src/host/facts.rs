// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine of a measurement.

use dmabuf_dio_terminal::exit::{FAILED, Failure};
use dmabuf_dio_terminal::signals;
use dmabuf_dio_terminal::size::show_size;

use crate::args::CommonArgs;
use crate::buffer::transfer::pipe_size;
use crate::disk::{Caches, DiskFile};
use crate::report::json::Object;

/// Environment variable with the commit that was built.
const COMMIT: &str = "DMABUF_DIO_COMMIT";
/// Memory left free.
const RESERVE: u64 = 64 << 20;

#[derive(Debug)]
pub(crate) struct Facts {
    kernel: String,
    cpus: usize,
    memory_bytes: Option<u64>,
    file_system: Option<String>,
    /// The disk of the file system: its name in `/dev`, and its model.
    device: Option<String>,
    device_model: Option<String>,
    pub(crate) caches_dropped_by: &'static str,
    /// All of them.
    pub(crate) json: Object,
}

impl Facts {
    /// Starts a measurement: handles signals, so that settings are restored, and collects the facts.
    pub(crate) fn begin(args: &CommonArgs) -> Result<Self, Failure> {
        signals::token();
        Ok(Self::of(&DiskFile::create(&args.dir, 0)?, args))
    }

    pub(crate) fn of(disk: &DiskFile, args: &CommonArgs) -> Self {
        let uname = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let file = disk.facts();
        let device = disk.device().and_then(|(major, minor)| device(major, minor));
        let mut facts = Self {
            kernel: text(uname.release()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: meminfo("MemTotal"),
            file_system: file.file_system.clone(),
            device_model: device.as_deref().and_then(model),
            device,
            caches_dropped_by: Caches::new(args.keep_caches).how(),
            json: Object::default(),
        };
        facts.json = Object::default()
            .with("commit", std::env::var(COMMIT).ok())
            .with("kernel", facts.kernel.clone())
            .with("kernel_version", text(uname.version()))
            .with("machine", text(uname.machine()))
            .with("cpus", facts.cpus)
            .with("memory_bytes", facts.memory_bytes)
            .with("page_size", rustix::param::page_size())
            .with("file_system", facts.file_system.clone())
            .with("device", facts.device.clone())
            .with("device_model", facts.device_model.clone())
            .with("o_direct", file.o_direct)
            .with("offset_align", file.offset_align)
            .with("memory_align", file.memory_align)
            .with("pipe_size", pipe_size())
            .with("caches_dropped_by", facts.caches_dropped_by);
        facts
    }

    /// The disk's name in `/dev`.
    pub(crate) fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// A description in one line.
    pub(crate) fn line(&self) -> String {
        let file_system = self.file_system.as_deref().unwrap_or("an unknown file system");
        let mut line = format!("Linux {}, {}", self.kernel, file_system);
        if let Some(device) = &self.device {
            line += &format!(" on {device}");
        }
        if let Some(model) = &self.device_model {
            line += &format!(" ({model})");
        }
        let plural = if self.cpus == 1 { "" } else { "s" };
        line += &format!(", {} CPU{plural}", self.cpus);
        if let Some(memory) = self.memory_bytes {
            line += &format!(", {} of memory", show_size(memory));
        }
        line
    }
}

/// The name of a block device: that of the disk, not of its partition.
fn device(major: u32, minor: u32) -> Option<String> {
    let link = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let is_partition = link.join("partition").exists();
    let disk = if is_partition { link.parent()? } else { &link };
    Some(disk.file_name()?.to_str()?.to_owned())
}

fn model(device: &str) -> Option<String> {
    let model = std::fs::read_to_string(format!("/sys/block/{device}/device/model")).ok()?;
    Some(model.trim().to_owned()).filter(|model| !model.is_empty())
}

/// A field of `/proc/meminfo`, in bytes.
fn meminfo(field: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: u64 = value.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Why buffers of `wanted` bytes do not fit into the available memory: allocating them would
/// invoke the OOM killer.
pub(crate) fn lack_of_memory(wanted: u64) -> Option<String> {
    let available = meminfo("MemAvailable")?;
    (wanted.saturating_add(RESERVE) > available).then(|| {
        format!(
            "{} do not fit into memory: {} are available, of which {} are kept free",
            show_size(wanted),
            show_size(available),
            show_size(RESERVE)
        )
    })
}

/// Memory that can be allocated without invoking the OOM killer.
pub(crate) fn spare_memory() -> u64 {
    // Some of what is available only looks so.
    meminfo("MemAvailable").map_or(0, |available| (available / 8 * 7).saturating_sub(RESERVE))
}

/// Fails if buffers of `wanted` bytes do not fit into memory.
pub(crate) fn ensure_memory(wanted: u64) -> Result<(), Failure> {
    match lack_of_memory(wanted) {
        None => Ok(()),
        Some(lack) => Err(Failure::new(FAILED, lack, "choose fewer --buffers or a smaller --size")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lack_of_memory_is_reported() {
        assert!(lack_of_memory(1 << 60).expect("a reason").contains("1048576 TiB"));
        assert_eq!(lack_of_memory(4096), None);
        assert!(ensure_memory(u64::MAX).is_err());
    }
}
