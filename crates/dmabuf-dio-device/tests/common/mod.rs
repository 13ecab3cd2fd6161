// SPDX-License-Identifier: MIT OR Apache-2.0
//! A library that stands in for a driver (`stand_in.c`), and files to load.

#![allow(dead_code)]

#[path = "../../../dmabuf-dio-tensors/tests/common/bytes.rs"]
mod bytes;

use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::File;
use std::io::Write as _;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use dmabuf_dio_device::{Device, DeviceMemory, Vendor};
use libloading::os::unix::{Library, Symbol};
use tempfile::TempDir;

/// Folder of test files: on a file system with `O_DIRECT`, if `DMABUF_DIO_TEST_DIR` or the target is on one.
pub(crate) fn folder() -> TempDir {
    let parent = std::env::var_os("DMABUF_DIO_TEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    std::fs::create_dir_all(&parent).expect("the folder of all tests");
    tempfile::tempdir_in(parent).expect("a folder for the test")
}

/// A file in which no two pages are equal, and its bytes.
pub(crate) fn sample(folder: &Path, name: &str, len: usize) -> (File, Vec<u8>) {
    let bytes = bytes::content(len, len as u64);
    let path = folder.join(name);
    let mut file = File::create(&path).expect("create a test file");
    file.write_all(&bytes).expect("write a test file");
    file.sync_all().expect("sync a test file");
    (File::open(path).expect("open it"), bytes)
}

/// What `stand_in.c` counts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) copies: u64,
    pub(crate) copied: u64,
    pub(crate) pinned: u64,
    pub(crate) pins: u64,
    pub(crate) streams: u64,
    pub(crate) events: u64,
    pub(crate) contexts: u64,
    pub(crate) allocations: u64,
    pub(crate) most_pending: u64,
    pub(crate) pageable: u64,
    pub(crate) torn: u64,
}

/// Compiles the library, which has the name of its file.
pub(crate) fn build(path: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand_in.c");
    let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", "-pthread"]);
    compiler.arg(source).arg(format!("-Wl,-soname,{name}")).arg("-o").arg(path);
    assert!(compiler.status().expect("a compiler").success());
    path.to_owned()
}

/// A driver of its own for a test.
pub(crate) struct StandIn {
    path: PathBuf,
    /// Never unloaded: its threads run its code.
    library: ManuallyDrop<Library>,
    _folder: TempDir,
}

impl StandIn {
    pub(crate) fn new() -> Self {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        let built = BUILT.get_or_init(|| {
            let name = format!("stand-in-{}.so", std::process::id());
            build(&Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
        });
        // Loaded from two paths, a library is there twice.
        let folder = folder();
        let path = folder.path().join("driver.so");
        std::fs::copy(built, &path).expect("copied");
        Self::at(path, folder)
    }

    /// Loads one that was built.
    pub(crate) fn at(path: PathBuf, folder: TempDir) -> Self {
        // SAFETY: our library has no initialisers.
        let library = unsafe { Library::new(&path) }.expect("a library");
        Self { path, library: ManuallyDrop::new(library), _folder: folder }
    }

    fn symbol<T>(&self, name: &str) -> Symbol<T> {
        // SAFETY: the callers name the type that the function has in stand_in.c.
        unsafe { self.library.get(name.as_bytes()) }.expect("a function")
    }

    pub(crate) fn setup(&self, seed: u64, delay: c_int, memory: u64) {
        self.fail(seed, delay, memory, "", 0, 0);
    }

    /// The call `call` fails the `n`-th time and later.
    pub(crate) fn fail(
        &self,
        seed: u64,
        delay: c_int,
        memory: u64,
        call: &str,
        n: c_int,
        status: c_int,
    ) {
        type Setup = unsafe extern "C" fn(u64, c_int, u64, *const c_char, c_int, c_int);
        let call = CString::new(call).expect("a name");
        // SAFETY: the text lives as long as the call.
        unsafe {
            self.symbol::<Setup>("stand_in_setup")(seed, delay, memory, call.as_ptr(), n, status);
        };
    }

    /// Lets the devices have the host's memory.
    pub(crate) fn integrate(&self) {
        // SAFETY: sets a number.
        unsafe { self.symbol::<unsafe extern "C" fn(c_int)>("stand_in_integrated")(1) };
    }

    /// Lets no more bytes be pinned at once.
    pub(crate) fn pin_at_most(&self, bytes: u64) {
        // SAFETY: sets a number.
        unsafe { self.symbol::<unsafe extern "C" fn(u64)>("stand_in_pins")(bytes) };
    }

    /// Another thread captures a stream for a graph, or has ended that.
    pub(crate) fn capture(&self, is: bool) {
        let symbol = self.symbol::<unsafe extern "C" fn(c_int)>("stand_in_capture");
        // SAFETY: sets a number.
        unsafe { symbol(c_int::from(is)) };
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        let symbol = self.symbol::<unsafe extern "C" fn(*mut Counters)>("stand_in_counters");
        // SAFETY: fills the structure.
        unsafe { symbol(&raw mut counters) };
        counters
    }

    /// A framework lets this thread work with a device.
    pub(crate) fn let_work_with(&self, vendor: Vendor, ordinal: c_int) {
        type Use = unsafe extern "C" fn(c_int, c_int);
        let is_hip = c_int::from(vendor == Vendor::Hip);
        // SAFETY: sets the device of the thread.
        unsafe { self.symbol::<Use>("stand_in_use")(is_hip, ordinal) };
    }

    /// The device that this thread works with; -1: none.
    pub(crate) fn works_with(&self) -> c_int {
        // SAFETY: returns a number.
        unsafe { self.symbol::<unsafe extern "C" fn() -> c_int>("stand_in_used")() }
    }

    pub(crate) fn open(&self, vendor: Vendor, ordinal: u32) -> dmabuf_dio_device::Result<Device> {
        Device::open_with(vendor, &self.path, ordinal)
    }

    /// Work of a stream that fills memory after `delay` microseconds. Returns the stream, which is never destroyed.
    pub(crate) fn fill_late(&self, memory: &DeviceMemory, byte: u8, delay: c_int) {
        type Fill = unsafe extern "C" fn(*mut c_void, u64, usize, c_int, c_int) -> c_int;
        let fill = self.symbol::<Fill>("stand_in_fill");
        let (address, length) = (memory.address(), memory.len() as usize);
        // SAFETY: fills memory that the device has.
        let status = unsafe { fill(std::ptr::null_mut(), address, length, byte.into(), delay) };
        assert_eq!(status, 0);
    }

    /// Nothing is left, and nothing was done that must not be.
    pub(crate) fn assert_clean(&self, what: &str) {
        let counters = self.counters();
        let Counters { pinned, streams, events, contexts, allocations, pageable, torn, .. } =
            counters;
        let left = [pinned, streams, events, contexts, allocations, pageable, torn];
        assert_eq!(left, [0; 7], "{what}: {counters:?}");
    }
}

/// The content of a stand-in's memory, which is the host's.
pub(crate) fn content(memory: &DeviceMemory) -> &[u8] {
    let first = std::ptr::with_exposed_provenance(memory.address() as usize);
    // SAFETY: allocated by malloc, filled when it was, and nothing is in flight.
    unsafe { std::slice::from_raw_parts(first, memory.len() as usize) }
}
