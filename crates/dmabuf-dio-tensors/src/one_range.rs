// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tensors that are one range of a file.

use dmabuf_dio::{Buffer, CancelToken, Kind, Loader};

use crate::error::Result;
use crate::load::{TensorLoader, view};
use crate::loaded::View;
use crate::plan::Run;
use crate::tensor::Tensor;

/// Tensors that are one range of a file, as all tensors of a safetensors file are. Their places in
/// the memory are known before they are loaded. Created by [`TensorLoader::one_range`].
#[derive(Debug)]
pub struct OneRange<'l> {
    loader: &'l TensorLoader<'l>,
    wanted: Vec<&'l Tensor>,
    run: Run,
}

impl TensorLoader<'_> {
    /// The tensors as one range of one file, to be loaded into memory of this process; `None` if they
    /// are more than one, or none. The kind of buffer and the backend that are set do not matter.
    ///
    /// # Errors
    ///
    /// [`Error::NoTensor`](crate::Error::NoTensor).
    pub fn one_range(&self) -> Result<Option<OneRange<'_>>> {
        let wanted = self.wanted()?;
        let mut runs = self.runs(&wanted);
        let run = if runs.len() == 1 { runs.pop() } else { None };
        Ok(run.map(|run| OneRange { loader: self, wanted, run }))
    }
}

impl OneRange<'_> {
    /// The views of the tensors; [`View::offset`] counts from the start of the content.
    pub fn views(&self) -> Vec<View> {
        let place = |tensor: &&Tensor| {
            let mut view = view(tensor);
            if view.len > 0 {
                (view.buffer, view.offset) = (Some(0), tensor.range.start - self.run.range.start);
            }
            view
        };
        self.wanted.iter().map(place).collect()
    }

    /// Loads into memory of this process, and calls `ready` with another owner of it before anything is
    /// read: [`Loader::load_with`]. Blocks until all is loaded, or `cancel` ends it. Neither the
    /// loader's callback nor its token is used.
    ///
    /// # Errors
    ///
    /// [`Error::Load`](crate::Error::Load) as for [`Loader::load`], with the file.
    pub fn load(&self, cancel: &CancelToken, ready: impl FnOnce(Buffer)) -> Result<Buffer> {
        let file = self.loader.file(&self.run);
        let range = Loader::from(file.file()).offset(self.run.range.start).length(self.run.len());
        let mut options = self.loader.settings().options.clone();
        (options.kind, options.backend) = (Kind::Private, None);
        let loader = range.options(options).cancel(cancel.clone());
        loader.load_with(ready).map_err(|error| file.error(error))
    }
}
