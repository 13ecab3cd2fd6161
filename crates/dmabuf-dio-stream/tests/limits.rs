// SPDX-License-Identifier: MIT OR Apache-2.0
//! A limit on the file size (ulimit -f) is an error and does not kill the process. The test sets
//! its process's limit, so it is alone in it.

use std::sync::Arc;

use dmabuf_dio::Buffer;
use dmabuf_dio_stream::{BlockRing, Error, FileSink, FileSource, Filled, Source, Stream, Wait};
use rustix::process::{Resource, Rlimit, setrlimit};

/// A source that does not report its length.
struct Endless(FileSource);

impl Source for Endless {
    fn frame(&self) -> u64 {
        self.0.frame()
    }
    fn how(&self) -> String {
        self.0.how()
    }
    fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<(), Error> {
        self.0.attach(ring)
    }
    fn start(&mut self) -> Result<(), Error> {
        self.0.start()
    }
    fn queue(&mut self, block: usize, bytes: u64) -> Result<bool, Error> {
        self.0.queue(block, bytes)
    }
    fn take(&mut self) -> Result<Option<Filled>, Error> {
        self.0.take()
    }
    fn ready(&self) -> Option<Wait<'_>> {
        self.0.ready()
    }
    fn queued(&self) -> usize {
        self.0.queued()
    }
    fn stop(&mut self) -> Result<(), Error> {
        self.0.stop()
    }
}

#[test]
fn file_size_limit_ends_the_stream_with_a_valid_prefix() {
    let folder = tempfile::tempdir().expect("a folder");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let content: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&from, &content).expect("written");
    let blocks = (0..3).map(|_| Buffer::memfd(65_536).expect("a memfd")).collect();
    let ring = BlockRing::of(blocks, 65_536).expect("a ring");
    setrlimit(Resource::Fsize, Rlimit { current: Some(300_000), maximum: None }).expect("set");

    let mut source = Endless(FileSource::open(&from, 4).expect("open"));
    let mut sink = FileSink::create(&to).expect("create");
    let ended = Stream::new(&mut source, &mut sink, ring).run().expect_err("it gets too long");
    assert_eq!(ended.error.errno().map(dmabuf_dio::Errno::raw), Some(libc::EFBIG), "{ended}");
    let found = std::fs::read(&to).expect("read");
    assert_eq!((found.len() as u64, found.len()), (ended.summary.bytes, 4 * 65_536));
    assert!(found == content[..found.len()]);
}
