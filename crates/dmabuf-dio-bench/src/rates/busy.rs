// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine that has something else to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, available_parallelism};

/// A thread for each CPU that computes until this is dropped.
#[derive(Debug)]
pub(super) struct Hogs {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Hogs {
    pub(super) fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let cpus = available_parallelism().map_or(1, usize::from);
        let hog = |_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut sum = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    sum = std::hint::black_box(sum.wrapping_mul(3) + 1);
                }
            })
        };
        let threads = (0..cpus).map(hog).collect();
        Self { stop, threads }
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
