// SPDX-License-Identifier: MIT OR Apache-2.0
//! What another thread does while a transfer runs, again and again. None of it changes a byte.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use dmabuf_dio_sys::dio;
use dmabuf_dio_sys::dmabuf::{Access, begin_cpu_access, end_cpu_access};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::fault::keep_signals_away;
use crate::machine::online;
use crate::mapping::{COLLAPSE, Mapping, PAGE_OUT};
use crate::pages::PAGE;
use crate::world::World;

/// One round of it.
type Action = Box<dyn FnMut() + Send>;

/// How many there are, of which the last are drawn by `plan/faults.rs` only.
pub(crate) const KINDS: u64 = 8;
pub(crate) const HOTPLUG: u64 = 8;

fn write(path: &str, text: &str) {
    let _ = std::fs::write(path, text);
}

/// `None` if what it needs is not there.
fn action(world: &World<'_>, (kind, place): (u64, u64)) -> Option<Action> {
    let memfd = || -> Option<(OwnedFd, usize)> {
        let store = world.stores.get(place as usize)?.as_ref()?;
        if store.huge || store.sealed {
            return None;
        }
        Some((store.fd.try_clone().ok()?, store.pages.len() * PAGE))
    };
    let buffer = || -> Option<(OwnedFd, usize)> {
        let buffer = world.buffers.get(place as usize)?.as_ref()?;
        // What cannot be lent is not mapped either.
        buffer.context.as_ref()?;
        Some((buffer.fd.as_ref()?.try_clone().ok()?, buffer.length()))
    };
    Some(match kind {
        0 | 1 => {
            let (memfd, length) = memfd()?;
            let advice = if kind == 0 { PAGE_OUT } else { COLLAPSE };
            Box::new(move || {
                if let Ok(map) = Mapping::of(memfd.as_fd(), length, true) {
                    // Only what is mapped is paged out.
                    (0..length).step_by(PAGE).for_each(|at| map.touch(at));
                    map.advise(advice);
                }
            })
        }
        2 => Box::new(|| write("/proc/sys/vm/compact_memory", "1")),
        3 => Box::new(|| write("/proc/sys/vm/drop_caches", "3")),
        4 => {
            let (fd, _) = buffer()?;
            Box::new(move || {
                if let Ok(context) = dio::open() {
                    let _ = dio::attach(context.as_fd(), fd.as_fd(), &mut dio::Attach::default());
                }
            })
        }
        5 => {
            // While a device has the buffer, nobody may.
            if world.devices.iter().any(Option::is_some) {
                return None;
            }
            let (fd, _) = buffer()?;
            Box::new(move || {
                let _ = begin_cpu_access(fd.as_fd(), Access::ReadWrite);
                let _ = end_cpu_access(fd.as_fd(), Access::ReadWrite);
            })
        }
        6 => {
            let (fd, length) = buffer()?;
            Box::new(move || {
                if let Ok(map) = Mapping::of(fd.as_fd(), length, false) {
                    map.bytes();
                }
            })
        }
        7 => Box::new(|| {
            // SAFETY: the child ends at once, without running anything of this process.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::_exit(0);
                }
                libc::waitpid(child, std::ptr::null_mut(), 0);
            }
        }),
        HOTPLUG => {
            let file = online(world.machine.processor?);
            Box::new(move || {
                let _ = std::fs::write(&file, "0");
                let _ = std::fs::write(&file, "1");
            })
        }
        _ => return None,
    })
}

/// Moves this thread to a processor; drops it back to all.
struct On(CpuSet);

impl On {
    fn processor(number: usize) -> Option<Self> {
        let before = sched_getaffinity(None).ok()?;
        let mut one = CpuSet::new();
        one.set(number);
        sched_setaffinity(None, &one).ok()?;
        Some(Self(before))
    }
}

impl Drop for On {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Makes a call while another thread does what was ordered.
pub(crate) fn beside<T>(world: &World<'_>, call: impl FnOnce() -> T) -> T {
    let Some(mut action) = world.beside.and_then(|beside| action(world, beside)) else {
        return call();
    };
    world.machine.did(match world.beside {
        Some((HOTPLUG, _)) => "transfer beside CPU hotplug",
        _ => "transfer that was disturbed",
    });
    // The call begins on the processor that is about to go offline.
    let hotplug = matches!(world.beside, Some((HOTPLUG, _)));
    let on = world.machine.processor.filter(|_| hotplug).and_then(On::processor);
    let (begun, over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            keep_signals_away();
            if let Some(On(all)) = &on {
                let _ = sched_setaffinity(None, all);
            }
            begun.store(hotplug, Ordering::Release);
            while !over.load(Ordering::Acquire) {
                action();
                begun.store(true, Ordering::Release);
            }
        });
        while !begun.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let result = call();
        over.store(true, Ordering::Release);
        result
    })
}
