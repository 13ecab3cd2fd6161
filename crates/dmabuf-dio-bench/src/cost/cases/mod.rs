// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measured methods of loading a file into memory, one case each.

mod library;
mod memory;
mod module;
mod series;

use std::fmt;
use std::os::fd::AsRawFd;

use dmabuf_dio::{Backend, Kind};
use io_uring::IoUring;
use rustix::io::Errno as Os;

use super::meter::PhaseMeter;
use crate::disk::{DiskFile, IoMode};
use crate::measure::outcome::{Trouble, os};

const MIB: u64 = 1 << 20;
const RING_ENTRIES: u32 = 16;

/// A method of loading, with the bytes that the CPU copies and zeroes per byte of the file.
pub(crate) struct CostCase {
    pub(crate) name: String,
    pub(crate) copied: f64,
    pub(crate) zeroed: f64,
    pub(crate) run: CaseFn,
}

/// Loads the file into a buffer and frees that, with measurement.
type CaseFn = Box<dyn Fn(&mut Setup<'_>, &mut PhaseMeter<'_>) -> Result<(), Trouble>>;

impl fmt::Debug for CostCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Resources that programs set up before their first transfer.
pub(crate) struct Setup<'a> {
    pub(crate) disk: &'a DiskFile,
    ring: Option<IoUring>,
}

impl<'a> Setup<'a> {
    pub(crate) fn new(disk: &'a DiskFile) -> Self {
        Self { disk, ring: None }
    }

    fn len(&self) -> u64 {
        self.disk.len()
    }

    /// The ring, created at first use. Its fixed file 0 is the file, open with `O_DIRECT`.
    fn ring(&mut self) -> Result<&mut IoUring, Trouble> {
        if self.ring.is_none() {
            let file = self.disk.open(IoMode::Direct)?.as_raw_fd();
            let make = || {
                let ring = IoUring::new(RING_ENTRIES)?;
                ring.submitter().register_files(&[file])?;
                Ok(ring)
            };
            let ring = make().map_err(|error: std::io::Error| {
                let errno = os(&error);
                Trouble::unavailable("io_uring", errno, "it is missing or forbidden here")
            })?;
            self.ring = Some(ring);
        }
        self.ring.as_mut().ok_or_else(|| Trouble::failed("io_uring", Os::IO))
    }
}

/// All cases, from those of every kernel to those of this project.
pub(crate) fn all() -> Vec<CostCase> {
    let mut cases = Vec::new();
    let mut add = |name: &str, [copied, zeroed]: [f64; 2], run: CaseFn| {
        cases.push(CostCase { name: name.to_owned(), copied, zeroed, run });
    };
    add("malloc: read()", [1.0, 1.0], Box::new(memory::read_to_malloc));
    add("memfd: read()", [1.0, 1.0], Box::new(memory::read_to_memfd));
    add("memfd, faulted in: O_DIRECT pread", [0.0, 1.0], Box::new(memory::pread_to_memfd));
    add("memfd, faulted in: io_uring 1 MiB x 8", [0.0, 1.0], Box::new(memory::ring_to_memfd));
    add("heap: allocate", [0.0, 1.0], Box::new(memory::allocate));
    add("heap: read() into the mapping", [1.0, 1.0], Box::new(memory::read_to_heap));
    add("udmabuf: parallel reads", [0.0, 1.0], Box::new(|s, m| memory::parallel(s, m, false)));
    add(
        "udmabuf: parallel reads, huge pages",
        [0.0, 1.0],
        Box::new(|s, m| memory::parallel(s, m, true)),
    );
    add("module: attach a heap buffer", [0.0, 0.0], Box::new(module::attach_heap));
    add("module: attach a udmabuf", [0.0, 0.0], Box::new(module::attach_udmabuf));
    add("module: READ", [0.0, 1.0], Box::new(|s, m| module::read(s, m, 0, 0)));
    add(
        "module: READ, 32 MiB at a time",
        [0.0, 1.0],
        Box::new(|s, m| module::read(s, m, 32 * MIB, 1)),
    );
    add("module: slot, 1 MiB x 8", [0.0, 1.0], Box::new(|s, m| module::slot(s, m, MIB, 8)));
    add("module: slot, 8 MiB x 4", [0.0, 1.0], Box::new(|s, m| module::slot(s, m, 8 * MIB, 4)));
    add("module: LOAD", [0.0, 0.0], Box::new(module::load));
    add("series: copy_file_range, heap", [0.0, 1.0], Box::new(series::copy_to_heap));
    add("series: copy_file_range, heap, again", [0.0, 1.0], Box::new(series::copy_again));
    add("series: copy_file_range, udmabuf", [0.0, 1.0], Box::new(series::copy_to_udmabuf));
    add("series: heap flag", [0.0, 0.0], Box::new(series::heap_flag));
    add(
        "library: private memory",
        [0.0, 1.0],
        Box::new(|setup, meter| library::load(setup, meter, None, Kind::Private)),
    );
    for backend in Backend::ALL {
        add(
            &format!("library: {backend}"),
            library::moves(backend),
            Box::new(move |setup, meter| library::load(setup, meter, Some(backend), Kind::Any)),
        );
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn case_names_are_unique_and_short() {
        let cases = all();
        let names: HashSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
        assert!(names.iter().all(|name| name.len() <= 37), "{names:?}");
    }
}
