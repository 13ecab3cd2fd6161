// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that makes the calls of an input.

use std::sync::atomic::Ordering::Relaxed;

use super::call::{Call, Name};
use super::domain::BUFFER;
use super::pool::Pool;
use super::shared::Shared;
use super::system::{self, Answer};
use super::world::{Outcome, World};
use super::{rings, structures};

/// Most bytes that `fallocate()` is asked for, as a memfd's are memory.
const ALLOCATED: u64 = 1 << 20;
/// `_IO(0xed, 0)` of `kernel/sim/shadow_importer`
const IMPORT: u64 = 0xed << 8;

/// Runs the calls and ends the process.
pub(crate) fn run(calls: &[Call], pool: &Pool, shared: &Shared) -> ! {
    let all = std::panic::AssertUnwindSafe(|| {
        let mut world = World::new(calls, pool, shared);
        for call in calls {
            shared.progress.fetch_add(1, Relaxed);
            if let Err(what) = world.make(call) {
                shared.find(&format!("'{call}': {what}"));
                break;
            }
        }
        world.wait();
        if let Some(other) = world.other {
            let mut status = 0;
            // SAFETY: the status is valid for the call.
            unsafe { libc::waitpid(other, &raw mut status, 0) };
            if libc::WIFSIGNALED(status) {
                let signal = libc::WTERMSIG(status);
                shared.find(&format!("a process that was forked died of signal {signal}"));
            }
        }
        // Descriptors, mappings and threads go with the process.
        std::mem::forget(world);
    });
    if std::panic::catch_unwind(all).is_err() {
        shared.find("the fuzzer itself panicked");
    }
    // SAFETY: ends the process at once, with none of what the other process would do at its end.
    unsafe { libc::_exit(0) }
}

impl World<'_> {
    fn make(&mut self, call: &Call) -> Outcome {
        let answer = match call.name {
            Name::Attach => return structures::attach(self, call),
            Name::Read => return structures::transfer(self, call, false),
            Name::Write => return structures::transfer(self, call, true),
            Name::Load => return structures::load(self, call),
            Name::Info => return structures::info(self, call),
            Name::Ioctl => return structures::any(self, call),
            Name::Register => return rings::register(self, call),
            Name::Join => return rings::join(self, call),
            Name::Command => {
                rings::any(self, call);
                return Ok(());
            }
            Name::ReadFixed => return rings::fixed(self, call, false),
            Name::WriteFixed => return rings::fixed(self, call, true),
            Name::Update => rings::update(self, call),
            Name::Clone => rings::clone(self, call),
            Name::Open => self.open(call.get("to") as usize),
            Name::Cancel => self.cancel(call),
            Name::Dup => self.dup(call),
            Name::Close => self.close(call),
            Name::Fork => {
                self.fork();
                Ok(0)
            }
            Name::Wait => {
                self.wait();
                Ok(0)
            }
            Name::Timer => {
                self.signalled = true;
                timer(call.get("microseconds"))
            }
            Name::Truncate => self.truncate(call),
            Name::Allocate => self.allocate(call),
            Name::Advise => self.advise(call),
            Name::Sync => {
                let flags = call.get("flags");
                let request = system::request(1, u64::from(b'b'), 0, 8);
                system::ioctl(self.fd(call, "fd"), request, &raw const flags as u64)
            }
            Name::Import => self.import(call),
            Name::Fdinfo => self.fdinfo(call),
        };
        self.count(call, answer);
        Ok(())
    }

    fn cancel(&mut self, call: &Call) -> Answer {
        let request = u64::from(dmabuf_dio_sys::dio::IOC_CANCEL);
        let answer = system::ioctl(self.fd(call, "ctx"), request, 0);
        if let (Ok(_), Some(context)) = (answer, self.context(call, "ctx")) {
            context.cancelled.set(true);
        }
        answer
    }

    fn dup(&mut self, call: &Call) -> Answer {
        let fd = self.fd(call, "fd");
        let new = system::call(libc::SYS_dup, [fd as u64, 0, 0, 0, 0, 0])?;
        let context = self.context(call, "fd");
        self.put(call.get("to") as usize, new as i32, context);
        Ok(0)
    }

    fn close(&mut self, call: &Call) -> Answer {
        let place = call.get("fd") as usize;
        let fd = self.fd(call, "fd");
        if let Some(here) = self.fds.get_mut(place) {
            *here = -1;
            self.contexts[place] = None;
        }
        system::close(fd)
    }

    fn fork(&mut self) {
        if self.copy || self.other.is_some() {
            return;
        }
        self.quiet = false;
        // SAFETY: the copy goes on with what this process does.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            self.copy = true;
            // They are threads of the other process.
            std::mem::forget(std::mem::take(&mut self.beside));
        } else {
            self.other = Some(pid);
        }
    }

    fn truncate(&mut self, call: &Call) -> Answer {
        self.shared.changed.store(true, Relaxed);
        let fd = self.fd(call, "fd") as u64;
        system::call(libc::SYS_ftruncate, [fd, call.get("length"), 0, 0, 0, 0])
    }

    fn allocate(&mut self, call: &Call) -> Answer {
        self.shared.changed.store(true, Relaxed);
        let length = call.get("length").min(ALLOCATED);
        // ext4 of 7.3 leaves old bytes in the page cache: kernel/series/ext4.
        let zero_range = libc::FALLOC_FL_ZERO_RANGE as u64;
        let (fd, mode) = (self.fd(call, "fd") as u64, call.get("mode") & !zero_range);
        system::call(libc::SYS_fallocate, [fd, mode, call.get("at"), length, 0, 0])
    }

    fn advise(&mut self, call: &Call) -> Answer {
        let flags = if call.get("private") == 0 { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let start = system::map(BUFFER, access, flags, self.fd(call, "fd"), call.get("offset"))?;
        let advice = call.get("advice");
        // MADV_HWPOISON and MADV_SOFT_OFFLINE would take memory from the guest.
        if advice != 100 && advice != 101 {
            self.shared.changed.store(true, Relaxed);
            let _ = system::call(libc::SYS_madvise, [start, BUFFER, advice, 0, 0, 0]);
        }
        system::call(libc::SYS_munmap, [start, BUFFER, 0, 0, 0, 0])
    }

    /// The device stays until the process ends.
    fn import(&mut self, call: &Call) -> Answer {
        self.quiet = false;
        let path = c"/dev/shadow_importer".as_ptr() as u64;
        let (at, flags) = (libc::AT_FDCWD as u64, libc::O_RDWR as u64);
        let device = system::call(libc::SYS_openat, [at, path, flags, 0, 0, 0])?;
        system::ioctl(device as i32, IMPORT, self.fd(call, "fd") as u64)
    }

    fn fdinfo(&self, call: &Call) -> Answer {
        let path = format!("/proc/self/fdinfo/{}", self.fd(call, "fd"));
        let read = std::fs::read(path);
        read.map_or_else(|error| Err(error.raw_os_error().unwrap_or(0)), |_| Ok(0))
    }
}

fn timer(microseconds: u64) -> Answer {
    let time = libc::timeval {
        tv_sec: 0,
        tv_usec: (microseconds % 1_000_000).max(1) as libc::suseconds_t,
    };
    let none = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let timer = libc::itimerval { it_interval: none, it_value: time };
    let address = &raw const timer as u64;
    system::call(libc::SYS_setitimer, [libc::ITIMER_REAL as u64, address, 0, 0, 0, 0])
}
