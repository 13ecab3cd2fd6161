// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tensors one by one, within a bound of memory, at the disk's speed.

mod ahead;
mod report;
mod window;

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use dmabuf_dio::{Buffer, CancelToken, Direction, Kind, Options};

use self::ahead::{Ahead, Costs, Found, Run};
pub use self::report::ReaderReport;
use self::window::Window;
use crate::error::{Error, Result};
use crate::gather;
use crate::model::Model;
use crate::part::Part;
use crate::settings;
use crate::strips::Strips;
use crate::tensor::Tensor;

/// Reads ahead that run at the same time.
const READS: usize = 2;
/// Of the bytes that are read for parts, one in so many may lie between them.
const THRIFT: u64 = 64;
/// How often a token is checked.
const TICK: Duration = Duration::from_millis(20);

/// Reads tensors when they are requested, each into memory of its own, and reads ahead.
///
/// The memory of a tensor is freed when its [`Buffer`] is dropped, in whole pages. What is read
/// ahead and was not requested yet has at most `window` bytes ([`with`](Self::with)), or is one
/// tensor.
///
/// - Tensors that were announced ([`want`](Self::want)) are read ahead in the order of the files,
///   from the last one requested on.
/// - If none is announced, tensors that follow those requested in that order are, once 4 MiB were, or 1 MiB of
///   contents: as many bytes as were requested. A program reads at most twice what it uses.
///
/// `Send` and `Sync`: threads share what was read. Reads ahead run in threads of their own, so a
/// child of `fork(2)` must not use a reader of its parent.
///
/// ```no_run
/// # fn main() -> Result<(), dmabuf_dio_tensors::Error> {
/// use std::sync::Arc;
/// use dmabuf_dio_tensors::{Model, Reader};
///
/// let reader = Reader::new(Arc::new(Model::open("Qwen3-0.6B")?));
/// for item in reader.iter() {
///     let (tensor, memory) = item?;
///     println!("{}: {} bytes", tensor.name, memory.map_or(0, |memory| memory.len()));
/// }
/// # Ok(())
/// # }
/// ```
pub struct Reader {
    shared: Arc<Shared>,
}

/// What the threads share.
struct Shared {
    model: Arc<Model>,
    /// `None`: all tensors.
    parts: Option<Parts>,
    options: Options,
    threads: gather::Threads,
    /// Ends reads ahead with the reader.
    cancel: CancelToken,
    state: Mutex<State>,
    /// Whenever a read has ended.
    ended: Condvar,
}

/// Parts of tensors: their descriptions and bytes.
struct Parts {
    tensors: Vec<Tensor>,
    strips: Vec<Strips>,
}

struct State {
    ahead: Ahead<Buffer>,
    /// Reads ahead under way.
    running: usize,
    /// A read ahead failed. The next request that needs a read tells why, or clears this.
    has_failed: bool,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("report", &self.report()).finish_non_exhaustive()
    }
}

impl Reader {
    /// Bytes for which it pays to set up a load. After so many in the order of the files, tensors that
    /// were not announced are read ahead.
    pub const WORTH_A_LOAD: u64 = ahead::WORTH_A_LOAD;

    /// Creates a reader with a window that is chosen from the speed of the disk and the free
    /// memory.
    pub fn new(model: Arc<Model>) -> Self {
        Self::with(model, None, &Options::default())
    }

    /// Creates a reader with settings of its own. `window`: the bytes that may be in memory before
    /// they are requested; `None`: chosen. 0: nothing is read ahead. Of the options `kind` and
    /// `backend` have no effect.
    pub fn with(model: Arc<Model>, window: Option<u64>, options: &Options) -> Self {
        Self::made(model, None, window, options)
    }

    /// Creates a reader of parts of tensors, otherwise as [`with`](Self::with). [`tensors`](Self::tensors)
    /// are then the parts, in this order, which should be that of the model: it is the one they are read in.
    ///
    /// A part that is contiguous in the file is read as a tensor is. Of any other, blocks of the file that have
    /// bytes of it are read, and bytes between them if they are at most 8 KiB; the CPU copies its bytes from
    /// there. Where no memfd can be made to read blocks into, all bytes between them may be read.
    ///
    /// # Errors
    ///
    /// [`Error::NoNumber`], [`Error::NoPart`].
    pub fn of_parts(
        model: Arc<Model>,
        parts: &[Part],
        window: Option<u64>,
        options: &Options,
    ) -> Result<Self> {
        let part = |part: &Part| part.of(model.numbered(part.number())?);
        let (tensors, strips) = parts.iter().map(part).collect::<Result<(Vec<_>, Vec<_>)>>()?;
        Ok(Self::made(model, Some(Parts { tensors, strips }), window, options))
    }

