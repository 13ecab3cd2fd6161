// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as a model that is no file: it is opened, and its tensors are read, also in parts.
#![no_main]

use std::path::Path;
use std::sync::Arc;

use dmabuf_dio::content::{Content, Fetched, Fill};
use dmabuf_dio::{CancelToken, Options};
use dmabuf_dio_tensors::{Model, Part, Reader};
use libfuzzer_sys::fuzz_target;

#[derive(Debug)]
struct Bytes(Vec<u8>);

impl Content for Bytes {
    fn name(&self) -> &Path {
        Path::new("store://model")
    }

    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, offset: u64, fill: &Fill<'_>) -> dmabuf_dio::Result<Fetched> {
        let wanted = &self.0[offset as usize..][..fill.length() as usize];
        fill.write(0, wanted)?;
        fill.count(fill.length());
        Ok(Fetched::default())
    }
}

fuzz_target!(|bytes: &[u8]| {
    let (content, cancel) = (Arc::new(Bytes(bytes.to_vec())), CancelToken::new());
    let Ok(model) = Model::open_content(content, &cancel) else { return };
    let model = Arc::new(model);
    // Nothing is read ahead: threads of other inputs would disturb.
    let reader = Reader::with(Arc::clone(&model), Some(0), &Options::default());
    for (number, tensor) in model.tensors().iter().enumerate().take(4) {
        let wanted = &bytes[tensor.range.start as usize..tensor.range.end as usize];
        let memory = reader.get(number, &cancel).expect("it is there");
        let found = memory.as_ref().map_or(&[][..], |memory| memory.bytes().expect("private"));
        assert_eq!(found, wanted, "{}", tensor.name);
        let Some(size) = tensor.shape.first().copied() else { continue };
        let half = Part::whole(number).take(0, size / 2..size);
        let Ok(described) = half.describe(&model) else { continue };
        let memory = reader.part(&half, &cancel).expect("it is there");
        let found = memory.as_ref().map_or(&[][..], |memory| memory.bytes().expect("private"));
        assert_eq!(found.len() as u64, described.len());
        assert!(wanted.ends_with(found), "{}", tensor.name);
    }
});
