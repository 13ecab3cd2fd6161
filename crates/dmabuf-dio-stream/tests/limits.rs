// SPDX-License-Identifier: MIT OR Apache-2.0
//! A limit on the file size (ulimit -f) is an error and does not kill the process. The test sets
//! its process's limit, so it is alone in it.

use std::sync::Arc;

use dmabuf_dio::Buffer;
use dmabuf_dio_stream::{
    BlockRing, Facts, FileSink, FileSource, Filled, Pending, Result, Source, Stream,
};
use rustix::process::{Resource, Rlimit, setrlimit};

/// A source that does not report its length.
struct Endless(FileSource);

impl Source for Endless {
    fn facts(&self) -> Facts {
        Facts { len: None, ..self.0.facts() }
    }
    fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<()> {
        self.0.attach(ring)
    }
    fn queue(&mut self, blocks: &[Filled]) -> Result<(usize, bool)> {
        self.0.queue(blocks)
    }
    fn take(&mut self) -> Result<Option<Filled>> {
        self.0.take()
    }
    fn pending(&self) -> Pending<'_> {
        self.0.pending()
    }
    fn stop(&mut self) -> Result<()> {
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
    assert_eq!(ended.error.errno(), Some(dmabuf_dio::Errno::FBIG), "{ended}");
    let found = std::fs::read(&to).expect("read");
    assert_eq!((found.len() as u64, found.len()), (ended.summary.bytes, 4 * 65_536));
    assert!(found == content[..found.len()]);
}
