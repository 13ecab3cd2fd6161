// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects that a child of fork(2) may use, too: it has none of the threads and connections of its parent.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmabuf_dio::content::{Content, Fetched, Fill};
use dmabuf_dio::{Errno, Error};
use dmabuf_dio_remote::Object;

use crate::lock::{Lock, generation};

/// Opens the object.
type Opens = dyn Fn() -> Result<Arc<Object>, Error> + Send + Sync;

/// An object, which each process opens for itself.
pub(super) struct Reopened {
    name: PathBuf,
    length: u64,
    version: Option<String>,
    opens: Box<Opens>,
    /// With the number of forks before it was opened.
    current: Lock<(u32, Arc<Object>)>,
}

impl fmt::Debug for Reopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reopened").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Reopened {
    pub(super) fn open(
        opens: impl Fn() -> Result<Arc<Object>, Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let object = opens()?;
        let (name, length) = (object.name().to_owned(), object.length());
        let (version, current) = (object.version(), Lock::new((generation(), object)));
        Ok(Self { name, length, version, opens: Box::new(opens), current })
    }

    fn object(&self) -> Result<Arc<Object>, Error> {
        let known = |current: &(u32, Arc<Object>)| {
            (current.0 == generation()).then(|| Arc::clone(&current.1))
        };
        if let Some(object) = known(&self.current.lock()) {
            return Ok(object);
        }
        // Not under the lock, which forks wait for. Threads may do it twice.
        let object = (self.opens)()?;
        if object.length() != self.length || object.version() != self.version {
            return Err(Error::Content {
                name: self.name.clone(),
                offset: 0,
                length: 0,
                what: "the object was replaced since it was opened".into(),
                errno: Errno::from_raw(libc::ESTALE),
                remedy: "load it again".into(),
            });
        }
        let mut current = self.current.lock();
        if let Some(other) = known(&current) {
            return Ok(other);
        }
        let old = std::mem::replace(&mut *current, (generation(), Arc::clone(&object)));
        // Its threads are the parent's: nobody would end them.
        std::mem::forget(old);
        Ok(object)
    }
}

impl Content for Reopened {
    fn name(&self) -> &Path {
        &self.name
    }

    fn length(&self) -> u64 {
        self.length
    }

    fn version(&self) -> Option<String> {
        self.version.clone()
    }

    fn read(&self, offset: u64, fill: &Fill<'_>) -> Result<Fetched, Error> {
        self.object()?.read(offset, fill)
    }
}

impl Drop for Reopened {
    fn drop(&mut self) {
        let current = self.current.get_mut();
        if current.0 != generation() {
            // As above.
            std::mem::forget(Arc::clone(&current.1));
        }
    }
}