    fn made(
        model: Arc<Model>,
        parts: Option<Parts>,
        window: Option<u64>,
        options: &Options,
    ) -> Self {
        // Each block is a load, and nobody asks for its report.
        let reports_pages = false;
        let options =
            Options { kind: Kind::Private, backend: None, reports_pages, ..options.clone() };
        let is_of_contents = model.is_of_contents();
        let gap = settings::usual_gap(&model);
        let costs = if is_of_contents {
            Costs { gap, thrift: None, worth: gap }
        } else {
            // Ranks together read little more than the file.
            Costs { gap, thrift: parts.is_some().then_some(THRIFT), worth: ahead::WORTH_A_LOAD }
        };
        let ahead = Ahead::new(Window::new(window, is_of_contents), costs);
        let state = Mutex::new(State { ahead, running: 0, has_failed: false });
        let (cancel, ended) = (CancelToken::new(), Condvar::new());
        let threads = gather::Threads::default();
        Self { shared: Arc::new(Shared { model, parts, options, threads, cancel, state, ended }) }
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.shared.model
    }

    /// What is read: the tensors of the model, or [parts](Self::of_parts) of them. A part has the tensor's name
    /// and its own shape and range.
    pub fn tensors(&self) -> &[Tensor] {
        self.shared.tensors()
    }

    fn tensor(&self, number: usize) -> Result<&Tensor> {
        let tensors = self.tensors();
        tensors.get(number).ok_or(Error::NoNumber { number, count: tensors.len() })
    }

    /// Announces that a tensor, by its place in [`tensors`](Self::tensors), will be requested. Others are
    /// no longer read ahead as long as one that was announced was not requested. May be called
    /// repeatedly.
    pub fn want(&self, number: usize) {
        if self.tensors().get(number).is_some_and(|tensor| !tensor.is_empty()) {
            self.shared.lock().ahead.want(number);
        }
    }

    /// Takes an announcement back.
    pub fn forget(&self, number: usize) {
        self.shared.lock().ahead.forget(number);
    }

    /// Does not read a tensor ahead, even if it follows others or is announced: it will not be requested, or
    /// is to be read when it is.
    pub fn avoid(&self, number: usize) {
        self.shared.lock().ahead.avoid(number);
    }

