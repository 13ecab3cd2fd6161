// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures from the simulated ADC, whose frame n is the number n, and replays to the DAC that checks them.

use std::path::PathBuf;

use dmabuf_dio::CancelToken;
use dmabuf_dio_stream::{
    BlockRing, Device, FileSink, FileSource, Gap, IioSink, IioSource, Stream, Summary,
};

use super::during;
use crate::world::{Outcome, World};

/// Bytes: four channels of 16 bits.
const FRAME: u64 = 8;

/// The shape of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) frames: u64,
    pub(crate) block: u64,
    pub(crate) blocks: u64,
    /// Of the device, in frames per second; 0: as fast as there are blocks.
    pub(crate) rate: u64,
    /// By `read()` and `write()`, of a device without dma-bufs.
    pub(crate) copied: bool,
    /// It is cancelled once so many bytes less one have passed; 0: not.
    pub(crate) cancel: u64,
}

fn failed<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> String + '_ {
    move |error| format!("{what}: {error}")
}

/// A simulated device with this rate; `None` if the kernel has none.
fn device(name: &str, flow: &Flow) -> Result<Option<Device>, String> {
    let name = if flow.copied { format!("{name}-fileio") } else { name.to_owned() };
    let Some(device) = Device::find(&name) else { return Ok(None) };
    let rate = device.write("sampling_frequency", &flow.rate.to_string());
    rate.map_err(failed("the rate"))?;
    Ok(Some(device))
}

fn number(device: &Device, attribute: &str) -> Result<u64, String> {
    let text = device.read(attribute).map_err(failed(attribute))?;
    text.trim().parse().map_err(failed(attribute))
}

fn ring(flow: &Flow) -> Result<BlockRing, String> {
    BlockRing::new(flow.blocks as usize, flow.block).map_err(failed("blocks"))
}

/// Runs a stream until its end, or until it is cancelled.
fn run(stream: Stream<'_>, flow: &Flow) -> Result<Summary, String> {
    let token = CancelToken::new();
    let cancel = flow.cancel;
    let stream = stream.limit(flow.frames * FRAME).cancel(token.clone()).progress(move |state| {
        if cancel > 0 && state.bytes + 1 >= cancel {
            token.cancel();
        }
    });
    stream.run().map_err(failed("the stream"))
}

/// The frames that are missing before each place of a sequence of numbers.
fn jumps(bytes: &[u8]) -> Result<Vec<(u64, u64)>, String> {
    let mut jumps = Vec::new();
    let mut next = 0;
    for (place, frame) in bytes.chunks(FRAME as usize).enumerate() {
        let frame = frame.try_into().map_err(|_| "a frame is cut")?;
        let found = u64::from_le_bytes(frame);
        if found < next {
            return Err(format!("frame {found} at place {place}, where {next} has to follow"));
        }
        if found > next {
            jumps.push((place as u64 * FRAME, found - next));
        }
        next = found + 1;
    }
    Ok(jumps)
}

/// Each jump has to be in a gap around its place, and each gap has the frames that are missing in it.
fn told(jumps: &[(u64, u64)], gaps: &[Gap], bytes: u64) -> Outcome {
    let wrong = || Err(format!("missing (place, frames): {jumps:?}, told: {gaps:?}"));
    for (at, _) in jumps {
        if !gaps.iter().any(|gap| (gap.at..=gap.to).contains(at)) {
            return wrong();
        }
    }
    for gap in gaps {
        let within = jumps.iter().filter(|(at, _)| (gap.at..=gap.to).contains(at));
        let missing: u64 = within.map(|(_, frames)| frames).sum();
        // What is lost behind the last frame shows in no file.
        if gap.to < bytes && gap.frames.is_some_and(|frames| frames != missing) {
            return wrong();
        }
    }
    Ok(())
}

