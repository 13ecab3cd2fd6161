// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fences of devices, from `sw_sync` or vgem: a call waits for those that concern it, and for no
//! others.

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use dmabuf_dio_sys::dmabuf::{Access, export_sync_file};

use crate::fault::keep_signals_away;

/// Nothing waits for a fence that does not concern it; what does would wait as long. vgem signals
/// its fences itself after ten seconds.
const FOR_EVER: Duration = Duration::from_secs(8);

/// A fence on a buffer; closing its source signals it.
pub(crate) struct Fence {
    source: File,
    buf: u64,
    /// The device stores into the buffer, so that WRITE waits, too.
    stores: bool,
    delay: Duration,
}

/// `_IOC()` of calls that take and return an argument, or only take one.
const fn request<T>(both: bool, kind: u8, number: u8) -> u64 {
    let direction = if both { 3 } else { 1 };
    (direction << 30) | ((size_of::<T>() as u64) << 16) | ((kind as u64) << 8) | number as u64
}

fn call<T>(file: &impl AsRawFd, both: bool, kind: u8, number: u8, arg: &mut T) -> bool {
    // SAFETY: each caller's `T` has the size and layout of the request's argument.
    unsafe { libc::ioctl(file.as_raw_fd(), request::<T>(both, kind, number), arg) == 0 }
}

/// `struct sw_sync_create_fence_data`
#[repr(C)]
struct Create {
    value: u32,
    name: [u8; 32],
    fence: i32,
}

fn of_sw_sync() -> Option<(File, OwnedFd)> {
    let timeline = File::options().read(true).write(true).open("/sys/kernel/debug/sync/sw_sync");
    let timeline = timeline.ok()?;
    let mut create = Create { value: 1, name: [0; 32], fence: -1 };
    call(&timeline, true, b'W', 0, &mut create).then_some(())?;
    // SAFETY: the call returned a new descriptor, which nothing else owns.
    Some((timeline, unsafe { OwnedFd::from_raw_fd(create.fence) }))
}

/// A buffer of vgem of a page, with its card and its handle there.
pub(crate) fn vgem_buffer() -> Result<(File, u32, OwnedFd), String> {
    let failed = |what: &str| Err(format!("{what}: {}", std::io::Error::last_os_error()));
    let card = (0..16).find_map(|number| {
        let card = File::options().read(true).write(true).open(format!("/dev/dri/card{number}"));
        let card = card.ok()?;
        dmabuf_dio_sys::drm::driver(card.as_fd()).is_ok_and(|name| name == "vgem").then_some(card)
    });
    let Some(card) = card else { return Err("there is no vgem".into()) };
    // `struct drm_mode_create_dumb`: height, width, bits, flags; handle, pitch, size
    let mut dumb = [1, 1024, 32, 0, 0, 0, 0, 0_u32];
    if !call(&card, true, b'd', 0xb2, &mut dumb) {
        return failed("a buffer");
    }
    // `struct drm_prime_handle`: handle, flags, descriptor
    let mut prime = [dumb[4], (libc::O_CLOEXEC | libc::O_RDWR) as u32, 0];
    if !call(&card, true, b'd', 0x2d, &mut prime) {
        return failed("its descriptor");
    }
    // SAFETY: the call returned a new descriptor, which nothing else owns.
    let buffer = unsafe { OwnedFd::from_raw_fd(prime[2] as i32) };
    Ok((card, dumb[4], buffer))
}

/// vgem puts a fence on a buffer of its own, from which it is exported.
fn of_vgem() -> Result<(File, OwnedFd), String> {
    let (card, handle, buffer) = vgem_buffer()?;
    // `struct drm_vgem_fence_attach`: handle, flags (stores), fence
    let mut attach = [handle, 1, 0, 0];
    if !call(&card, true, b'd', 0x41, &mut attach) {
        return Err(format!("a fence: {}", std::io::Error::last_os_error()));
    }
    let fence = export_sync_file(buffer.as_fd(), Access::Read);
    fence.map(|fence| (card, fence)).map_err(|errno| format!("its file: {errno}"))
}

/// Why this kernel can make no fences
pub(crate) fn possible() -> Result<(), String> {
    of_sw_sync().map_or_else(of_vgem, Ok).map(|_| ())
}

impl Fence {
    /// Puts a fence on the buffer of a place, which is signalled during the next transfer. `None`
    /// if the kernel has no fences.
    pub(crate) fn on(
        fd: BorrowedFd<'_>,
        buf: u64,
        stores: bool,
        microseconds: u64,
    ) -> Result<Option<Self>, String> {
        let made = of_sw_sync().map_or_else(of_vgem, Ok);
        let Ok((source, fence)) = made else { return Ok(None) };
        // `struct dma_buf_import_sync_file`: flags, descriptor
        let mut import = [if stores { 2 } else { 1 }, fence.as_raw_fd() as u32];
        if !call(&fd, false, b'b', 3, &mut import) {
            return Err(format!("a fence: {}", std::io::Error::last_os_error()));
        }
        let delay = Duration::from_micros(microseconds);
        Ok(Some(Self { source, buf, stores, delay }))
    }

    /// Is a transfer to wait for it?
    pub(crate) fn concerns(&self, buf: u64, storing: bool) -> bool {
        self.buf == buf && (storing || self.stores)
    }
}

/// Makes a call on a buffer, and says what was wrong with it if data has moved.
pub(crate) fn around<T>(
    fence: Option<Fence>,
    concerns: bool,
    call: impl FnOnce() -> T,
) -> (T, Option<&'static str>) {
    let Some(fence) = fence else { return (call(), None) };
    let Fence { source, delay, .. } = fence;
    let signalled = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (ended, waits) = mpsc::channel::<()>();
        let signalled = &signalled;
        scope.spawn(move || {
            keep_signals_away();
            let _ = waits.recv_timeout(if concerns { delay } else { FOR_EVER });
            signalled.store(true, Ordering::Release);
            drop(source);
        });
        let result = call();
        let before = signalled.load(Ordering::Acquire);
        let _ = ended.send(());
        let wrong = match (concerns, before) {
            (true, false) => Some("it did not wait for a fence"),
            (false, true) => Some("it waited for a fence that does not concern it"),
            _ => None,
        };
        (result, wrong)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_the_kernels() {
        assert_eq!(request::<Create>(true, b'W', 0), 0xc028_5700);
        assert_eq!(request::<[u32; 2]>(false, b'b', 3), 0x4008_6203);
        assert_eq!(request::<[u32; 4]>(true, b'd', 0x41), 0xc010_6441);
    }
}
