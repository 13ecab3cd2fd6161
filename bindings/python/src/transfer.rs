// SPDX-License-Identifier: MIT OR Apache-2.0
//! `load()`, `load_into()` and `save()`. Their options are in `dmabuf_dio/types.py`.

use dmabuf_dio::Error;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::buffer::Buffer;
use crate::checks::checks;
use crate::content::{Content, seal};
use crate::error::raise_kept;
use crate::options::{Given, Keywords};
use crate::report::Report;
use crate::run;
use crate::source::{Loadable, Source};

/// Loads a file or an object, or a range of it, into a new buffer. Options: `types.LoadOptions`, `progress`, `cancel`.
#[pyfunction]
#[pyo3(signature = (path, **options))]
pub(crate) fn load(
    py: Python<'_>,
    path: Loadable,
    options: Option<Keywords<'_>>,
) -> PyResult<Buffer> {
    let given = Given::new("load", options);
    let (options, watch) = (given.load()?, given.watch()?);
    let (offset, length) = (given.take_or("offset", 0)?, given.take::<u64>("length")?);
    let writable = given.take_or("writable", false)?;
    let checks = checks(py, &given, &path)?;
    given.end()?;
    if let Loadable::File(Source::Path(path)) = &path {
        let whole = offset == 0 && length.is_none() && !writable;
        let kept = dmabuf_dio_keep::open_for(path, &options, whole);
        if let Some(buf) = kept.map_err(|error| raise_kept(py, &error))? {
            return Buffer::loaded(py, Content::kept(buf));
        }
    }
    let path = path.found(py)?;
    let content = run::transfer(py, &watch, move |control| {
        let opened = path.open(&control.cancel, &checks)?;
        let loader = opened.loader().options(options).offset(offset).length(length);
        let mut buf = loader.cancel(control.cancel.clone()).progress(control.told()).load()?;
        seal(&mut buf, writable)?;
        Ok(Content::loaded(buf, writable))
    })?;
    Buffer::loaded(py, content)
}

/// Loads a file or an object, or a range of it, into a writable buffer without views. Options:
/// `types.IntoOptions`.
#[pyfunction]
#[pyo3(signature = (path, buffer, **options))]
pub(crate) fn load_into(
    py: Python<'_>,
    path: Loadable,
    buffer: PyRef<'_, Buffer>,
    options: Option<Keywords<'_>>,
) -> PyResult<Report> {
    let given = Given::new("load_into", options);
    let (options, watch, place) = (given.transfer()?, given.watch()?, Place::of(&given)?);
    let checks = checks(py, &given, &path)?;
    given.end()?;
    let path = path.found(py)?;
    let transfer = buffer.begin_write(py)?;
    let report = run::transfer(py, &watch, move |control| {
        let Place { offset, length, .. } = place;
        let content = transfer.content();
        let opened = path.open(&control.cancel, &checks)?;
        // The content may be a part of what the descriptor refers to.
        let length = length.or_else(|| Some(opened.end()?.saturating_sub(offset)));
        let first = place.in_buffer(content, length.unwrap_or(0))?;
        let loader = opened.loader().options(options).offset(offset).length(length);
        let loader = loader.cancel(control.cancel.clone()).progress(control.told());
        loader.load_into(content.buf(), first)
    })?;
    Report::new(&report)
}

/// Saves a buffer, or a range of it, to a file or an object. Options: `types.RangeOptions`.
#[pyfunction]
#[pyo3(signature = (buffer, path, **options))]
pub(crate) fn save(
    py: Python<'_>,
    buffer: PyRef<'_, Buffer>,
    path: Loadable,
    options: Option<Keywords<'_>>,
) -> PyResult<Report> {
    let given = Given::new("save", options);
    let (options, watch, place) = (given.transfer()?, given.watch()?, Place::of(&given)?);
    given.end()?;
    if matches!(path, Loadable::Object(_)) && place.offset != 0 {
        return Err(PyValueError::new_err("an object is written as a whole: offset must be 0"));
    }
    let transfer = buffer.begin_read(py)?;
    let report = run::transfer(py, &watch, move |control| {
        let content = transfer.content();
        let rest = content.len().saturating_sub(place.buf_offset);
        let length = place.length.unwrap_or(rest);
        let first = place.in_buffer(content, length)?;
        let path = match &path {
            Loadable::File(path) => path,
            Loadable::Object(url) => {
                return url.save(options, control, content.buf(), first..first + length);
            }
        };
        let saver = path.saver().options(options).offset(place.offset);
        let saver = saver.cancel(control.cancel.clone()).progress(control.told());
        saver.save(content.buf(), first..first + length)
    })?;
    Report::new(&report)
}

/// A range of a file, and where it is in a buffer.
struct Place {
    offset: u64,
    length: Option<u64>,
    buf_offset: u64,
}

impl Place {
    fn of(given: &Given<'_>) -> PyResult<Self> {
        Ok(Self {
            offset: given.take_or("offset", 0)?,
            length: given.take("length")?,
            buf_offset: given.take_or("buf_offset", 0)?,
        })
    }

    /// Offset of the range in the descriptor's memory. An error unless it lies in the content.
    fn in_buffer(&self, content: &Content, length: u64) -> Result<u64, Error> {
        if content.has(self.buf_offset, length) {
            return Ok(content.start() + self.buf_offset);
        }
        Err(Error::RangeBeyondBuffer { offset: self.buf_offset, length, buffer: content.len() })
    }
}
