// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that live for one call.

use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::errno::Errno;
use crate::error::{Error, Result};

/// Starts a thread; the caller's is what [`Scope::spawn`] would end if there can be none.
///
/// # Errors
///
/// [`Error::Thread`].
pub(crate) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let named = Builder::new().name("dmabuf-dio".into());
    let thread = named.spawn_scoped(scope, work);
    thread.map_err(|error| Error::Thread { errno: Errno::from(&error) })
}
