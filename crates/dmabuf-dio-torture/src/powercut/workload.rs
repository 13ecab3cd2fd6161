// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random saves, WRITEs and captures. A mark in the log after each says what was reported durable.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use dmabuf_dio::{Backend, Buffer, Error, Kind, Loader, Saver};
use dmabuf_dio_sys::dio;
use rustix::fs::{FlockOperation, flock};

use crate::mapper::Mapped;
use crate::pages::{PAGE, stamp};
use crate::powercut::model::{Allowed, Form, State};
use crate::powercut::volume;
use crate::random::Random;
use crate::transfer::{copy_call, module_call};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Of a file.
const LONGEST: u64 = 160 << 10;

/// A folder on the disk that is logged, and its model.
pub(crate) struct Work<'a> {
    kind: &'static volume::Kind,
    folder: PathBuf,
    device: &'a Mapped,
    random: Random,
    now: State,
    stamps: u64,
    /// What may be found after each mark.
    pub(crate) states: Vec<State>,
}

/// A write by the kernel from a dma-buf, into a file that is there.
struct Write {
    name: String,
    old: Form,
    at: u64,
    bytes: Vec<u8>,
    buffer: Buffer,
    /// Of the bytes in the buffer
    offset: u64,
    direct: bool,
    dsync: bool,
}

impl Write {
    /// Offset in the file, offset in the buffer, length.
    fn range(&self) -> (u64, u64, u64) {
        (self.at, self.offset, self.bytes.len() as u64)
    }
}

type Outcome = Result<(), String>;

fn failed<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> String + '_ {
    move |error| format!("{what}: {error}")
}

/// Is kernel/series applied?
fn has_series() -> bool {
    std::env::var("DMABUF_DIO_KERNEL").unwrap_or_default().contains("series")
}

impl<'a> Work<'a> {
    /// An empty folder, which is durable.
    pub(crate) fn start(
        kind: &'static volume::Kind,
        at: &Path,
        device: &'a Mapped,
        random: Random,
    ) -> Result<Self, String> {
        let folder = at.join("work");
        std::fs::create_dir(&folder).map_err(failed("mkdir"))?;
        let place = File::open(at).map_err(failed("open"))?;
        rustix::fs::syncfs(&place).map_err(failed("syncfs"))?;
        let (now, states) = (State::default(), Vec::new());
        let mut work = Self { kind, folder, device, random, now, stamps: 0, states };
        work.mark("the start", false)?;
        Ok(work)
    }

    fn mark(&mut self, what: &str, runs: bool) -> Outcome {
        self.now.what = what.into();
        self.now.runs = runs;
        self.device.message(&format!("mark {}", self.states.len()))?;
        self.states.push(self.now.clone());
        Ok(())
    }