    /// A tensor, by its place in [`tensors`](Self::tensors), in [`Private`](Kind::Private) memory of its
    /// own: the content of the buffer. `None` if it has no bytes. Blocks until it is read.
    /// Requested again, it is read again.
    ///
    /// # Errors
    ///
    /// [`Error::Load`], [`Error::NoNumber`]. Other tensors that were read with it are read again
    /// when they are requested.
    pub fn get(&self, number: usize, cancel: &CancelToken) -> Result<Option<Buffer>> {
        if let Some(ready) = self.get_ready(number)? {
            return Ok(ready);
        }
        let shared = &self.shared;
        let tensors = shared.tensors();
        let mut state = shared.lock();
        state.ahead.request(tensors, number);
        let mut alone = false;
        loop {
            match state.ahead.take(tensors, number) {
                Found::Read(buffer) => {
                    shared.read_ahead(&mut state);
                    return Ok(Some(buffer));
                }
                Found::Reading if cancel.is_cancelled() => {
                    return Err(shared.cancelled(number));
                }
                Found::Reading => {
                    let waited = shared.ended.wait_timeout(state, TICK);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                Found::Absent => {
                    let run = state.ahead.now(tensors, number, alone);
                    state.has_failed = false;
                    shared.read_ahead(&mut state);
                    drop(state);
                    let under_way = UnderWay { shared, run: &run, is_ahead: false };
                    let read = shared.read(&run, cancel);
                    std::mem::forget(under_way);
                    state = shared.lock();
                    let ended = shared.end(&mut state, &run, read);
                    // Others in the run must not fail this one.
                    alone = run.tensors.len() > 1 && !cancel.is_cancelled();
                    if !alone {
                        ended?;
                    }
                }
            }
        }
    }

    /// The same if it was read ahead, or has no bytes; else `None`, and [`get`](Self::get) is to be
    /// called. Does not block.
    ///
    /// # Errors
    ///
    /// [`Error::NoNumber`].
    pub fn get_ready(&self, number: usize) -> Result<Option<Option<Buffer>>> {
        let (shared, tensor) = (&self.shared, self.tensor(number)?);
        let tensors = shared.tensors();
        let mut state = shared.lock();
        if tensor.is_empty() {
            state.ahead.request(tensors, number);
            return Ok(Some(None));
        }
        let Found::Read(buffer) = state.ahead.take(tensors, number) else { return Ok(None) };
        state.ahead.request(tensors, number);
        shared.read_ahead(&mut state);
        Ok(Some(Some(buffer)))
    }

    /// Whether a tensor was read ahead, or is being read.
    pub fn has(&self, number: usize) -> bool {
        self.shared.lock().ahead.has(number)
    }

    /// Whether a tensor follows the last one that was requested: how many bytes were requested in
    /// order before it.
    pub fn follows(&self, number: usize) -> Option<u64> {
        self.shared.lock().ahead.follows(number)
    }

    /// Notes that a tensor was used that came from elsewhere, as from the page cache: the order of
    /// requests decides what is read ahead.
    pub fn passed(&self, number: usize) {
        let tensors = self.tensors();
        if number < tensors.len() {
            self.shared.lock().ahead.request(tensors, number);
        }
    }

    /// A part of a tensor of the model, in memory of its own; `None` if it has no bytes. Nothing is read
    /// ahead. Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Load`], [`Error::NoPart`], [`Error::NoNumber`].
    pub fn part(&self, part: &Part, cancel: &CancelToken) -> Result<Option<Buffer>> {
        let shared = &self.shared;
        let (tensor, strips) = part.of(shared.model.numbered(part.number())?)?;
        if tensor.is_empty() {
            return Ok(None);
        }
        let run = Run { tensors: vec![0], file: tensor.file, range: tensor.range.clone() };
        let mut read = shared.load(&run, &[&tensor], &[&strips], cancel)?;
        let report = &mut shared.lock().ahead.report;
        report.requested += tensor.len();
        report.read += read.bytes;
        report.reads += 1;
        Ok(read.parts.pop())
    }

    /// All tensors, in the order of the files, which is the fastest. They are read ahead.
    pub fn iter(&self) -> Iter<'_> {
        self.iter_of((0..self.tensors().len()).collect())
    }

