// SPDX-License-Identifier: MIT OR Apache-2.0
//! What uses a driver's library, shared by Python's objects and other libraries.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use crate::content::let_go;
use crate::lock;

/// A device, or memory of it: dropped with the last clone, without the interpreter, as the driver may wait for a callback
/// that waits for it. A child of fork(2), which must not use the driver of its parent, drops nothing.
#[derive(Debug)]
pub(crate) struct Lent<T: Send + Sync> {
    shared: ManuallyDrop<Arc<T>>,
    generation: u32,
}

impl<T: Send + Sync> Lent<T> {
    pub(crate) fn new(own: T) -> Self {
        Self { shared: ManuallyDrop::new(Arc::new(own)), generation: lock::generation() }
    }

    /// Whether this process may use it.
    pub(crate) fn is_ours(&self) -> bool {
        self.generation == lock::generation()
    }

    /// For a thread that does not have the interpreter when it is done.
    pub(crate) fn share(&self) -> Arc<T> {
        Arc::clone(&self.shared)
    }
}

impl<T: Send + Sync> Clone for Lent<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), generation: self.generation }
    }
}

impl<T: Send + Sync> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.shared
    }
}

impl<T: Send + Sync> Drop for Lent<T> {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: dropped once, here.
            let_go(unsafe { ManuallyDrop::take(&mut self.shared) });
        }
    }
}