/// Captures to a file, whose frames are compared, and whose gaps have to be told. `loss`: frames
/// that the device loses on demand.
pub(crate) fn capture(world: &mut World<'_>, name: u64, loss: u64, flow: &Flow) -> Outcome {
    let armed = std::mem::take(&mut world.armed);
    let Some(device) = device("stream-adc", flow)? else { return Ok(()) };
    let path = world.saved.path(name);
    if loss > 0 {
        device.write("inject_loss", &loss.to_string()).map_err(failed("inject_loss"))?;
    }
    let channels = device.channels(0).map_err(failed("channels"))?;
    let mut source = IioSource::open(device, 0, &channels).map_err(failed("the ADC"))?;
    // It is there from now on.
    world.saved.remove(name)?;
    let mut sink = FileSink::create(&path).map_err(failed("the file"))?;
    let ring = ring(flow)?;
    let result = during(world, armed, || run(Stream::new(&mut source, &mut sink, ring), flow));
    drop((source, sink));
    let summary = result?;
    let bytes = std::fs::read(&path).map_err(failed("the capture"))?;
    if summary.bytes != bytes.len() as u64 {
        return Err(format!("{} bytes captured, the file has {}", summary.bytes, bytes.len()));
    }
    complete(&summary, flow)?;
    let jumps = jumps(&bytes)?;
    if flow.rate == 0 {
        let lost: u64 = jumps.iter().map(|(_, frames)| frames).sum();
        // The device loses them before its next block.
        if !(bytes.is_empty() || lost == loss) {
            return Err(format!("{lost} frames are missing in place of {loss}"));
        }
    }
    if !summary.loss_known {
        return Err("the device reports its losses, and they are not known".into());
    }
    // What a device loses while it has a block is told where it had none, if that was so, too, between two
    // readings of its counter; at the end it is not told at all.
    if loss == 0 {
        told(&jumps, &summary.gaps, summary.bytes)?;
    }
    world.machine.did(if flow.copied { "capture by read()" } else { "capture" });
    world.saved.put(name, bytes);
    world.saved.check(name)
}

/// Everything has passed unless it was cancelled.
fn complete(summary: &Summary, flow: &Flow) -> Outcome {
    let all = flow.frames * FRAME;
    if summary.bytes > all
        || flow.cancel == 0 && !summary.complete
        || summary.complete && summary.bytes != all
    {
        return Err(format!(
            "{} bytes of {all} passed, complete: {}",
            summary.bytes, summary.complete
        ));
    }
    Ok(())
}

/// Writes numbers to a file and outputs it. The device counts what it has output, and what was wrong.
pub(crate) fn replay(world: &mut World<'_>, name: u64, flow: &Flow) -> Outcome {
    let armed = std::mem::take(&mut world.armed);
    let Some(device) = device("stream-dac", flow)? else { return Ok(()) };
    let path: PathBuf = world.saved.path(name);
    let bytes: Vec<u8> = (0..flow.frames).flat_map(u64::to_le_bytes).collect();
    std::fs::write(&path, &bytes).map_err(failed("the samples"))?;
    world.saved.put(name, bytes);
    let mut source = FileSource::open(&path, FRAME).map_err(failed("the samples"))?;
    let channels = device.channels(0).map_err(failed("channels"))?;
    let mut sink = IioSink::open(device.clone(), 0, &channels).map_err(failed("the DAC"))?;
    let ring = ring(flow)?;
    let result = during(world, armed, || run(Stream::new(&mut source, &mut sink, ring), flow));
    drop((source, sink));
    let summary = result?;
    complete(&summary, flow)?;
    let moved = number(&device, "moved_frames")?;
    let wrong = number(&device, "wrong_frames")?;
    let lost = number(&device, "lost_frames")?;
    if wrong > 0 {
        return Err(format!("the DAC got {wrong} wrong frames"));
    }
    // Its last two buffers of write() are not output, which the summary's text says.
    let held = if flow.copied { 2 * flow.block.max(4096) / FRAME } else { 0 };
    if moved + held < summary.bytes / FRAME || moved > flow.frames {
        return Err(format!("{} bytes replayed, the DAC has output {moved} frames", summary.bytes));
    }
    if !summary.loss_known || summary.lost_frames != lost && flow.cancel == 0 {
        return Err(format!("{} underruns told, the DAC has counted {lost}", summary.lost_frames));
    }
    world.machine.did(if flow.copied { "replay by write()" } else { "replay" });
    world.saved.check(name)
}

#[cfg(test)]
mod tests {
    use dmabuf_dio_stream::Loss;

    use super::*;

    fn frames(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn missing_frames_have_to_be_told_where_they_are() {
        let jumps = jumps(&frames(&[0, 1, 5, 6])).unwrap();
        assert_eq!(jumps, [(16, 3)]);
        let gap = |at, to, frames| Gap { kind: Loss::Lost, at, to, frames: Some(frames) };
        assert_eq!(told(&jumps, &[gap(16, 16, 3)], 32), Ok(()));
        assert_eq!(told(&jumps, &[gap(8, 24, 3)], 32), Ok(()));
        for wrong in
            [&[][..], &[gap(24, 24, 3)], &[gap(16, 16, 2)], &[gap(16, 16, 3), gap(8, 8, 1)]]
        {
            assert!(told(&jumps, wrong, 32).is_err(), "{wrong:?}");
        }
        assert!(super::jumps(&frames(&[0, 2, 1])).is_err());
        assert!(super::jumps(&[0; 12]).is_err());
    }
}
