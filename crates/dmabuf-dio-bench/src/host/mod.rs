// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine: facts, memory and the files that are loaded into it, settings of its kernel.

pub(crate) mod setting;

use std::path::Path;
use std::thread::available_parallelism;

use dmabuf_dio::probe::available_memory;
use dmabuf_dio_terminal::exit::Failure;
use dmabuf_dio_terminal::signals;
use dmabuf_dio_terminal::size::show_size;
use serde_json::Value;

use crate::args::CommonArgs;
use crate::buffer::mapping::{Mapping, Pages};
use crate::disk::{DiskFile, has_room};
use crate::outcome::{Result, Status, Trouble};
use crate::pattern::Pattern;

/// Environment variable with the commit that was built.
const COMMIT: &str = "DMABUF_DIO_COMMIT";
/// Memory left free.
const RESERVE: u64 = 64 << 20;
/// Memory is touched in pieces of this size, between which interruption is checked for.
const PIECE: u64 = 256 << 20;

/// Starts a measurement: handles signals, so that settings are restored, and collects the facts.
pub(crate) fn facts(args: &CommonArgs) -> Result<Vec<(&'static str, Value)>> {
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
        ("file_system", disk.file_system.clone().into()),
        ("device_model", device.as_deref().and_then(model).into()),
        ("device", device.into()),
        ("runs", args.runs.into()),
    ])
}

fn model(device: &str) -> Option<String> {
    let model = std::fs::read_to_string(format!("/sys/block/{device}/device/model")).ok()?;
    Some(model.trim().to_owned()).filter(|model| !model.is_empty())
}

/// Writes so many files of that size, for ways that need so much memory; or says why there are none. With an
/// `ending` they have names.
pub(crate) fn prepare(
    dir: &Path,
    ending: Option<&str>,
    (count, bytes): (u64, u64),
    memory: u64,
    content: impl Fn(u64) -> Pattern,
) -> Result<Result<Vec<DiskFile>>, Failure> {
    let make = || -> Result<Vec<_>> {
        lack_of_memory(memory)?;
        has_room(dir, bytes.saturating_mul(count))?;
        (0..count).map(|it| DiskFile::create(dir, ending, bytes, content(it))).collect()
    };
    let files = make().map_err(|trouble| Trouble { status: Status::Unavailable, ..trouble });
    Failure::if_interrupted()?;
    if files.is_ok() {
        touch_memory(memory);
    }
    Ok(files)
}

/// Fails if buffers of `wanted` bytes do not fit into the available memory: allocating them would
/// invoke the OOM killer.
pub(crate) fn lack_of_memory(wanted: u64) -> Result<()> {
    match available_memory() {
        Some(available) if wanted.saturating_add(RESERVE) > available => {
            let [wanted, available, reserve] = [wanted, available, RESERVE].map(show_size);
            let what = format!("{wanted} do not fit into memory: {available} are available");
            Err(Trouble::new(
                Status::Unavailable,
                format!("{what}, of which {reserve} are kept free"),
            ))
        }
        _ => Ok(()),
    }
}

/// Touches this much memory, or all there is. In a virtual machine the first touch can take seconds
/// per GiB, and memory that was free for a while may have to be touched again.
pub(crate) fn touch_memory(len: u64) {
    // Some of what is available only looks so.
    let spare =
        available_memory().map_or(0, |available| (available / 8 * 7).saturating_sub(RESERVE));
    let len = len.min(spare);
    let Ok(mut mapping) = Mapping::anonymous(len, Pages::Huge) else { return };
    for at in (0..len).step_by(PIECE as usize) {
        // Errors here surface in the measurement.
        if signals::caught().is_some() || mapping.populate(at, PIECE.min(len - at)).is_err() {
            return;
        }
    }
}
