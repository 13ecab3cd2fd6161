// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts the samples of a stream on their way to a sink or from a source.
//!
//! The stream's own blocks stay as the device fills or empties them. The other end works on blocks
//! of the adapter, so that both ends keep transferring by DMA: the conversion is the only copy.

use std::collections::VecDeque;
use std::sync::Arc;

use dmabuf_dio::lend::Access;
use dmabuf_dio::{Buffer, Kind};

use crate::convert::{Converter, Layout};
use crate::ends::{Facts, Live, Pending, Sink, Source};
use crate::error::Result;
use crate::ring::{BlockRing, Claim, Filled, attached, multiple};

/// The adapter has blocks for this many bytes, but their number has these bounds.
const BYTES: u64 = 16 << 20;
const BLOCKS: (u64, u64) = (4, 32);

/// The result of a conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Converted {
    /// The format of a frame's values before the conversion.
    pub from: String,
    /// The format of a frame's values after the conversion.
    pub to: String,
    /// Bytes per frame before.
    pub from_frame_bytes: u64,
    /// Bytes per frame after.
    pub to_frame_bytes: u64,
    /// Number of frames that the CPU has converted.
    pub frames: u64,
}

/// Blocks of the stream, and the adapter's own blocks.
#[derive(Debug)]
struct Bounce {
    converter: Converter,
    frames: u64,
    stream: Option<Arc<BlockRing>>,
    own: Option<Arc<BlockRing>>,
    /// The adapter's blocks that are not in use.
    free: Vec<usize>,
    /// Blocks of the stream that wait for a free block of the adapter.
    waiting: VecDeque<Claim>,
    /// Blocks of the stream that the other end has, each with its adapter block.
    out: VecDeque<(Claim, usize)>,
}

impl Bounce {
    fn new(converter: Converter) -> Self {
        Self {
            converter,
            frames: 0,
            stream: None,
            own: None,
            free: Vec::new(),
            waiting: VecDeque::new(),
            out: VecDeque::new(),
        }
    }

    /// Makes blocks for the other end. Its frames have `other` bytes.
    fn attach(&mut self, ring: &Arc<BlockRing>, frame: u64, other: u64) -> Result<Arc<BlockRing>> {
        let size = ring.size() / frame.max(1) * other;
        let (least, most) = BLOCKS;
        let count = (BYTES / size.max(1)).clamp(least, most) as usize;
        let own = if ring.block(0).kind() == Kind::Memfd {
            let blocks: Result<Vec<_>, _> = (0..count).map(|_| Buffer::memfd(size)).collect();
            BlockRing::of(blocks?, size)?
        } else {
            BlockRing::new(count, size)?
        };
        let own = Arc::new(own);
        self.stream = Some(Arc::clone(ring));
        self.own = Some(Arc::clone(&own));
        self.free = (0..count).rev().collect();
        Ok(own)
    }

    fn claim(&mut self, filled: Filled) -> Result<()> {
        let claim = attached(self.stream.as_ref(), "the conversion")?.claim(filled)?;
        self.waiting.push_back(claim);
        Ok(())
    }

    /// Converts frames between a block of the stream and one of the adapter.
    fn convert(&mut self, claim: Claim, own: usize, frames: u64, to_own: bool) -> Result<()> {
        let ring = attached(self.stream.as_ref(), "the conversion")?;
        let ours = attached(self.own.as_ref(), "the conversion")?;
        let (stream, own) = ((ring, claim.block()), (ours, own));
        let ((from, from_block), (to, to_block)) =
            if to_own { (stream, own) } else { (own, stream) };
        let (from_map, to_map) = (from.mapping(from_block, true)?, to.mapping(to_block, true)?);
        let (from, to) = (from.block(from_block), to.block(to_block));
        from.begin_cpu_access(Access::Read)?;
        to.begin_cpu_access(Access::Write)?;
        let result = self.converter.convert_mapped(from_map, to_map, frames);
        to.end_cpu_access(Access::Write)?;
        from.end_cpu_access(Access::Read)?;
        result?;
        self.frames += frames;
        Ok(())
    }

    fn queued(&self) -> usize {
        self.waiting.len() + self.out.len()
    }

    fn how(&self, inner: &str) -> String {
        let (from, to) = (self.converter.from(), self.converter.to());
        format!("{inner}; converted by the CPU: {from} to {to}")
    }

    fn converted(&self) -> Converted {
        let (from, to) = (self.converter.from(), self.converter.to());
        Converted {
            from: from.to_string(),
            to: to.to_string(),
            from_frame_bytes: from.frame(),
            to_frame_bytes: to.frame(),
            frames: self.frames,
        }
    }
}

/// Converts samples and passes them to another sink.
///
/// The calling thread converts a block when the block is queued, or when the other sink returns one
/// of the adapter's blocks. The adapter has 4 to 32 blocks, 16 MiB in all unless blocks are very
/// large.
pub struct ConvertingSink<'s> {
    inner: Box<dyn Sink + 's>,
    bounce: Bounce,
}

impl<'s> ConvertingSink<'s> {
    /// A sink that accepts frames of the layout `from` and passes frames of the layout `to` to
    /// `inner`.
    ///
    /// # Errors
    ///
    /// As for [`Converter::new`].
    pub fn new(inner: Box<dyn Sink + 's>, from: Layout, to: Layout) -> Result<Self> {
        Ok(Self { inner, bounce: Bounce::new(Converter::new(from, to)?) })
    }

    /// What has been converted.
    pub fn converted(&self) -> Converted {
        self.bounce.converted()
    }

    /// Bytes per frame before and after.
    fn frames(&self) -> (u64, u64) {
        (self.bounce.converter.from().frame(), self.bounce.converter.to().frame())
    }

