// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptions that are written while a stream runs, in case the process is killed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dmabuf_dio_terminal::exit::{FAILED, Failure};

/// The time between two descriptions, at least and at most. It depends on how long it takes to write one:
/// this many times as long.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
const TIMES: u32 = 10;

/// A thread that writes descriptions, so that the stream does not wait for the disk.
#[derive(Debug)]
pub(super) struct Notes<T> {
    sender: Option<Sender<T>>,
    is_idle: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Notes<T> {
    /// An error of `write` is not reported here, but when the last description is written.
    pub(super) fn start(
        mut write: impl FnMut(T) -> io::Result<()> + Send + 'static,
    ) -> Result<Self, Failure> {
        let (sender, receiver) = mpsc::channel::<T>();
        let is_idle = Arc::new(AtomicBool::new(true));
        let idle = Arc::clone(&is_idle);
        let work = move || {
            while let Ok(content) = receiver.recv() {
                let begin = Instant::now();
                let _ = write(content);
                let pause = (begin.elapsed() * TIMES).clamp(PAUSE.0, PAUSE.1);
                // Nothing is sent during the pause. A closed channel is the end of the stream.
                if receiver
                    .recv_timeout(pause)
                    .is_err_and(|why| why == mpsc::RecvTimeoutError::Disconnected)
                {
                    break;
                }
                idle.store(true, Ordering::Release);
            }
        };
        let named = thread::Builder::new().name("dmabuf-dio notes".into());
        let thread = named.spawn(work).map_err(|error| {
            let what = format!("cannot start a thread: {error}");
            Failure::new(FAILED, what, "raise the limit on processes: ulimit -u")
        })?;
        Ok(Self { sender: Some(sender), is_idle, thread: Some(thread) })
    }

    /// Writes a description, unless the thread is still busy with another one.
    pub(super) fn offer(&self, content: impl FnOnce() -> T) {
        if let Some(sender) = &self.sender {
            if self.is_idle.swap(false, Ordering::Acquire) {
                let _ = sender.send(content());
            }
        }
    }
}

/// Waits for the description that is being written.
impl<T> Drop for Notes<T> {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_offered_during_a_write_are_skipped() {
        let (written, all) = mpsc::channel();
        let (go, may_go) = mpsc::channel();
        let notes = Notes::start(move |number: u32| {
            let _ = written.send(number);
            let _ = may_go.recv();
            Ok(())
        });
        let notes = notes.expect("a thread");
        notes.offer(|| 1);
        assert_eq!(all.recv(), Ok(1));
        notes.offer(|| unreachable!("the thread is busy"));
        go.send(()).expect("the thread");
        // Until it is idle again.
        while !notes.is_idle.load(Ordering::Acquire) {
            thread::yield_now();
        }
        notes.offer(|| 2);
        assert_eq!(all.recv(), Ok(2));
        drop(go);
        drop(notes);
        assert!(all.recv().is_err());
    }
}
