// SPDX-License-Identifier: MIT OR Apache-2.0
//! What threads share. In the tests that loom runs it is loom's, which tries every order.

#[cfg(all(test, loom))]
pub(crate) use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64},
};
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64},
};
