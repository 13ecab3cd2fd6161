// SPDX-License-Identifier: MIT OR Apache-2.0
//! An extension that was built without stores.

use std::sync::Arc;

use dmabuf_dio::content::Content;
use dmabuf_dio::{CancelToken, Errno, Error};
use dmabuf_dio_tensors::Model;

use super::Url;

impl Url {
    pub(crate) fn open(&self, _: &CancelToken) -> Result<Arc<dyn Content>, Error> {
        Err(Error::Content {
            name: self.name(),
            offset: 0,
            length: 0,
            what: "this build of the package opens no URLs".into(),
            errno: Errno::from_raw(libc::EPROTONOSUPPORT),
            remedy: "build the extension with its feature remote".into(),
        })
    }

    pub(crate) fn open_model(
        &self,
        cancel: &CancelToken,
    ) -> Result<Model, dmabuf_dio_tensors::Error> {
        let failed = |source| dmabuf_dio_tensors::Error::Load { path: self.name(), source };
        self.open(cancel).map_err(failed).and_then(|content| Model::open_content(content, cancel))
    }
}
