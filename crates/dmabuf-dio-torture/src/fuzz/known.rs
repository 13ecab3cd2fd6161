// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the process that makes calls knows of contexts and their buffers.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::mapping::Mapping;

/// A buffer that a context has.
pub(crate) struct Buffer {
    pub(crate) length: u64,
    /// If it can be mapped
    pub(crate) map: Option<Mapping>,
}

/// What is known of a context.
#[derive(Default)]
pub(crate) struct Context {
    pub(crate) buffer: RefCell<Option<Rc<Buffer>>>,
    pub(crate) cancelled: Cell<bool>,
}

impl Context {
    pub(crate) fn buffer(&self) -> Option<Rc<Buffer>> {
        self.buffer.borrow().clone()
    }
}
