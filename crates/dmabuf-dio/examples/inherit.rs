// SPDX-License-Identifier: MIT OR Apache-2.0
//! For a runtime that gets its weights from `dmabuf-dio load`: takes over the buffer from the
//! inherited descriptor, and reads the content.
//!
//! Usage: `dmabuf-dio load FILE -- target/debug/examples/inherit`

use dmabuf_dio::{DmaBuf, Error};

fn main() -> Result<(), Error> {
    let (buf, content) = DmaBuf::from_env()?;
    let length = content.end - content.start;
    let mut first = vec![0; length.min(16) as usize];
    buf.map()?.read_at(content.start, &mut first)?;
    println!("{length} bytes in a {} of {}: {first:02x?}", buf.kind(), buf.len());
    Ok(())
}
