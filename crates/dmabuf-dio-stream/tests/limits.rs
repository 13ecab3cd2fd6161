// SPDX-License-Identifier: MIT OR Apache-2.0
//! A limit on the file size (ulimit -f) is an error and does not kill the process. The test sets
//! its process's limit, so it is alone in it.

mod common;

use dmabuf_dio_stream::{FileSink, Stream};
use rustix::process::{Resource, Rlimit, setrlimit};

use common::{Made, put, ring};

#[test]
fn file_size_limit_ends_the_stream_with_a_valid_prefix() {
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("to");
    let content: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    setrlimit(Resource::Fsize, Rlimit { current: Some(300_000), maximum: None }).expect("set");

    let mut left = content.as_slice();
    let mut source = Made::new(4, |block, filled| {
        let (some, rest) = left.split_at_checked(filled.bytes as usize)?;
        put(block, some);
        left = rest;
        Some(filled.bytes)
    });
    let mut sink = FileSink::create(&to).expect("create");
    let ended =
        Stream::new(&mut source, &mut sink, ring(3, 65_536)).run().expect_err("it gets too long");
    assert_eq!(ended.error.errno(), Some(dmabuf_dio::Errno::FBIG), "{ended}");
    let found = std::fs::read(&to).expect("read");
    assert_eq!((found.len() as u64, found.len()), (ended.summary.bytes, 4 * 65_536));
    assert!(found == content[..found.len()]);
}
