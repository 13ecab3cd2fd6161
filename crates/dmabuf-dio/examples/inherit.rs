// SPDX-License-Identifier: MIT OR Apache-2.0
//! For a runtime that gets its weights from `dmabuf-dio load`: takes over the buffer from the
//! inherited descriptor, and reads the content.
//!
//! Usage: `dmabuf-dio load FILE -- target/debug/examples/inherit`

use dmabuf_dio::{Buffer, Error};

fn main() -> Result<(), Error> {
    let buf = Buffer::from_env()?;
    let length = buf.data_len();
    let mut first = vec![0; length.min(16) as usize];
    buf.map()?.read_at(buf.data_offset(), &mut first)?;
    println!("{length} bytes in a {} of {}: {first:02x?}", buf.kind(), buf.len());
    Ok(())
}
