// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device's memory that Python's objects and other libraries share.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use dmabuf_dio_device::DeviceMemory;
use pyo3::prelude::*;

use crate::lock;

/// Memory of a device, freed with the last clone. A child of fork(2), which must not use the device, frees nothing.
#[derive(Debug)]
pub(crate) struct Lent {
    memory: ManuallyDrop<Arc<DeviceMemory>>,
    generation: u32,
}

impl Lent {
    pub(crate) fn new(memory: DeviceMemory) -> Self {
        Self { memory: ManuallyDrop::new(Arc::new(memory)), generation: lock::generation() }
    }
}

impl Clone for Lent {
    fn clone(&self) -> Self {
        Self { memory: self.memory.clone(), generation: self.generation }
    }
}

impl Deref for Lent {
    type Target = DeviceMemory;

    fn deref(&self) -> &DeviceMemory {
        &self.memory
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.generation != lock::generation() {
            return;
        }
        // SAFETY: dropped once, here.
        let mut memory = Some(unsafe { ManuallyDrop::take(&mut self.memory) });
        // The last one waits for the device. Without the interpreter, as at its end, it goes below.
        let _ = Python::try_attach(|py| py.detach(|| drop(memory.take())));
    }
}