    /// Something that is durable once it is done: before, a name leads to the old or the new.
    fn durably(
        &mut self,
        name: &str,
        during: Allowed,
        after: Allowed,
        what: &str,
        make: impl FnOnce(&mut Self) -> Outcome,
    ) -> Outcome {
        self.now.files.insert(name.into(), during);
        self.mark(&format!("during '{what}'"), true)?;
        make(self).map_err(|error| format!("'{what}': {error}"))?;
        self.now.files.insert(name.into(), after);
        self.now.partial = None;
        self.mark(&format!("after '{what}'"), false)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Fresh bytes, as no file had them.
    fn fresh(&mut self, length: u64) -> Vec<u8> {
        self.stamps += 1;
        stamp(self.stamps, 0, length as usize)
    }

    fn length(&mut self) -> u64 {
        let length = self.random.in_range(1..LONGEST);
        if self.random.one_in(2) { length.next_multiple_of(PAGE as u64) } else { length }
    }

    /// One of the names, and what it leads to.
    fn draw(&mut self) -> (&'static str, Allowed) {
        let name = self.random.pick(&NAMES);
        let none = Allowed { absent: true, forms: Vec::new() };
        (name, self.now.files.get(name).cloned().unwrap_or(none))
    }

    /// A file that is there.
    fn existing(&mut self) -> Option<(String, Form)> {
        let files = self.now.files.iter();
        let there: Vec<_> =
            files.filter_map(|(name, allowed)| Some((name, allowed.forms.first()?))).collect();
        let place = self.random.in_range(0..there.len() as u64) as usize;
        there.get(place).map(|(name, form)| ((*name).clone(), (*form).clone()))
    }

    /// A buffer whose content starts somewhere.
    fn buffer(&mut self, bytes: &[u8], kinds: &[Kind]) -> Result<(Buffer, u64), String> {
        let kind = self.random.pick(kinds);
        let offset = if self.random.one_in(2) { 0 } else { self.random.in_range(0..8192) };
        let mut buffer = match Buffer::alloc_kind(kind, "system", offset + bytes.len() as u64) {
            // A kernel without heaps
            Err(_) if kind == Kind::DmaBuf => return Ok((loaded(bytes, offset)?, offset)),
            buffer => buffer.map_err(failed("a buffer"))?,
        };
        let mut map = buffer.map_mut().map_err(failed("the buffer"))?;
        map.write_at(offset, bytes).map_err(failed("the buffer"))?;
        map.finish().map_err(failed("the buffer"))?;
        Ok((buffer, offset))
    }

    /// One operation.
    pub(crate) fn step(&mut self) -> Outcome {
        match self.random.in_range(0..24) {
            0..7 => self.save(),
            7..9 => self.save_from(),
            9..13 => self.save_in_place(),
            13..17 => self.write(),
            17 | 18 => self.copy(),
            19 | 20 => self.synchronise(),
            21 => self.remove(),
            22 => self.command(),
            _ => self.capture(),
        }
    }

    fn replaced(
        &mut self,
        name: &str,
        old: Allowed,
        bytes: &[u8],
        what: &str,
        make: impl FnOnce(&mut Self) -> Outcome,
    ) -> Outcome {
        let new = Form::exactly(bytes.to_vec());
        let mut during = old;
        during.forms.push(new.clone());
        self.now.partial = Some(new.clone());
        self.durably(name, during, Allowed::only(new), what, make)
    }

    fn save(&mut self) -> Outcome {
        let (name, old) = self.draw();
        let length = self.length();
        let bytes = self.fresh(length);
        let (buffer, offset) = self.buffer(&bytes, &[Kind::DmaBuf, Kind::Memfd])?;
        let backend = [None, None, Some(self.random.pick(&Backend::ALL))];
        let (backend, direct) = (self.random.pick(&backend), !self.random.one_in(3));
        let what = format!("save {length} bytes to {name}, direct {direct}, by {backend:?}");
        self.replaced(name, old, &bytes, &what, |work| {
            let saver = Saver::new(work.path(name)).direct(direct);
            by(saver, backend, &|saver| saver.save(&buffer, offset..offset + length).map(drop))
        })
    }

    fn save_from(&mut self) -> Outcome {
        let (name, old) = self.draw();
        let length = self.length();
        let bytes = self.fresh(length);
        let what = format!("save {length} bytes of a reader to {name}");
        self.replaced(name, old, &bytes, &what, |work| {
            let saver = Saver::new(work.path(name));
            saver.save_from(&bytes[..], length).map(drop).map_err(failed("save_from"))
        })
    }

    /// The command, from file to file.
    fn command(&mut self) -> Outcome {
        let (name, old) = self.draw();
        let length = self.length();
        let bytes = self.fresh(length);
        let source = format!("powercut-source-{}", std::process::id());
        let source = std::env::temp_dir().join(source);
        std::fs::write(&source, &bytes).map_err(failed("the source"))?;
        let what = format!("dmabuf-dio save {name}, {length} bytes");
        self.replaced(name, old, &bytes, &what, |work| {
            let path = work.path(name);
            let load = Command::new("dmabuf-dio")
                .arg("load")
                .arg("-q")
                .arg(&source)
                .arg("--")
                .args(["dmabuf-dio", "save", "-q"])
                .arg(path)
                .output();
            ended(&load.map_err(failed("dmabuf-dio"))?)
        })
    }

    /// A range of a file that is there, or beyond its end.
    fn range(&mut self, form: &Form) -> (u64, u64) {
        let end = form.now().len() as u64;
        let at = self.random.in_range(0..end + 8192);
        let at = if self.random.one_in(2) { at / PAGE as u64 * PAGE as u64 } else { at };
        let length = self.random.in_range(1..(64 << 10)).min(LONGEST + (64 << 10) - at);
        (at, length.max(1))
    }

    fn save_in_place(&mut self) -> Outcome {
        let Some((name, old)) = self.existing() else { return Ok(()) };
        let (at, length) = self.range(&old);
        let bytes = self.fresh(length);
        let (buffer, offset) = self.buffer(&bytes, &[Kind::DmaBuf, Kind::Memfd])?;
        let direct = !self.random.one_in(3);
        let new = old.with(at as usize, &bytes);
        let (during, after) = (Allowed::only(new.clone()), Allowed::only(new.durable()));
        let what = format!("save {length} bytes at {at} of {name}, direct {direct}");
        self.durably(&name, during, after, &what, |work| {
            let file = File::options().read(true).write(true).open(work.path(&name));
            let file = file.map_err(failed("open"))?;
            let saver = Saver::from(&file).offset(at).direct(direct);
            by(saver, None, &|saver| saver.save(&buffer, offset..offset + length).map(drop))
        })
    }

    /// What the kernel is to write, and where, in an existing file.
    fn write_of_kernel(&mut self) -> Result<Option<Write>, String> {
        let Some((name, old)) = self.existing() else { return Ok(None) };
        let (mut at, length) = self.range(&old);
        let bytes = self.fresh(length);
        let (buffer, offset) = self.buffer(&bytes, &[Kind::DmaBuf])?;
        let (direct, dsync) = (!self.random.one_in(3), self.random.one_in(2));
        if direct {
            // Offsets in file and buffer must be congruent.
            at = at / PAGE as u64 * PAGE as u64 + offset % PAGE as u64;
        }
        Ok(Some(Write { name, old, at, bytes, buffer, offset, direct, dsync }))
    }

    /// WRITE of the module; durable if the file is `O_DSYNC`, else after `fsync()`.
    fn write(&mut self) -> Outcome {
        let Some(write) = self.write_of_kernel()? else { return Ok(()) };
        let context = attached(&write.buffer)?;
        self.written("WRITE", &write, |file| {
            let moved =
                module_call(context.as_fd(), file.as_fd(), write.range(), (0, 0), dio::write);
            moved.errno.map_or(Ok(()), |errno| Err(errno.to_string()))
        })
    }

    /// `copy_file_range()` from a dma-buf: kernels with the series.
    fn copy(&mut self) -> Outcome {
        if !has_series() {
            return Ok(());
        }
        let Some(write) = self.write_of_kernel()? else { return Ok(()) };
        self.written("copy_file_range", &write, |file| {
            let from = write.buffer.fd().map_err(|error| error.to_string())?;
            let moved = copy_call(from, file.as_fd(), write.range(), false);
            if moved.done != write.bytes.len() as u64 {
                return Err(format!("{} bytes, {:?}", moved.done, moved.errno));
            }
            Ok(())
        })
    }

    /// f2fs without the patch in kernel/series/f2fs flushes the disk after asynchronous direct writes only if
    /// something else of the file has changed, too.
    fn touch_on_f2fs(&self, file: &File) -> Outcome {
        if self.kind.name != "f2fs" || has_series() {
            return Ok(());
        }
        file.set_modified(std::time::SystemTime::now()).map_err(failed("futimens"))
    }

    fn written(
        &mut self,
        call: &str,
        write: &Write,
        make: impl FnOnce(&File) -> Outcome,
    ) -> Outcome {
        let Write { name, old, at, bytes, direct, dsync, .. } = write;
        let new = old.with(*at as usize, bytes);
        let during = Allowed::only(new.clone());
        let synchronise = self.random.in_range(0..3);
        let durable = *dsync || synchronise > 0;
        let then = ["nothing", "fsync", "fdatasync"][synchronise as usize];
        let length = bytes.len();
        let what = format!(
            "{call} {length} bytes to {at} of {name}, direct {direct}, O_DSYNC {dsync}, then {then}"
        );
        // O_DSYNC makes durable what is written, and what was before only if the file is synchronised.
        let after = match durable {
            true if synchronise > 0 => new.durable(),
            true => old.with_durable(*at as usize, bytes),
            false => new,
        };
        self.durably(name, during, Allowed::only(after), &what, |work| {
            let flags =
                if *direct { libc::O_DIRECT } else { 0 } | if *dsync { libc::O_DSYNC } else { 0 };
            let mut options = File::options();
            let file = options.read(true).write(true).custom_flags(flags).open(work.path(name));
            let file = file.map_err(failed("open"))?;
            make(&file)?;
            work.touch_on_f2fs(&file)?;
            match synchronise {
                1 => file.sync_all().map_err(failed("fsync")),
                2 => file.sync_data().map_err(failed("fdatasync")),
                _ => Ok(()),
            }
        })
    }

    /// `fsync()` of every file. (XFS flushes the disk's cache for it, but not always for `syncfs()`.)
    fn synchronise(&mut self) -> Outcome {
        for (name, allowed) in &mut self.now.files {
            let Some(form) = allowed.forms.first_mut() else { continue };
            let file = File::open(self.folder.join(name)).map_err(failed("open"))?;
            file.sync_all().map_err(failed("fsync"))?;
            *form = form.durable();
        }
        self.mark("after 'fsync'", false)
    }

    fn remove(&mut self) -> Outcome {
        let Some((name, old)) = self.existing() else { return Ok(()) };
        let during = Allowed { absent: true, forms: vec![old] };
        let after = Allowed { absent: true, forms: Vec::new() };
        self.durably(&name, during, after, &format!("remove {name}"), |work| {
            std::fs::remove_file(work.path(&name)).map_err(failed("unlink"))?;
            let folder = File::open(&work.folder).map_err(failed("open"))?;
            folder.sync_all().map_err(failed("fsync"))
        })
    }

    /// The simulated device counts: frame n is the number n.
    fn capture(&mut self) -> Outcome {
        let devices = std::fs::read_dir("/sys/bus/iio/devices").into_iter().flatten().flatten();
        let mut names =
            devices.filter_map(|it| std::fs::read_to_string(it.path().join("name")).ok());
        if !names.any(|name| name.trim() == "stream-adc") {
            return Ok(());
        }
        // Other campaigns want the device, too.
        let turn = File::create(std::env::temp_dir().join("powercut-turn"));
        let turn = turn.map_err(failed("a lock"))?;
        flock(&turn, FlockOperation::LockExclusive).map_err(failed("a lock"))?;
        // Small blocks go through the page cache.
        let direct = self.random.one_in(2);
        let block = if direct { 128 << 10 } else { 16 << 10 };
        let frames = self.random.in_range(500..12_000) * if direct { 4 } else { 1 };
        let bytes: Vec<u8> = (0..frames).flat_map(u64::to_le_bytes).collect();
        self.stamps += 1;
        let name = format!("capture-{}", self.stamps);
        // What does not fill a block of the disk does so, too.
        let sure = if direct && self.kind.is_ordered { bytes.len() / 4096 * 4096 } else { 0 };
        let prefix = Form::PrefixOf(Rc::new(bytes.clone()), sure);
        let during = Allowed { absent: true, forms: vec![prefix] };
        let what = format!("capture {frames} frames to {name}, direct {direct}");
        self.durably(&name, during, Allowed::only(Form::exactly(bytes)), &what, |work| {
            let capture = Command::new("dmabuf-dio")
                .args(["capture", "stream-adc", "--rate", "0", "--blocks", "8"])
                .args(["--block-size", &block.to_string(), "--samples", &frames.to_string()])
                .arg("--to")
                .arg(work.path(&name))
                .output();
            ended(&capture.map_err(failed("dmabuf-dio"))?)
        })
    }

    /// Before anything is cut, the files are what the model says.
    pub(crate) fn check(&self) -> Outcome {
        let mut state = self.now.clone();
        for allowed in state.files.values_mut() {
            for form in &mut allowed.forms {
                *form = form.durable();
            }
        }
        state.check(&self.folder).map(drop)
    }
}

/// By a backend, or by any if that one is not available.
fn by(
    saver: Saver<'_>,
    backend: Option<Backend>,
    save: &dyn Fn(Saver<'_>) -> Result<(), Error>,
) -> Outcome {
    match save(saver.clone().backend(backend)) {
        Err(Error::Unavailable { .. }) => save(saver.backend(None)),
        result => result,
    }
    .map_err(failed("save"))
}

/// A dma-buf of LOAD, whose content starts somewhere.
fn loaded(bytes: &[u8], offset: u64) -> Result<Buffer, String> {
    let source = std::env::temp_dir().join(format!("powercut-buffer-{}", std::process::id()));
    std::fs::write(&source, [&vec![0; offset as usize], bytes].concat())
        .map_err(failed("a buffer's source"))?;
    Loader::new(&source).kind(Kind::DmaBuf).load().map_err(failed("a buffer"))
}

fn attached(buffer: &Buffer) -> Result<OwnedFd, String> {
    let context = dio::open().map_err(failed("the module"))?;
    let fd = buffer.fd().map_err(failed("the buffer"))?;
    let mut attach = dio::Attach::default();
    dio::attach(context.as_fd(), fd, &mut attach).map_err(failed("ATTACH"))?;
    Ok(context)
}

fn ended(output: &std::process::Output) -> Outcome {
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}
