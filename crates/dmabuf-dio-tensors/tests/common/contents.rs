// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contents in memory, which note what is asked of them, and fail where they are told to.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

use dmabuf_dio::content::{Content, Fetched, Fill, Folder};
use dmabuf_dio::{Errno, Error, Result};

type Hook = Box<dyn FnOnce() + Send>;

/// Bytes under a name.
pub(crate) struct Memory {
    name: PathBuf,
    pub(crate) bytes: Vec<u8>,
    asked: Mutex<Vec<Range<u64>>>,
    /// The byte that cannot be read, and how often it cannot.
    broken: Mutex<Option<(u64, u32)>>,
    /// What is called by the next read of a byte, before it reads.
    hook: Mutex<Option<(u64, Hook)>>,
    /// Whether reads wait until they are cancelled, and how many do.
    stalls: Mutex<Option<u32>>,
    stalled: Condvar,
}

impl Memory {
    pub(crate) fn new(name: impl Into<PathBuf>, bytes: Vec<u8>) -> Arc<Self> {
        let (asked, broken, stalls) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (name, hook, stalled) = (name.into(), Mutex::default(), Condvar::new());
        Arc::new(Self { name, bytes, asked, broken, hook, stalls, stalled })
    }

    /// The ranges that were asked for since the last call, in their order.
    pub(crate) fn asked(&self) -> Vec<Range<u64>> {
        let mut asked = std::mem::take(&mut *self.asked.lock().expect("asked"));
        asked.sort_by_key(|range| (range.start, range.end));
        asked
    }

    /// From now on reads of this byte fail so often.
    pub(crate) fn break_at(&self, byte: u64, times: u32) {
        *self.broken.lock().expect("broken") = Some((byte, times));
    }

    /// The next read of this byte calls this first.
    pub(crate) fn call_at(&self, byte: u64, hook: impl FnOnce() + Send + 'static) {
        *self.hook.lock().expect("hook") = Some((byte, Box::new(hook)));
    }

    /// From now on reads end only when they are cancelled.
    pub(crate) fn stall(&self) {
        *self.stalls.lock().expect("stalls") = Some(0);
    }

    /// From now on reads end by themselves again.
    pub(crate) fn go_on(&self) {
        *self.stalls.lock().expect("stalls") = None;
    }

    /// Waits until a read does.
    pub(crate) fn wait_for_stall(&self) {
        let mut stalls = self.stalls.lock().expect("stalls");
        while stalls.is_some_and(|count| count == 0) {
            stalls = self.stalled.wait(stalls).expect("stalls");
        }
    }

    fn error(&self, range: &Range<u64>) -> Error {
        Error::Content {
            name: self.name.clone(),
            offset: range.start,
            length: range.end - range.start,
            what: "the connection was reset".into(),
            errno: Errno::from_raw(104),
            remedy: "try again".into(),
        }
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Content for Memory {
    fn name(&self) -> &Path {
        &self.name
    }

    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, offset: u64, fill: &Fill<'_>) -> Result<Fetched> {
        let range = offset..offset + fill.length();
        self.asked.lock().expect("asked").push(range.clone());
        let hook = self.hook.lock().expect("hook").take_if(|(byte, _)| range.contains(byte));
        if let Some((_, hook)) = hook {
            hook();
        }
        let stalls = self.stalls.lock().expect("stalls").as_mut().map(|count| *count += 1);
        if stalls.is_some() {
            self.stalled.notify_all();
            while !fill.is_cancelled() {
                std::thread::yield_now();
            }
        }
        fill.check()?;
        let bytes = &self.bytes[range.start as usize..range.end as usize];
        let mut broken = self.broken.lock().expect("broken");
        if let Some((byte, times)) = broken.as_mut() {
            if *times > 0 && range.contains(byte) {
                *times -= 1;
                // What came before it is there, and is not handed out.
                fill.write(0, &bytes[..(*byte - offset) as usize])?;
                return Err(self.error(&(*byte..range.end)));
            }
        }
        drop(broken);
        fill.write(0, bytes)?;
        fill.count(fill.length());
        let mut fetched = Fetched::default();
        (fetched.requests, fetched.bytes) = (1, fill.length());
        Ok(fetched)
    }
}

/// A folder of contents.
#[derive(Debug)]
pub(crate) struct Store {
    name: PathBuf,
    pub(crate) contents: BTreeMap<PathBuf, Arc<Memory>>,
    pub(crate) lists: bool,
}

impl Store {
    pub(crate) const NAME: &'static str = "store://of/tests";

    /// The files of a folder of this machine.
    pub(crate) fn of(folder: &Path) -> Self {
        let mut store = Self { name: Self::NAME.into(), contents: BTreeMap::new(), lists: true };
        for entry in std::fs::read_dir(folder).expect("the folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().map(PathBuf::from).expect("a name");
            store.add(name, std::fs::read(path).expect("a file"));
        }
        store
    }

    pub(crate) fn add(&mut self, name: impl Into<PathBuf>, bytes: Vec<u8>) {
        let name = name.into();
        let memory = Memory::new(self.name.join(&name), bytes);
        self.contents.insert(name, memory);
    }

    pub(crate) fn memory(&self, name: &str) -> &Arc<Memory> {
        &self.contents[Path::new(name)]
    }

    fn error(&self, name: &Path, errno: i32) -> Error {
        Error::Content {
            name: self.name.join(name),
            offset: 0,
            length: 0,
            what: "no".into(),
            errno: Errno::from_raw(errno),
            remedy: "look for it".into(),
        }
    }
}

impl Folder for Store {
    fn name(&self) -> &Path {
        &self.name
    }

    fn list(&self) -> Result<Vec<(PathBuf, u64)>> {
        if !self.lists {
            return Err(self.error(Path::new(""), 95));
        }
        Ok(self.contents.iter().map(|(name, memory)| (name.clone(), memory.length())).collect())
    }

    fn open(&self, name: &Path) -> Result<Arc<dyn Content>> {
        match self.contents.get(name) {
            Some(memory) => Ok(memory.clone()),
            None => Err(self.error(name, 2)),
        }
    }
}
