// SPDX-License-Identifier: MIT OR Apache-2.0
//! An extension that was built without stores.

use std::ops::Range;
use std::sync::Arc;

use dmabuf_dio::content::Content;
use dmabuf_dio::{Buffer, CancelToken, Errno, Error, Options, Report};
use dmabuf_dio_tensors::Model;

use super::{Checks, Url};
use crate::run::Control;

impl Url {
    pub(crate) fn open(&self, _: &CancelToken, _: &Checks) -> Result<Arc<dyn Content>, Error> {
        Err(self.left_out())
    }

    pub(crate) fn save(
        &self,
        _: Options,
        _: &Control,
        _: &Buffer,
        _: Range<u64>,
    ) -> Result<Report, Error> {
        Err(self.left_out())
    }

    fn left_out(&self) -> Error {
        Error::Content {
            name: self.name(),
            offset: 0,
            length: 0,
            what: "this build of the package opens no URLs".into(),
            errno: Errno::from_raw(libc::EPROTONOSUPPORT),
            remedy: "build the extension with its feature remote".into(),
        }
    }

    pub(crate) fn open_model(
        &self,
        cancel: &CancelToken,
    ) -> Result<Model, dmabuf_dio_tensors::Error> {
        let failed = |source| dmabuf_dio_tensors::Error::Load { path: self.name(), source };
        self.open(cancel, &Checks::default())
            .map_err(failed)
            .and_then(|content| Model::open_content(content, cancel))
    }
}
