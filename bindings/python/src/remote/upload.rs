// SPDX-License-Identifier: MIT OR Apache-2.0
//! Saves to objects.

use std::ops::Range;

use dmabuf_dio::{Buffer, Error, Options, Report};
use dmabuf_dio_remote::{Settings, Upload};

use super::Url;
use crate::run::Control;

impl Url {
    /// Saves a range of a buffer to the object. Blocks.
    pub(crate) fn save(
        &self,
        options: Options,
        control: &Control,
        buf: &Buffer,
        range: Range<u64>,
    ) -> Result<Report, Error> {
        let upload = Upload::new(&self.0, &Settings::default())?;
        let told = control.clone();
        let upload = upload.progress(move |done, total| told.moved(done, total));
        upload.options(options).cancel(control.cancel.clone()).save(buf, range)
    }
}
