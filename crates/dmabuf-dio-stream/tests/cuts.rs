// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings that are cut, of a source that fills more than was requested, as a device's DMA does. The
//! blocks are memfds.

use std::collections::VecDeque;
use std::fs;
use std::sync::Arc;

use dmabuf_dio::Buffer;
use dmabuf_dio_stream::convert::Layout;
use dmabuf_dio_stream::{
    BlockRing, ConvertingSource, Error, FileSink, Filled, Format, RotatingSink, Source, Stream,
    Wait,
};

/// Numbers frames of 4 bytes, and fills multiples of `align` bytes.
struct Dma {
    align: u64,
    ring: Option<Arc<BlockRing>>,
    queued: VecDeque<Filled>,
    next: u32,
}

impl Dma {
    fn new(align: u64) -> Self {
        Self { align, ring: None, queued: VecDeque::new(), next: 0 }
    }
}

impl Source for Dma {
    fn frame(&self) -> u64 {
        4
    }

    fn how(&self) -> String {
        "numbered".into()
    }

    fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<(), Error> {
        self.ring = Some(Arc::clone(ring));
        Ok(())
    }

    fn align(&self) -> u64 {
        self.align
    }

    fn start(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn queue(&mut self, block: usize, bytes: u64) -> Result<bool, Error> {
        self.queued.push_back(Filled { block, bytes });
        Ok(false)
    }

    fn take(&mut self) -> Result<Option<Filled>, Error> {
        let Some(filled) = self.queued.pop_front() else { return Ok(None) };
        let frames = (filled.bytes.next_multiple_of(self.align) / 4) as u32;
        let content: Vec<u8> = (self.next..self.next + frames).flat_map(u32::to_le_bytes).collect();
        self.next += frames;
        let ring = self.ring.as_ref().expect("attached");
        let mut block = ring.block(filled.block).try_clone().expect("a descriptor");
        block.map_mut().expect("a view").write_at(0, &content).expect("it has room");
        Ok(Some(filled))
    }

    fn ready(&self) -> Option<Wait<'_>> {
        None
    }

    fn queued(&self) -> usize {
        self.queued.len()
    }

    fn stop(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

fn ring(size: u64) -> BlockRing {
    let blocks = (0..3).map(|_| Buffer::memfd(size).expect("a memfd")).collect();
    BlockRing::of(blocks, size).expect("a ring")
}

/// The contents of the files of at most `limit` bytes.
fn files(source: &mut dyn Source, size: u64, limit: u64, bytes: u64) -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |number: u64| folder.path().join(format!("{number:03}"));
    let mut count = 0;
    let mut sink = RotatingSink::new(limit, |number, _| {
        count = number + 1;
        FileSink::create(path(number))
    });
    let stream = Stream::new(source, &mut sink, ring(size)).cut(limit).limit(bytes);
    assert_eq!(stream.run().expect("the whole of it").bytes, bytes);
    drop(sink);
    (0..count).map(|number| fs::read(path(number)).expect("a file")).collect()
}

#[test]
fn nothing_is_lost_between_files() {
    // The length of a file is no multiple of what the device fills, less than that, or no multiple of
    // a frame; blocks end where a file ends, or not.
    for (align, size, limit) in [
        (8, 4096, 40_004),
        (8, 4096, 4100),
        (8, 4096, 4),
        (8, 8, 20),
        (12, 6000, 10_000),
        (64, 4096, 4099),
        (64, 128, 8192),
        (4, 4096, 40_004),
    ] {
        let bytes = (5 * limit / 4 + 1) * 4;
        let files = files(&mut Dma::new(align), size, limit, bytes);
        let whole = limit / align.max(4) * align.max(4);
        for file in &files[..files.len() - 1] {
            assert_eq!(file.len() as u64, whole.max(align), "{align}, {size}, {limit}");
        }
        let expected: Vec<u8> = (0..(bytes / 4) as u32).flat_map(u32::to_le_bytes).collect();
        assert!(files.concat() == expected, "multiples of {align}, {size}, files of {limit}");
    }
}

#[test]
fn nothing_is_lost_between_converted_files() {
    let layout = |format: &str| Layout::uniform(format.parse::<Format>().expect(format), 1);
    let (from, to) = (layout("le:u32/32"), layout("le:u64/64"));
    let inner = Box::new(Dma::new(8));
    let mut source = ConvertingSource::new(inner, from, to).expect("a source");
    assert_eq!(source.align(), 16);
    let files = files(&mut source, 4096, 40_008, 200_008);
    assert!(files[..files.len() - 1].iter().all(|file| file.len() == 40_000));
    for (number, value) in (0_u64..).zip(files.concat().chunks_exact(8)) {
        let value = u64::from_le_bytes(value.try_into().expect("eight"));
        assert_eq!(value >> 32, number, "unsigned full scale");
    }
}
