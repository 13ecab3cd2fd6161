// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures samples of an IIO device into a file, without CPU copies.
//!
//! Usage: `cargo run --example capture -- DEVICE FILE FRAMES`

use dmabuf_dio_stream::{BlockRing, Device, Error, FileSink, IioSource, Stream, frame_bytes};

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, device, file, frames] = &arguments[..] else {
        eprintln!("usage: capture DEVICE FILE FRAMES");
        return 2.into();
    };
    let (Some(device), Ok(frames)) = (Device::find(device), frames.parse()) else {
        eprintln!("there is no such device, or that is no number");
        return 2.into();
    };
    match capture(device, file, frames) {
        Ok(()) => 0.into(),
        Err(error) => {
            eprintln!("{error}\n{}", error.hint());
            1.into()
        }
    }
}

fn capture(device: Device, file: &str, frames: u64) -> Result<(), Error> {
    let channels = device.channels(0)?;
    let frame = frame_bytes(&channels);
    let mut source = IioSource::open(device, 0, &channels)?;
    let mut sink = FileSink::create(file)?;
    let bytes = frames * frame;
    // Blocks are whole frames, and preferably whole pages as well.
    let ring = BlockRing::new(4, frame * 4096)?;
    let stream = Stream::new(&mut source, &mut sink, ring).limit(bytes);
    let summary = stream.run().map_err(|interrupted| interrupted.error)?;
    println!("{} bytes, filled by {}, emptied by {}", summary.bytes, summary.source, summary.sink);
    for gap in &summary.gaps {
        println!("{:?} frames are missing before byte {}", gap.frames, gap.at);
    }
    Ok(())
}
