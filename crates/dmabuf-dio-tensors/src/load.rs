// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads tensors.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use dmabuf_dio::gather::Gatherer;
use dmabuf_dio::{Backend, Buffer, CancelToken, Direction, Kind, Options, Origin};

use crate::error::{Error, Result};
use crate::file::ModelFile;
use crate::loaded::{Loaded, View};
use crate::meter::{Meter, Progress};
use crate::model::Model;
use crate::plan::{self, Run};
use crate::settings::{self, LoadSettings};
use crate::tensor::Tensor;
use crate::{shared, workers};

/// More runs than this share a buffer by file. Each buffer is an open file.
const MANY: usize = 64;

/// Loads tensors of a model. Created by [`Model::loader`].
///
/// Neighbouring tensors of a file are read as one range. Each range has its own buffer; if there
/// are more than 64, the ranges of a file share one if the kind of buffer allows it, and neither
/// `numa` nor `lock` is set.
#[derive(Clone)]
pub struct TensorLoader<'m> {
    model: &'m Model,
    only: Option<Vec<String>>,
    settings: LoadSettings,
}

impl fmt::Debug for TensorLoader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorLoader").field("only", &self.only).finish_non_exhaustive()
    }
}

impl Model {
    /// Sets up a load of all tensors.
    pub fn loader(&self) -> TensorLoader<'_> {
        TensorLoader::new(self)
    }
}

impl<'m> TensorLoader<'m> {
    fn new(model: &'m Model) -> Self {
        let settings = LoadSettings::default();
        Self { model, only: None, settings }
    }

    /// Loads only the tensors with these names; repeated names count once. Default: all.
    #[must_use]
    pub fn only(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.only = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// The maximum number of bytes between two tensors that are read together; default 256 KiB, and 1 MiB for
    /// contents; at least a page. Bytes between tensors are loaded, too, and use memory.
    #[must_use]
    pub fn gap(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.settings.gap = bytes.into();
        self
    }

    /// Ranges that are loaded at the same time; default 4, at least 1.
    #[must_use]
    pub fn concurrency(mut self, loads: impl Into<Option<usize>>) -> Self {
        self.settings.concurrency = loads.into().unwrap_or(settings::CONCURRENCY);
        self
    }

    /// The kind of buffers to create: [`Loader::kind`](dmabuf_dio::Loader::kind).
    #[must_use]
    pub fn kind(mut self, kind: Kind) -> Self {
        self.settings.options.kind = kind;
        self
    }

    /// Uses only this backend: [`Loader::backend`](dmabuf_dio::Loader::backend).
    #[must_use]
    pub fn backend(mut self, backend: impl Into<Option<Backend>>) -> Self {
        self.settings.options.backend = backend.into();
        self
    }

    /// The settings of each transfer, in place of those made so far.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.settings.options = options;
        self
    }

    /// Reports progress: at the start of each range, then at least every 100 ms while data moves.
    /// Calls may come from other threads, but never concurrently; the count never decreases.
    #[must_use]
    pub fn progress(mut self, callback: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.settings.progress = Some(Arc::new(callback));
        self
    }

    /// The token that cancels the load. It then fails with [`Error::Load`] of
    /// [`dmabuf_dio::Error::Cancelled`].
    #[must_use]
    pub fn cancel(mut self, token: CancelToken) -> Self {
        self.settings.cancel = token;
        self
    }

    /// Loads the tensors. Blocks until all are loaded.
    ///
    /// # Errors
    ///
    /// [`Error::NoTensor`]; [`Error::Load`] as for [`Loader::load`](dmabuf_dio::Loader::load), with the file. All buffers are
    /// freed then.
    pub fn load(&self) -> Result<Loaded> {
        let began = Instant::now();
        let wanted = self.wanted()?;
        let runs = self.runs(&wanted);
        let total = runs.iter().map(Run::len).sum();
        let meter = self.settings.progress.clone().map(|callback| Meter::new(callback, total));
        let jobs = self.jobs(&runs);
        let (threads, cancel) = (self.settings.concurrency, &self.settings.cancel);
        let done = workers::run(jobs.len(), threads, cancel, |job, cancel| {
            self.run(jobs[job], meter.as_ref(), cancel)
        })?;

        let mut loaded = Loaded::default();
        loaded.views.extend(wanted.iter().map(|tensor| View::from(*tensor)));
        for (done, runs) in done.into_iter().zip(jobs) {
            let done = done.ok_or_else(|| self.cancelled(&runs[0]))?;
            for (run, (buffer, place)) in runs.iter().zip(done.places) {
                for position in run.tensors.clone() {
                    let (view, tensor) = (&mut loaded.views[position], wanted[position]);
                    if view.len > 0 {
                        view.buffer = Some(loaded.buffers.len() + buffer);
                        view.offset = place + (tensor.range.start - run.range.start);
                    }
                }
            }
            loaded.files.extend(done.buffers.iter().map(|_| runs[0].file));
            loaded.buffers.extend(done.buffers);
        }
        loaded.seconds = began.elapsed().as_secs_f64();
        Ok(loaded)
    }

