// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keyword arguments: each is taken once, by its name; remaining ones are an error.

use std::str::FromStr;

use dmabuf_dio::{Kind, Numa, Options};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::cancel::CancelToken;
use crate::error::note;
use crate::run::Watch;

/// The keyword arguments as Python passes them.
pub(crate) type Keywords<'py> = Bound<'py, PyDict>;

/// The value of `numa`: a word or the number of a node.
struct Nodes(Numa);

impl<'py> FromPyObject<'_, 'py> for Nodes {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        // A node is never a word, although the command has nothing but text.
        if let Ok(word) = value.extract::<String>() {
            let numa = word.parse::<Numa>().ok().filter(|numa| !matches!(numa, Numa::Node(_)));
            let bad = || "numa must be \"local\", \"interleave\" or the number of a node";
            return numa.map(Self).ok_or_else(|| PyValueError::new_err(bad()));
        }
        value.extract().map(|node| Self(Numa::Node(node)))
    }
}

/// The keyword arguments of a call.
pub(crate) struct Given<'py> {
    call: &'static str,
    left: Option<Keywords<'py>>,
}

impl<'py> Given<'py> {
    pub(crate) fn new(call: &'static str, given: Option<Keywords<'py>>) -> Self {
        Self { call, left: given }
    }

    /// An argument; `None` if it was not given, or as None.
    pub(crate) fn take<T: FromPyObjectOwned<'py>>(&self, name: &str) -> PyResult<Option<T>> {
        let Some(left) = &self.left else { return Ok(None) };
        let value = left.call_method1("pop", (name, left.py().None()))?;
        if value.is_none() {
            return Ok(None);
        }
        let taken: Result<T, _> = value.extract();
        taken.map(Some).map_err(|error| {
            let error: PyErr = error.into();
            note(left.py(), &error, &format!("while processing '{name}'"));
            error
        })
    }

    pub(crate) fn take_or<T: FromPyObjectOwned<'py>>(&self, name: &str, or: T) -> PyResult<T> {
        Ok(self.take(name)?.unwrap_or(or))
    }

    /// A word that the library knows.
    fn word<T: FromStr<Err: ToString>>(&self, name: &str) -> PyResult<Option<T>> {
        let word = self.take::<String>(name)?.map(|word| word.parse());
        word.transpose().map_err(|error: T::Err| PyValueError::new_err(error.to_string()))
    }

    /// The settings of a gather.
    pub(crate) fn gather(&self) -> PyResult<Options> {
        Ok(Options {
            backend: self.word("backend")?,
            queue_depth: self.take("queue_depth")?,
            direct: self.take_or("direct", true)?,
            ..Options::default()
        })
    }

    /// The settings of any transfer of a range.
    pub(crate) fn transfer(&self) -> PyResult<Options> {
        Ok(Options { block_size: self.take("block_size")?, ..self.gather()? })
    }

    /// The settings of a load into a new buffer.
    pub(crate) fn load(&self) -> PyResult<Options> {
        Ok(Options {
            kind: self.word("kind")?.unwrap_or_default(),
            allocation_step: self.take("allocation_step")?,
            huge_pages: self.take_or("huge_pages", true)?,
            numa: self.take::<Nodes>("numa")?.map(|nodes| nodes.0),
            lock: self.take_or("lock", false)?,
            ..self.transfer()?
        })
    }

    /// A kind of buffer that can be had without a load.
    pub(crate) fn made_kind(&self, or: Kind) -> PyResult<Kind> {
        match self.word("kind")? {
            Some(Kind::File | Kind::Private) => {
                Err(PyValueError::new_err("kind must be \"dmabuf\", \"memfd\" or \"any\""))
            }
            kind => Ok(kind.unwrap_or(or)),
        }
    }

    /// The caller's callback and token.
    pub(crate) fn watch(&self) -> PyResult<Watch<'py>> {
        let cancel = self.take::<PyRef<'_, CancelToken>>("cancel")?;
        let cancel = cancel.map(|token| token.0.clone());
        Ok(Watch { progress: self.take("progress")?, cancel, serve: None })
    }

    /// To be called when all arguments were taken.
    pub(crate) fn end(&self) -> PyResult<()> {
        let Some((name, _)) = self.left.as_ref().and_then(|left| left.iter().next()) else {
            return Ok(());
        };
        let text = format!("{}() got an unexpected keyword argument '{name}'", self.call);
        Err(PyTypeError::new_err(text))
    }
}
