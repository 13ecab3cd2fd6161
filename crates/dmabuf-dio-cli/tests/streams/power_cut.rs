// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures on a machine that loses power. The file system is told to stop at once, with nothing
//! more written to its log (`EXT4_IOC_SHUTDOWN`, `XFS_IOC_GOINGDOWN` and `F2FS_IOC_SHUTDOWN` are one
//! number), and mounted again. The loss of a disk's own cache is not simulated.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::iio::{Setup, frames, start};
use crate::common::{eventually, folder, page_size};

/// A file system on `DMABUF_DIO_RAW_DISK`, whose content is disposable.
struct Disk {
    device: String,
    kind: String,
    folder: tempfile::TempDir,
}

impl Disk {
    fn new() -> Option<Self> {
        let (device, kind) = (std::env::var("DMABUF_DIO_RAW_DISK"), std::env::var("DMABUF_DIO_FS"));
        let (Ok(device), Ok(kind)) = (device, kind) else {
            println!("skipped: DMABUF_DIO_RAW_DISK or DMABUF_DIO_FS is not set");
            return None;
        };
        Some(Self { device, kind, folder: folder() })
    }

    /// Makes a new file system.
    fn format(&self) {
        let force = if self.kind == "ext4" { "-F" } else { "-f" };
        run(&format!("mkfs.{}", self.kind), &["-q", force, &self.device]);
    }

    fn mount(&self) {
        run("mount", &["-t", &self.kind, &self.device, self.path()]);
    }

    fn unmount(&self) {
        run("umount", &[self.path()]);
    }

    fn path(&self) -> &str {
        self.folder.path().to_str().expect("text")
    }

    fn cut_power(&self) {
        // _IOR('X', 125, __u32), include/uapi/linux/ext4.h; 2 writes nothing to the log.
        const SHUTDOWN: libc::c_ulong = 0x8004_587d;
        let (place, how) = (File::open(self.path()).expect("the mount point"), 2_u32);
        // SAFETY: reads a number, which outlives the call.
        let status = unsafe { libc::ioctl(place.as_raw_fd(), SHUTDOWN, &raw const how) };
        assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Not there any more, unless a test fails.
        let _ = Command::new("umount").arg("-q").arg(self.path()).status();
    }
}

#[track_caller]
fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect(program);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
}

/// Writes back what the file system has, again and again, so that some of it survives.
fn writing_back<T>(disk: &Disk, work: impl FnOnce() -> T) -> T {
    let (place, done) = (File::open(disk.path()).expect("the mount point"), AtomicBool::new(false));
    thread::scope(|threads| {
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // EIO once the power is cut.
                let _ = rustix::fs::syncfs(&place);
                thread::sleep(Duration::from_millis(30));
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn power_cut_leaves_a_valid_prefix() {
    let Some(_setup) = Setup::get() else { return };
    let Some(disk) = Disk::new() else { return };
    let data = format!("{}/samples.sigmf-data", disk.path());
    let mut seed = std::process::id();
    let mut most = 0;
    // Blocks smaller than a page are written through the page cache, where a length may be on disk before the data.
    let small = page_size().max(16 << 10).to_string();
    for (block, blocks) in [(small.as_str(), "64"), ("128K", "64"), ("1M", "32"), ("4M", "8")] {
        for _ in 0..2 {
            seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            let delay = Duration::from_millis(u64::from(seed >> 16) % 600);
            disk.format();
            disk.mount();
            let capture = format!("capture stream-adc --rate 0 --samples 100M --to {data}");
            let mut child = start(format!("{capture} --block-size {block} --blocks {blocks}"));
            writing_back(&disk, || {
                // However long the program takes to start
                eventually("the capture does not begin", || {
                    let begun = fs::metadata(&data).is_ok_and(|file| file.len() > 0);
                    begun || child.try_wait().expect("a child").is_some()
                });
                thread::sleep(delay);
                disk.cut_power();
            });
            let output = child.wait_with_output().expect("its end");
            disk.unmount();
            disk.mount();
            let got = if fs::exists(&data).expect("known") { frames(&data) } else { 0 };
            disk.unmount();
            println!("blocks of {block}, power cut {delay:?} after the first: {got} frames");
            most = most.max(got);
            // It may have been fast enough to be complete.
            let complete = output.status.success();
            assert!(complete || output.status.code() == Some(1), "{output:?}");
        }
    }
    assert!(most > 0, "nothing was ever written back");
}
