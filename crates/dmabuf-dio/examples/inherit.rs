// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a runtime does that gets its weights from `dmabuf-dio load`: takes the buffer over from
//! the descriptor that it inherits, and looks at the content.
//!
//! Usage: `dmabuf-dio load FILE -- target/debug/examples/inherit`

use std::os::fd::{FromRawFd, OwnedFd};

use dmabuf_dio::DmaBuf;

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<(), AnyError> {
    let offset: u64 = variable("DMABUF_DIO_OFFSET")?;
    let length: u64 = variable("DMABUF_DIO_LEN")?;
    let number: i32 = variable("DMABUF_DIO_FD")?;
    // SAFETY: the variable says that this descriptor is inherited for us; nothing else here
    // uses it.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    let buf = DmaBuf::from_fd(fd)?;
    let mut first = vec![0; length.min(16) as usize];
    buf.map()?.read_at(offset, &mut first)?;
    println!("{length} bytes in a {} of {}: {first:02x?}", buf.kind(), buf.len());
    Ok(())
}

fn variable<T: std::str::FromStr<Err: std::error::Error + 'static>>(
    name: &str,
) -> Result<T, AnyError> {
    let text = std::env::var(name).map_err(|_| format!("{name} is not set"))?;
    Ok(text.parse()?)
}
