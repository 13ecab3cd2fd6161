// SPDX-License-Identifier: MIT OR Apache-2.0
//! The descriptors of the process that makes calls, and what it knows of them.

use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::thread::JoinHandle;

use super::call::Call;
use super::domain::{CONTEXT, Domain, RINGS};
use super::known::{Buffer, Context};
use super::pool::Pool;
use super::ring::Ring;
use super::shared::Shared;
use super::system::{self, Answer};

pub(crate) type Outcome = Result<(), String>;

pub(crate) struct World<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) shared: &'a Shared,
    pub(crate) fds: Vec<i32>,
    pub(crate) contexts: Vec<Option<Rc<Context>>>,
    pub(crate) rings: [Option<Ring>; 2],
    pub(crate) beside: Vec<JoinHandle<()>>,
    /// Nobody else makes calls: neither a thread, nor a process, nor a ring.
    pub(crate) quiet: bool,
    /// A timer was started.
    pub(crate) signalled: bool,
    /// Another process that makes the rest of the calls
    pub(crate) other: Option<i32>,
    /// This is that process.
    pub(crate) copy: bool,
}

impl<'a> World<'a> {
    pub(crate) fn new(calls: &[Call], pool: &'a Pool, shared: &'a Shared) -> Self {
        let mut world = Self {
            pool,
            shared,
            fds: pool.fds.clone(),
            contexts: vec![None; pool.fds.len()],
            rings: [None, None],
            beside: Vec::new(),
            quiet: true,
            signalled: false,
            other: None,
            copy: false,
        };
        for place in CONTEXT..CONTEXT + 3 {
            let _ = world.open(place);
        }
        let of_rings = |call: &Call| call.kind().fields().any(|(_, domain)| domain == Domain::Ring);
        if calls.iter().any(of_rings) {
            for place in 0..2 {
                world.rings[place] = Ring::new();
                world.fds[RINGS + place] = world.rings[place].as_ref().map_or(-1, Ring::fd);
            }
        }
        world
    }

    pub(crate) fn fd(&self, call: &Call, field: &str) -> i32 {
        self.fds.get(call.get(field) as usize).copied().unwrap_or(-1)
    }

    /// What is known of the context in a place, if a context is there.
    pub(crate) fn context(&self, call: &Call, field: &str) -> Option<Rc<Context>> {
        self.contexts.get(call.get(field) as usize).cloned().flatten()
    }

    pub(crate) fn open(&mut self, place: usize) -> Answer {
        let path = c"/dev/dmabuf_dio".as_ptr() as u64;
        let flags = (libc::O_RDWR | libc::O_CLOEXEC) as u64;
        let at = libc::AT_FDCWD as u64;
        let opened = system::call(libc::SYS_openat, [at, path, flags, 0, 0, 0]);
        if let Ok(fd) = opened {
            self.put(place, fd as i32, Some(Rc::default()));
        }
        opened
    }

    /// Puts a new descriptor in a place, and closes what was there.
    pub(crate) fn put(&mut self, place: usize, fd: i32, context: Option<Rc<Context>>) {
        if let Some(old) = self.fds.get_mut(place) {
            if *old >= 0 {
                let _ = system::close(*old);
            }
            *old = fd;
            self.contexts[place] = context;
        } else {
            let _ = system::close(fd);
        }
    }

    pub(crate) fn count(&self, call: &Call, answer: Answer) {
        self.shared.count(call.name as usize, answer);
    }

    /// Waits for the calls of other threads.
    pub(crate) fn wait(&mut self) {
        for thread in self.beside.drain(..) {
            let _ = thread.join();
        }
    }

    /// The bytes of a buffer, if nobody else changes them.
    pub(crate) fn seen(&self, buffer: Option<&Buffer>) -> Option<Vec<u8>> {
        Some(buffer.filter(|_| self.quiet)?.map.as_ref()?.bytes())
    }

    /// The bytes of the file that several descriptors have, if this is one of them and nobody else
    /// changes them.
    pub(crate) fn file(&self, fd: i32) -> Option<Vec<u8>> {
        use std::os::fd::AsFd as _;
        if !self.quiet || fd < 0 {
            return None;
        }
        // SAFETY: it is only looked at, whatever it is.
        let one = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
        let file = rustix::fs::fstat(self.pool.file.as_fd()).ok()?;
        if (one.st_ino, one.st_dev) != (file.st_ino, file.st_dev) || file.st_size > 1 << 20 {
            return None;
        }
        let mut bytes = vec![0; file.st_size as usize];
        std::os::unix::fs::FileExt::read_exact_at(&self.pool.file, &mut bytes, 0).ok()?;
        Some(bytes)
    }
}
