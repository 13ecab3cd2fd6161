// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine of a measurement.

use std::thread::available_parallelism;

use dmabuf_dio_terminal::exit::Failure;
use dmabuf_dio_terminal::signals;

use crate::args::CommonArgs;
use crate::disk::DiskFile;
use crate::pattern::Pattern;
use crate::rows::Members;

/// Environment variable with the commit that was built.
const COMMIT: &str = "DMABUF_DIO_COMMIT";

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
        ("cpus", available_parallelism().map_or(1, usize::from).into()),
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