    /// Converts waiting blocks while there are blocks for the result.
    fn pass_on(&mut self) -> Result<bool> {
        let (frame, out_frame) = self.frames();
        let mut was_dry = false;
        while !self.bounce.waiting.is_empty() {
            let Some(own) = self.bounce.free.pop() else { break };
            let Some(claim) = self.bounce.waiting.pop_front() else { break };
            let frames = claim.bytes() / frame;
            self.bounce.convert(claim, own, frames, true)?;
            was_dry |= self.inner.queue(Filled { block: own, bytes: frames * out_frame })?;
            self.bounce.out.push_back((claim, own));
        }
        Ok(was_dry)
    }
}

impl Sink for ConvertingSink<'_> {
    fn facts(&self) -> Facts {
        let ((frame, out_frame), inner) = (self.frames(), self.inner.facts());
        let behind = inner.behind / out_frame * frame;
        Facts { how: self.bounce.how(&inner.how), frame, behind, ..inner }
    }

    fn attach(&mut self, ring: &Arc<BlockRing>, expected: Option<u64>) -> Result<()> {
        let (frame, out_frame) = self.frames();
        let own = self.bounce.attach(ring, frame, out_frame)?;
        self.inner.attach(&own, expected.map(|bytes| (bytes / frame).saturating_mul(out_frame)))
    }

    fn attach_more(&mut self, _: usize) -> Result<bool> {
        Ok(true)
    }

    fn queue(&mut self, filled: Filled) -> Result<bool> {
        self.bounce.claim(filled)?;
        self.pass_on()
    }

    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        let taken = self.inner.take()?;
        if let Some(own) = taken {
            self.bounce.free.push(own.block);
        }
        self.pass_on()?;
        let done = taken.and_then(|_| self.bounce.out.pop_front());
        Ok(done.map(|(claim, _)| claim.filled()))
    }

    fn pending(&self) -> Pending<'_> {
        Pending { blocks: self.bounce.queued(), ready: self.inner.pending().ready }
    }

    fn finish(&mut self) -> Result<()> {
        self.inner.finish()
    }

    fn live(&mut self) -> Option<&mut dyn Live> {
        self.inner.live()
    }
}

/// Fills blocks with converted samples of another source.
///
/// Blocks are requested from the other source ahead of time, as many as the adapter has: 4 to 32.
/// Each is converted by the thread that takes it.
pub struct ConvertingSource<'s> {
    inner: Box<dyn Source + 's>,
    bounce: Bounce,
}

impl<'s> ConvertingSource<'s> {
    /// A source of frames of the layout `to`, converted from the frames of `inner`, which have the
    /// layout `from`.
    ///
    /// # Errors
    ///
    /// As for [`Converter::new`].
    pub fn new(inner: Box<dyn Source + 's>, from: Layout, to: Layout) -> Result<Self> {
        let bounce = Bounce::new(Converter::new(from, to)?);
        Ok(Self { inner, bounce })
    }

    /// What has been converted.
    pub fn converted(&self) -> Converted {
        self.bounce.converted()
    }

    /// Bytes per frame before and after.
    fn frames(&self) -> (u64, u64) {
        (self.bounce.converter.from().frame(), self.bounce.converter.to().frame())
    }

    /// Requests blocks from the other source while there are any.
    fn request(&mut self) -> Result<bool> {
        let (frame, out_frame) = self.frames();
        let mut was_dry = false;
        while !self.bounce.waiting.is_empty() {
            let Some(own) = self.bounce.free.pop() else { break };
            let Some(claim) = self.bounce.waiting.pop_front() else { break };
            let bytes = claim.bytes() / out_frame * frame;
            was_dry |= self.inner.queue(&[Filled { block: own, bytes }])?.1;
            self.bounce.out.push_back((claim, own));
        }
        Ok(was_dry)
    }
}

impl Source for ConvertingSource<'_> {
    fn facts(&self) -> Facts {
        let ((frame, out_frame), inner) = (self.frames(), self.inner.facts());
        Facts {
            how: self.bounce.how(&inner.how),
            frame: out_frame,
            align: multiple(inner.align, frame) / frame * out_frame,
            len: inner.len.map(|bytes| (bytes / frame).saturating_mul(out_frame)),
            behind: inner.behind.div_ceil(frame).saturating_mul(out_frame),
            ..inner
        }
    }

    fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<()> {
        let (frame, out_frame) = self.frames();
        let own = self.bounce.attach(ring, out_frame, frame)?;
        self.inner.attach(&own)
    }

    fn attach_more(&mut self, _: usize) -> Result<bool> {
        Ok(true)
    }

    fn queue(&mut self, blocks: &[Filled]) -> Result<(usize, bool)> {
        blocks.iter().try_for_each(|&filled| self.bounce.claim(filled))?;
        Ok((blocks.len(), self.request()?))
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        let Some(filled) = self.inner.take()? else { return Ok(None) };
        let Some((claim, own)) = self.bounce.out.pop_front() else { return Ok(None) };
        let (frame, out_frame) = self.frames();
        let frames = filled.bytes / frame;
        self.bounce.convert(claim, own, frames, false)?;
        self.bounce.free.push(own);
        self.request()?;
        Ok(Some(claim.first(frames * out_frame).filled()))
    }

    fn pending(&self) -> Pending<'_> {
        Pending { blocks: self.bounce.queued(), ready: self.inner.pending().ready }
    }

    fn stop(&mut self) -> Result<()> {
        // Blocks that were not requested from the other source do not come back.
        self.bounce.waiting.clear();
        self.inner.stop()
    }

    fn has_ended(&self) -> bool {
        self.inner.has_ended()
    }

    fn live(&mut self) -> Option<&mut dyn Live> {
        self.inner.live()
    }
}