    fn file(&self, run: &Run) -> &ModelFile {
        &self.model.files()[run.file]
    }

    /// What is read of the files.
    fn runs(&self, wanted: &[&Tensor]) -> Vec<Run> {
        // Within a page nothing is saved.
        let gap = self.settings.gap.unwrap_or_else(|| settings::usual_gap(self.model));
        plan::runs(wanted, gap.max(rustix::param::page_size() as u64))
    }

    /// The tensors to load, in the model's order.
    fn wanted(&self) -> Result<Vec<&'m Tensor>> {
        let all = self.model.tensors();
        let Some(only) = &self.only else { return Ok(all.iter().collect()) };
        let index = |name: &String| {
            self.model.index_of(name).ok_or_else(|| Error::NoTensor { name: name.clone() })
        };
        let mut wanted = only.iter().map(index).collect::<Result<Vec<_>>>()?;
        wanted.sort_unstable();
        wanted.dedup();
        Ok(wanted.into_iter().map(|index| &all[index]).collect())
    }

    /// Single runs; or the runs of a file, which may share a buffer.
    fn jobs<'r>(&self, runs: &'r [Run]) -> Vec<&'r [Run]> {
        let options = &self.settings.options;
        // A gather gets its buffer without a place.
        let is_plain = options.backend.is_none() && options.numa.is_none() && !options.lock;
        let can_share = is_plain && matches!(options.kind, Kind::Any | Kind::DmaBuf | Kind::Memfd);
        if runs.len() > MANY && can_share {
            return runs.chunk_by(|one, next| one.file == next.file).collect();
        }
        runs.chunks(1).collect()
    }

    fn run(&self, runs: &[Run], meter: Option<&Arc<Meter>>, cancel: &CancelToken) -> Result<Done> {
        let file = self.file(&runs[0]);
        let loader = |run: &Run, cancel: &CancelToken| {
            let loader = file.loader().offset(run.range.start).length(run.len());
            let loader = loader.options(self.settings.options.clone()).cancel(cancel.clone());
            match meter {
                Some(meter) => loader.progress(meter.part(run.len())),
                None => loader,
            }
        };
        if runs.len() > 1 {
            let shared = match file.origin() {
                Origin::Content(_) => shared::fetch(&self.settings, file, runs, cancel, loader),
                Origin::File(open) => {
                    let gatherer = self.settings.gatherer(Gatherer::from(open));
                    let gatherer = gatherer.cancel(cancel.clone());
                    let gatherer = match meter {
                        Some(meter) => {
                            gatherer.progress(meter.part(runs.iter().map(Run::len).sum()))
                        }
                        None => gatherer,
                    };
                    shared::load(&self.settings, file, runs, &gatherer)
                }
            };
            if let Some((buffer, places)) = shared.map_err(|error| file.error(error))? {
                let places = places.into_iter().map(|place| (0, place)).collect();
                return Ok(Done { buffers: vec![buffer], places });
            }
        }
        let mut done = Done { buffers: Vec::new(), places: Vec::new() };
        for run in runs {
            let buffer = loader(run, cancel).load().map_err(|error| file.error(error))?;
            done.places.push((done.buffers.len(), buffer.data_offset()));
            done.buffers.push(buffer);
        }
        Ok(done)
    }

    fn cancelled(&self, run: &Run) -> Error {
        let file = &self.model.files()[run.file];
        let (path, direction) = (file.path().to_owned(), Direction::Load);
        file.error(dmabuf_dio::Error::Cancelled { path, direction, done: 0, length: run.len() })
    }
}

/// The buffers of some runs, and for each run its buffer and the place of its first byte in it.
struct Done {
    buffers: Vec<Buffer>,
    places: Vec<(usize, u64)>,
}
