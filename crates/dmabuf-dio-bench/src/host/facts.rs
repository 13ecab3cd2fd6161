// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine of a measurement.

use dmabuf_dio::probe::available_memory;
use dmabuf_dio_terminal::exit::Failure;
use dmabuf_dio_terminal::signals;
use dmabuf_dio_terminal::size::show_size;

use crate::args::CommonArgs;
use crate::disk::DiskFile;
use crate::pattern::Pattern;
use crate::rows::Members;

/// Environment variable with the commit that was built.
const COMMIT: &str = "DMABUF_DIO_COMMIT";
/// Memory left free.
const RESERVE: u64 = 64 << 20;

/// Starts a measurement: handles signals, so that settings are restored, and collects the facts.
pub(crate) fn facts(args: &CommonArgs) -> Result<Members, Failure> {
    signals::token();
    let disk = DiskFile::create(&args.dir, None, 0, Pattern::new(0))?;
    let (uname, memory) = (rustix::system::uname(), rustix::system::sysinfo());
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    let device = disk.device();
    let memory_bytes = memory.totalram.saturating_mul(memory.mem_unit.into());
    Ok(vec![
        ("commit", std::env::var(COMMIT).ok().into()),
        ("kernel", text(uname.release()).into()),
        ("kernel_version", text(uname.version()).into()),
        ("machine", text(uname.machine()).into()),
        ("cpus", std::thread::available_parallelism().map_or(1, usize::from).into()),
        ("memory_bytes", memory_bytes.into()),
        ("file_system", disk.file_system().into()),
        ("device_model", device.as_deref().and_then(model).into()),
        ("device", device.into()),
        ("runs", args.runs.into()),
    ])
}

fn model(device: &str) -> Option<String> {
    let model = std::fs::read_to_string(format!("/sys/block/{device}/device/model")).ok()?;
    Some(model.trim().to_owned()).filter(|model| !model.is_empty())
}

/// Why buffers of `wanted` bytes do not fit into the available memory: allocating them would
/// invoke the OOM killer.
pub(crate) fn lack_of_memory(wanted: u64) -> Option<String> {
    let available = available_memory()?;
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
    available_memory().map_or(0, |available| (available / 8 * 7).saturating_sub(RESERVE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lack_of_memory_is_reported() {
        assert!(lack_of_memory(1 << 60).expect("a reason").contains("1048576 TiB"));
        assert_eq!(lack_of_memory(4096), None);
    }
}