    /// Tensors by their places in [`tensors`](Self::tensors), in this order.
    pub fn iter_of(&self, numbers: Vec<usize>) -> Iter<'_> {
        for &number in &numbers {
            self.want(number);
        }
        Iter { reader: self, numbers: numbers.into_iter() }
    }

    /// What was read so far.
    pub fn report(&self) -> ReaderReport {
        let state = self.shared.lock();
        ReaderReport { window: state.ahead.window.bytes(), ..state.ahead.report }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.cancel.cancel();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tensors(&self) -> &[Tensor] {
        self.parts.as_ref().map_or(self.model.tensors(), |parts| &parts.tensors)
    }

    /// Begins reads ahead, as many as there is room for.
    fn read_ahead(self: &Arc<Self>, state: &mut State) {
        while state.running < READS && !state.has_failed && !self.cancel.is_cancelled() {
            let Some(run) = state.ahead.more(self.tensors()) else { break };
            let run = Arc::new(run);
            let (shared, ours) = (Arc::clone(self), Arc::clone(&run));
            let read = move || {
                let under_way = UnderWay { shared: &shared, run: &ours, is_ahead: true };
                let read = shared.read(&ours, &shared.cancel);
                std::mem::forget(under_way);
                let mut state = shared.lock();
                state.running -= 1;
                if shared.end(&mut state, &ours, read).is_err() {
                    // Who requests one of its tensors reads it again, and gets the error.
                    state.has_failed = true;
                }
                shared.read_ahead(&mut state);
            };
            state.running += 1;
            let thread = thread::Builder::new().name("dmabuf-dio-ahead".into());
            if thread.spawn(read).is_err() {
                state.running -= 1;
                state.has_failed = true;
                state.ahead.failed(self.tensors(), &run, false);
            }
        }
    }

    /// Takes note of a read that has ended.
    fn end(&self, state: &mut State, run: &Run, read: Result<Read>) -> Result<()> {
        let ended = match read {
            Ok(Read { parts, bytes, seconds }) => {
                state.ahead.arrived(run, parts, bytes);
                state.ahead.window.measured(bytes, seconds);
                Ok(())
            }
            Err(error) => {
                let broken = !matches!(
                    error,
                    Error::Load { source: dmabuf_dio::Error::Cancelled { .. }, .. }
                );
                state.ahead.failed(self.tensors(), run, broken);
                Err(error)
            }
        };
        self.ended.notify_all();
        ended
    }

    fn read(&self, run: &Run, cancel: &CancelToken) -> Result<Read> {
        let tensors: Vec<_> = run.tensors.iter().map(|&number| &self.tensors()[number]).collect();
        let strips = self.parts.as_ref().map(|parts| &parts.strips);
        let strips: Vec<_> = strips
            .iter()
            .flat_map(|strips| run.tensors.iter().map(|&number| &strips[number]))
            .collect();
        self.load(run, &tensors, &strips, cancel)
    }

    /// Loads the tensors of a run.
    fn load(
        &self,
        run: &Run,
        tensors: &[&Tensor],
        strips: &[&Strips],
        cancel: &CancelToken,
    ) -> Result<Read> {
        let file = &self.model.files()[run.file];
        let began = Instant::now();
        if let ([strips], [tensor]) = (strips, tensors) {
            if strips.count() > 1 {
                let (len, threads) = (tensor.len(), &self.threads);
                let loaded = gather::load(file, strips, len, &self.options, threads, cancel);
                let (memory, bytes) = loaded.map_err(|error| file.error(error))?;
                let seconds = began.elapsed().as_secs_f64();
                return Ok(Read { parts: vec![memory], bytes, seconds });
            }
        }
        let ranges = tensors.iter().map(|tensor| tensor.range.clone());
        let Range { start, end } = run.range;
        let loader = file.loader().offset(start).length(end - start);
        let loaded = loader.options(self.options.clone()).cancel(cancel.clone()).load();
        let loaded = loaded.map_err(|error| file.error(error))?;
        let first = loaded.data_offset();
        let place = |range: Range<u64>| first + range.start - start..first + range.end - start;
        let places: Vec<_> = ranges.map(place).collect();
        let parts = loaded.into_parts(&places).map_err(|error| file.error(error))?;
        Ok(Read { parts, bytes: run.len(), seconds: began.elapsed().as_secs_f64() })
    }

    fn cancelled(&self, number: usize) -> Error {
        let tensor = &self.tensors()[number];
        let file = &self.model.files()[tensor.file];
        let (path, direction) = (file.path().to_owned(), Direction::Load);
        file.error(dmabuf_dio::Error::Cancelled { path, direction, done: 0, length: tensor.len() })
    }
}

/// A read that is under way, until it is forgotten. If it panics, as a content may, it has failed: others wait for its
/// tensors.
struct UnderWay<'s> {
    shared: &'s Shared,
    run: &'s Run,
    is_ahead: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if self.is_ahead {
            state.running -= 1;
            state.has_failed = true;
        }
        state.ahead.failed(self.shared.tensors(), self.run, true);
        self.shared.ended.notify_all();
    }
}

/// What a read gives.
struct Read {
    parts: Vec<Buffer>,
    /// Bytes of the file that were read.
    bytes: u64,
    seconds: f64,
}

impl<'r> IntoIterator for &'r Reader {
    type Item = <Iter<'r> as Iterator>::Item;
    type IntoIter = Iter<'r>;

    fn into_iter(self) -> Iter<'r> {
        self.iter()
    }
}

/// Tensors and their memory: [`Reader::iter`]. What was not requested yet is not read ahead any
/// more once it is dropped.
#[derive(Debug)]
pub struct Iter<'r> {
    reader: &'r Reader,
    numbers: std::vec::IntoIter<usize>,
}

impl<'r> Iterator for Iter<'r> {
    type Item = Result<(&'r Tensor, Option<Buffer>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let number = self.numbers.next()?;
        let found = self.reader.get(number, &self.reader.shared.cancel);
        Some(found.map(|memory| (&self.reader.tensors()[number], memory)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.numbers.size_hint()
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl Drop for Iter<'_> {
    fn drop(&mut self) {
        self.numbers.by_ref().for_each(|number| self.reader.forget(number));
    }
}
