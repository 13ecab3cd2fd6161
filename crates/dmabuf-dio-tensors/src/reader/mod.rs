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

use dmabuf_dio::{Buffer, CancelToken, Direction, Kind, Loader, Options};

use self::ahead::{Ahead, Found, Run};
pub use self::report::ReaderReport;
use self::window::Window;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::tensor::Tensor;

/// Reads ahead that run at the same time.
const READS: usize = 2;
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
/// - If none is announced, tensors that follow those requested in that order are, once 4 MiB were:
///   as many bytes as were requested. A program reads at most twice what it uses.
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
    options: Options,
    /// Ends reads ahead with the reader.
    cancel: CancelToken,
    state: Mutex<State>,
    /// Whenever a read has ended.
    ended: Condvar,
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
        let options = Options { kind: Kind::Private, backend: None, ..options.clone() };
        let ahead = Ahead::new(Window::new(window));
        let state = Mutex::new(State { ahead, running: 0, has_failed: false });
        let (cancel, ended) = (CancelToken::new(), Condvar::new());
        Self { shared: Arc::new(Shared { model, options, cancel, state, ended }) }
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.shared.model
    }

    fn tensor(&self, number: usize) -> Result<&Tensor> {
        let tensors = self.shared.model.tensors();
        tensors.get(number).ok_or(Error::NoNumber { number, count: tensors.len() })
    }

    /// Announces that a tensor, by its place in [`Model::tensors`], will be requested. Others are
    /// no longer read ahead as long as one that was announced was not requested. May be called
    /// repeatedly.
    pub fn want(&self, number: usize) {
        if self.shared.model.tensors().get(number).is_some_and(|tensor| !tensor.is_empty()) {
            self.shared.lock().ahead.want(number);
        }
    }

    /// Takes an announcement back.
    pub fn forget(&self, number: usize) {
        self.shared.lock().ahead.forget(number);
    }

    /// A tensor, by its place in [`Model::tensors`], in [`Private`](Kind::Private) memory of its
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
        let tensors = shared.model.tensors();
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
                    let read = shared.read(&run, cancel);
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
        let tensors = shared.model.tensors();
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
        let tensors = self.shared.model.tensors();
        if number < tensors.len() {
            self.shared.lock().ahead.request(tensors, number);
        }
    }

    /// Bytes of a tensor, in memory of their own; `None` if the range is empty. Nothing is read
    /// ahead. Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Load`], also for a range beyond the tensor; [`Error::NoNumber`].
    pub fn part(
        &self,
        number: usize,
        range: Range<u64>,
        cancel: &CancelToken,
    ) -> Result<Option<Buffer>> {
        let (shared, tensor) = (&self.shared, self.tensor(number)?);
        let file = &shared.model.files()[tensor.file];
        if range.start > range.end || range.end > tensor.len() {
            let (offset, length) = (range.start, range.end.saturating_sub(range.start));
            let buffer = tensor.len();
            return Err(file.error(dmabuf_dio::Error::RangeBeyondBuffer {
                offset,
                length,
                buffer,
            }));
        }
        if range.is_empty() {
            return Ok(None);
        }
        let start = tensor.range.start;
        let range = start + range.start..start + range.end;
        let run = Run { tensors: vec![number], file: tensor.file, range };
        let mut parts = shared.load(&run, std::iter::once(run.range.clone()), cancel)?;
        let mut state = shared.lock();
        state.ahead.report.requested += run.len();
        state.ahead.report.read += run.len();
        state.ahead.report.reads += 1;
        Ok(parts.pop())
    }

    /// All tensors, in the order of the files, which is the fastest. They are read ahead.
    pub fn iter(&self) -> Iter<'_> {
        self.iter_of((0..self.shared.model.tensors().len()).collect())
    }

    /// Tensors by their places in [`Model::tensors`], in this order.
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

    /// Begins reads ahead, as many as there is room for.
    fn read_ahead(self: &Arc<Self>, state: &mut State) {
        while state.running < READS && !state.has_failed && !self.cancel.is_cancelled() {
            let Some(run) = state.ahead.more(self.model.tensors()) else { break };
            let run = Arc::new(run);
            let (shared, ours) = (Arc::clone(self), Arc::clone(&run));
            let read = move || {
                let read = shared.read(&ours, &shared.cancel);
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
                state.ahead.failed(self.model.tensors(), &run, false);
            }
        }
    }

    /// Takes note of a read that has ended.
    fn end(&self, state: &mut State, run: &Run, read: Result<Read>) -> Result<()> {
        let ended = match read {
            Ok(Read { parts, seconds }) => {
                state.ahead.arrived(run, parts);
                state.ahead.window.measured(run.len(), seconds);
                Ok(())
            }
            Err(error) => {
                let broken = !matches!(
                    error,
                    Error::Load { source: dmabuf_dio::Error::Cancelled { .. }, .. }
                );
                state.ahead.failed(self.model.tensors(), run, broken);
                Err(error)
            }
        };
        self.ended.notify_all();
        ended
    }

    fn read(&self, run: &Run, cancel: &CancelToken) -> Result<Read> {
        let began = Instant::now();
        let tensors = run.tensors.iter().map(|&number| &self.model.tensors()[number]);
        let parts = self.load(run, tensors.map(|tensor| tensor.range.clone()), cancel)?;
        Ok(Read { parts, seconds: began.elapsed().as_secs_f64() })
    }

    /// Loads a range of a file, and splits it into the memory of `ranges` of the file.
    fn load(
        &self,
        run: &Run,
        ranges: impl Iterator<Item = Range<u64>>,
        cancel: &CancelToken,
    ) -> Result<Vec<Buffer>> {
        let file = &self.model.files()[run.file];
        let Range { start, end } = run.range;
        let loader = Loader::from(file.file()).offset(start).length(end - start);
        let loaded = loader.options(self.options.clone()).cancel(cancel.clone()).load();
        let loaded = loaded.map_err(|error| file.error(error))?;
        let first = loaded.data_offset();
        let place = |range: Range<u64>| first + range.start - start..first + range.end - start;
        let places: Vec<_> = ranges.map(place).collect();
        loaded.into_parts(&places).map_err(|error| file.error(error))
    }

    fn cancelled(&self, number: usize) -> Error {
        let tensor = &self.model.tensors()[number];
        let file = &self.model.files()[tensor.file];
        let (path, direction) = (file.path().to_owned(), Direction::Load);
        file.error(dmabuf_dio::Error::Cancelled { path, direction, done: 0, length: tensor.len() })
    }
}

/// What a read gives.
struct Read {
    parts: Vec<Buffer>,
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
        Some(found.map(|memory| (&self.reader.shared.model.tensors()[number], memory)))
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
