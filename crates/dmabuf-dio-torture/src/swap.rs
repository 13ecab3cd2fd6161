// SPDX-License-Identifier: MIT OR Apache-2.0
//! Swap space, so that memory of memfds can be taken away.

use std::ffi::CString;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

const PAGES: u64 = 16 << 10;

/// A swap file in the current folder while it exists.
pub(crate) struct Swap(CString);

impl Swap {
    /// `None` if the kernel or the file system has no swap files.
    pub(crate) fn start() -> Option<Self> {
        let path = std::env::current_dir().ok()?.join("torture-swap");
        let mut file = std::fs::File::create(&path).ok()?;
        // Without holes: zeroes are written.
        let zeroes = vec![0; 1 << 20];
        for _ in 0..PAGES >> 8 {
            file.write_all(&zeroes).ok()?;
        }
        // `union swap_header`: version, last page, and the magic at the end of the first page
        file.write_all_at(&1_u32.to_ne_bytes(), 1024).ok()?;
        file.write_all_at(&(PAGES as u32 - 1).to_ne_bytes(), 1028).ok()?;
        file.write_all_at(b"SWAPSPACE2", 4086).ok()?;
        file.sync_all().ok()?;
        let path = CString::new(path.into_os_string().into_encoded_bytes()).ok()?;
        // SAFETY: the path is NUL-terminated.
        let ret = unsafe { libc::swapon(path.as_ptr(), 0) };
        (ret == 0).then_some(Self(path))
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        // SAFETY: the path is NUL-terminated.
        unsafe { libc::swapoff(self.0.as_ptr()) };
        let _ = std::fs::remove_file(self.0.to_string_lossy().as_ref());
    }
}
