// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks that a child of fork(2) finds free.
//!
//! A child has only the thread that called fork. A lock that another thread held would stay locked,
//! and its data might be half changed. So fork waits until no [`Lock`] is held: they are held
//! briefly. A [`Turn`], which may be held for long, guards no data, and a child begins a new one.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread;

/// Threads that hold a lock, or are about to.
static INSIDE: AtomicU32 = AtomicU32::new(0);
/// Forks under way.
static FORKING: AtomicU32 = AtomicU32::new(0);
/// Forks from the first process to this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// How many locks this thread holds.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// To be called before the first lock is used.
pub(crate) fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers use atomics and a thread-local number only. The extension is never unloaded.
        unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
    });
}

/// The number of forks from the first process to this one.
pub(crate) fn generation() -> u32 {
    GENERATION.load(SeqCst)
}

fn is_inside() -> u32 {
    u32::from(HELD.get() > 0)
}

extern "C" fn prepare() {
    FORKING.fetch_add(1, SeqCst);
    while INSIDE.load(SeqCst) > is_inside() {
        thread::yield_now();
    }
}

extern "C" fn in_parent() {
    FORKING.fetch_sub(1, SeqCst);
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, SeqCst);
    INSIDE.store(is_inside(), SeqCst);
    FORKING.store(0, SeqCst);
}

/// Keeps forks waiting.
#[derive(Debug)]
struct Inside;

impl Inside {
    fn enter() -> Self {
        // A thread inside continues: fork waits for it.
        while HELD.get() == 0 {
            INSIDE.fetch_add(1, SeqCst);
            if FORKING.load(SeqCst) == 0 {
                break;
            }
            INSIDE.fetch_sub(1, SeqCst);
            while FORKING.load(SeqCst) > 0 {
                thread::yield_now();
            }
        }
        HELD.set(HELD.get() + 1);
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
        if HELD.get() == 0 {
            INSIDE.fetch_sub(1, SeqCst);
        }
    }
}

/// A mutex that is held briefly: its holder waits for nothing but other such locks.
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let inside = Inside::enter();
        let value = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Guard { value, _inside: inside }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lock that is held.
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    // Released first.
    value: MutexGuard<'a, T>,
    _inside: Inside,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// Work for one thread at a time, of any duration. Data that it changes is behind a [`Lock`].
#[derive(Debug, Default)]
pub(crate) struct Turn(Lock<(u32, Arc<Mutex<()>>)>);

impl Turn {
    /// Waits for the turn, then does the work.
    pub(crate) fn with<R>(&self, work: impl FnOnce() -> R) -> R {
        let turn = {
            let mut current = self.0.lock();
            let generation = generation();
            if current.0 != generation {
                // A thread of the parent, which this process does not have, may hold the parent's
                // turn.
                *current = (generation, Arc::default());
            }
            Arc::clone(&current.1)
        };
        let _held = turn.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }
}
