// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module is removed and loaded again. That is refused as long as a context, a buffer of LOAD or
//! a slot is left.

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dmabuf_dio_sys::{dio, heap};

use crate::fault::keep_signals_away;
use crate::world::{Kind, Outcome, World};

const PARAMETER: &str = "/sys/module/dmabuf_dio/parameters/exporters";
/// What is closed is released a moment later.
const TRIES: u32 = 3000;

fn remove() -> std::io::Result<()> {
    // SAFETY: the name is NUL-terminated.
    let ret =
        unsafe { libc::syscall(libc::SYS_delete_module, c"dmabuf_dio".as_ptr(), libc::O_NONBLOCK) };
    if ret == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn insert(path: &PathBuf, exporters: &str) -> Outcome {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(failed)?;
    let parameters = if exporters.is_empty() || exporters == "(null)" {
        String::new()
    } else {
        format!("exporters={exporters}")
    };
    let parameters = std::ffi::CString::new(parameters).map_err(|error| failed(error.into()))?;
    // SAFETY: the parameters are NUL-terminated.
    let ret =
        unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), 0) };
    if ret == 0 { Ok(()) } else { Err(failed(std::io::Error::last_os_error())) }
}

/// Does something of the module's live? `None`: that is not known.
fn used(world: &World<'_>) -> Option<bool> {
    let has = world.loader.is_some()
        || world.slots.iter().any(Option::is_some)
        || world
            .buffers
            .iter()
            .flatten()
            .any(|buffer| buffer.context.is_some() || buffer.kind == Kind::Load);
    // A device may be the last that has a buffer.
    (has || world.devices.iter().all(Option::is_none)).then_some(has)
}

/// Opens the module and borrows a buffer, if it is there.
fn open(heap: Option<&impl std::os::fd::AsFd>) {
    let Ok(context) = dio::open() else { return };
    let Some(heap) = heap else { return };
    if let Ok(buffer) = heap::alloc(heap.as_fd(), 4096) {
        let _ = dio::attach(context.as_fd(), buffer.as_fd(), &mut dio::Attach::default());
    }
}

pub(crate) fn reload(world: &mut World<'_>, count: u64) -> Outcome {
    let Ok(folder) = std::env::var("DMABUF_DIO_MODULE_DIR") else { return Ok(()) };
    let path = PathBuf::from(folder).join("dmabuf_dio.ko");
    let Some(used) = used(world) else { return Ok(()) };
    if used {
        let refused = remove();
        world.machine.did("removal that was refused");
        return match refused {
            Err(error) if error.raw_os_error() == Some(libc::EWOULDBLOCK) => world.check_buffers(),
            Err(error) => Err(format!("removing the module while it is in use: {error}")),
            Ok(()) => {
                insert(&path, "")?;
                Err("the module can be removed while it is in use".into())
            }
        };
    }
    let exporters = std::fs::read_to_string(PARAMETER).unwrap_or_default();
    let over = AtomicBool::new(false);
    let heap = world.machine.heap.as_ref();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            keep_signals_away();
            while !over.load(Ordering::Acquire) {
                open(heap);
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let turns = (0..count).try_for_each(|_| {
            let mut removed = remove();
            for _ in 0..TRIES {
                if removed.is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
                removed = remove();
            }
            removed.map_err(|error| format!("removing the module: {error}"))?;
            insert(&path, exporters.trim())
        });
        over.store(true, Ordering::Release);
        turns
    })?;
    world.machine.did("module that was removed and loaded");
    Ok(())
}
