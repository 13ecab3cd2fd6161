// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of a capture device of V4L2.
//!
//! A block holds one frame. The driver has at most 32 buffers (`VIDEO_MAX_FRAME`); a ring may have
//! more blocks, and blocks without a buffer wait until one is free. The frame numbers show which
//! frames the driver lost.

mod device;
mod format;
pub(crate) mod log;

use std::collections::VecDeque;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dmabuf_dio::lend::Access;
use dmabuf_dio::{Buffer, DmaBuf, Errno};
use dmabuf_dio_sys::v4l2::{self, Dequeued, MappedBuffer};

pub use device::{FrameSizes, OfferedFormat, VideoDevice, VideoFacts};
pub use format::{PixelFormat, VideoFormat};
pub use log::{Clock, Frame, FrameLog};

use crate::ends::{Facts, Live, Pending, Source};
use crate::error::{Error, Result};
use crate::gaps::Reading;
use crate::ring::{BlockRing, Filled, attached};
use crate::wait::Wait;
use log::Verdict;

/// Buffers of a queue at most.
const MOST_BUFFERS: usize = 32;
/// How much longer than its own time a capture may last, if the device gives no frames.
const SLACK: Duration = Duration::from_secs(10);
const HEAPS: &str = "/dev/dma_heap";
/// Bytes that are copied at a time.
const COPIED: usize = 64 << 10;

/// The memory of frames.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum FrameMemory {
    /// Dma-bufs of a heap, which the device imports: pages that the kernel module can lend.
    Heap(String),
    /// The driver's own buffers, exported as dma-bufs, because it cannot use the memory of any heap
    /// here or cannot import dma-bufs. Their pages are not lent, so the CPU copies them to a file.
    Driver,
    /// Dma-bufs of the system heap, into which the CPU copies each frame from the driver's own buffers,
    /// because it can neither import nor export dma-bufs.
    Mapped,
}

/// Frames of a capture device.
#[derive(Debug)]
pub struct VideoSource {
    device: VideoDevice,
    format: VideoFormat,
    memory: FrameMemory,
    /// Why the memory of the preceding heaps was refused, as text for users.
    refused: Option<String>,
    ring: Option<Arc<BlockRing>>,
    /// The blocks in the driver's buffers.
    slots: Vec<Option<usize>>,
    /// The driver's buffers, if frames are copied.
    buffers: Vec<MappedBuffer>,
    /// Blocks that the driver has no buffer for.
    waiting: VecDeque<usize>,
    /// Frames that were full when the device was stopped.
    full: VecDeque<Filled>,
    log: FrameLog,
    most: Option<u64>,
    time: Option<Duration>,
    /// A loss ends the stream.
    is_strict: bool,
    begun: Option<Instant>,
    /// The start of the time: of the first frame, and of its arrival.
    first: Option<(i64, Instant)>,
    ended: bool,
}

impl VideoSource {
    /// A source of the device's frames, in its current format.
    ///
    /// # Errors
    ///
    /// As for [`VideoDevice::format`].
    pub fn new(device: VideoDevice) -> Result<Self> {
        let format = device.format()?;
        Ok(Self {
            device,
            format,
            memory: FrameMemory::Heap("system".into()),
            refused: None,
            ring: None,
            slots: Vec::new(),
            buffers: Vec::new(),
            waiting: VecDeque::new(),
            full: VecDeque::new(),
            log: FrameLog::new(),
            most: None,
            time: None,
            is_strict: false,
            begun: None,
            first: None,
            ended: false,
        })
    }

    /// Ends the stream after `most` frames. If all frames have the same length, the stream's
    /// [`limit`](crate::Stream::limit) has the same effect, and lets a file reserve space for all
    /// of them.
    #[must_use]
    pub fn frames(mut self, most: u64) -> Self {
        self.most = Some(most);
        self
    }

    /// Ends the stream before the first frame that was captured `time` or more after the first one,
    /// or 10 s after that time if no frame arrives.
    #[must_use]
    pub fn time(mut self, time: Duration) -> Self {
        self.time = Some(time);
        self
    }

    /// Ends the stream with `EOVERFLOW` before the first frame that follows a missing one.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.is_strict = true;
        self
    }

    /// The format.
    pub fn format(&self) -> &VideoFormat {
        &self.format
    }

    /// The memory of the blocks, once there is a [`ring`](Self::ring).
    pub fn memory(&self) -> &FrameMemory {
        &self.memory
    }

    /// Whether the stream ended because it reached the requested number of frames or the requested
    /// time.
    pub fn has_reached_end(&self) -> bool {
        self.ended
    }

    /// The log of the frames.
    pub fn log(&self) -> &FrameLog {
        &self.log
    }

    /// A ring of `count` blocks, up to `most` later, in memory that the device can use: from the
    /// system heap, else from another heap (contiguous memory, for a device without an IOMMU), else
    /// the driver's own buffers, else from the system heap, into which each frame is copied. Only a ring
    /// from the system heap can grow. The driver decides how many buffers of its own it has.
    ///
    /// # Errors
    ///
    /// As for [`BlockRing::new`]. [`Error::Stream`]: `EBUSY` if another program captures. [`Error::Video`]
    /// if no memory is usable.
    pub fn ring(&mut self, count: usize, most: usize) -> Result<BlockRing> {
        let size = u64::from(self.format.frame_bytes);
        let mut reasons = Vec::new();
        let mut heaps = vec!["system".to_owned()];
        heaps.extend(other_heaps());
        for heap in heaps {
            let tried = DmaBuf::alloc_from(&heap, size).map(Buffer::from).map_err(Error::from);
            match tried.and_then(|block| self.try_import(&block)) {
                Ok(()) => {
                    self.memory = FrameMemory::Heap(heap.clone());
                    self.refused = (!reasons.is_empty()).then(|| reasons.join("; "));
                    if heap == "system" {
                        return BlockRing::new(count, size)?.growing(most);
                    }
                    let blocks =
                        (0..count).map(|_| DmaBuf::alloc_from(&heap, size).map(Buffer::from));
                    return BlockRing::of(blocks.collect::<Result<_, _>>()?, size);
                }
                Err(error) if error.errno() == Some(Errno::BUSY) => return Err(error),
                Err(error) => reasons.push(format!("heap {heap}: {error}")),
            }
        }
        match self.own_ring(count, size) {
            Ok(ring) => {
                (self.memory, self.refused) = (FrameMemory::Driver, Some(reasons.join("; ")));
                return Ok(ring);
            }
            Err(error) if error.errno() == Some(Errno::BUSY) => return Err(error),
            Err(error) => reasons.push(format!("its own: {error}")),
        }
        self.map_buffers(count).map_err(|error| match error {
            Error::Stream { errno, .. } if errno != Errno::BUSY => {
                let what = format!("it cannot use memory of any kind ({})", reasons.join("; "));
                self.device.refused(what, "update its driver, or capture with v4l2-ctl")
            }
            error => error,
        })?;
        (self.memory, self.refused) = (FrameMemory::Mapped, Some(reasons.join("; ")));
        BlockRing::new(count, size)?.growing(most)
    }

    /// Maps the driver's own buffers.
    fn map_buffers(&mut self, count: usize) -> Result<()> {
        let (fd, kind) = (self.device.fd(), self.device.kind);
        let wanted = count.min(MOST_BUFFERS) as u32;
        let got = v4l2::request_buffers(fd, kind, v4l2::MEMORY_MMAP, wanted)
            .map_err(|errno| self.device.failed("allocate buffers", errno))?;
        let map = |index| {
            let mapped = MappedBuffer::new(fd, kind, index);
            mapped.map_err(|errno| self.device.failed("map a buffer", errno))
        };
        self.buffers = (0..got.count).map(map).collect::<Result<_>>()?;
        Ok(())
    }

    /// Copies a frame from a buffer of the driver to a block.
    fn copy(&self, from: u32, block: usize, bytes: u64) -> Result<()> {
        let missing = || self.device.failed("tell which buffer is full", Errno::IO);
        let ring = attached(self.ring.as_ref(), self.device.name())?;
        let from = self.buffers.get(from as usize).ok_or_else(missing)?;
        let (mapping, block) = (ring.mapping(block, true)?, ring.block(block));
        block.begin_cpu_access(Access::Write)?;
        let mut piece = vec![0; COPIED.min(bytes as usize)];
        let result = (0..bytes as usize).step_by(COPIED).try_for_each(|at| {
            let piece = &mut piece[..COPIED.min(bytes as usize - at)];
            from.copy_to(at, piece).map_err(|errno| self.device.failed("copy a frame", errno))?;
            Ok(mapping.copy_from(at as u64, piece)?)
        });
        block.end_cpu_access(Access::Write)?;
        result
    }

    fn give_back(&self, index: u32) -> Result<()> {
        v4l2::queue(self.device.fd(), self.device.kind, index, None)
            .map_err(|errno| self.device.failed("queue a buffer", errno))
    }

    /// Whether the device can fill a block.
    fn try_import(&self, block: &Buffer) -> Result<()> {
        let (fd, kind) = (self.device.fd(), self.device.kind);
        let request = |count| v4l2::request_buffers(fd, kind, v4l2::MEMORY_DMABUF, count);
        request(1).map_err(|errno| self.device.failed("import dma-bufs", errno))?;
        let queued = v4l2::queue(fd, kind, 0, Some(block.fd()?));
        let _ = v4l2::stream_off(fd, kind);
        let _ = request(0);
        queued.map_err(|errno| self.device.failed("use its memory", errno))
    }

    /// The driver's own buffers.
    fn own_ring(&self, count: usize, size: u64) -> Result<BlockRing> {
        let (fd, kind) = (self.device.fd(), self.device.kind);
        let wanted = count.min(MOST_BUFFERS) as u32;
        let got = v4l2::request_buffers(fd, kind, v4l2::MEMORY_MMAP, wanted)
            .map_err(|errno| self.device.failed("allocate buffers", errno))?;
        let block = |index| {
            let exported = v4l2::export(fd, kind, index);
            let exported =
                exported.map_err(|errno| self.device.failed("export a buffer", errno))?;
            Ok(Buffer::from_fd(exported)?)
        };
        let blocks: Result<_> = (0..got.count).map(block).collect();
        if blocks.is_err() {
            let _ = v4l2::request_buffers(fd, kind, v4l2::MEMORY_MMAP, 0);
        }
        BlockRing::of(blocks?, size)
    }

    /// Gives blocks to the driver, as many as it has buffers.
    fn feed(&mut self) -> Result<()> {
        let Some(ring) = &self.ring else { return Ok(()) };
        if self.memory == FrameMemory::Mapped {
            return Ok(());
        }
        while let Some(&block) = self.waiting.front() {
            // A buffer that gets its former block again need not be attached again.
            let own = self.slots.get(block).is_some_and(Option::is_none).then_some(block);
            let any = || self.slots.iter().position(Option::is_none);
            let Some(index) = own.or_else(any) else { return Ok(()) };
            let dmabuf = match self.memory {
                FrameMemory::Heap(_) => Some(ring.block(block).fd()?),
                FrameMemory::Driver | FrameMemory::Mapped => None,
            };
            v4l2::queue(self.device.fd(), self.device.kind, index as u32, dmabuf)
                .map_err(|errno| self.device.failed("queue a block", errno))?;
            self.slots[index] = Some(block);
            self.waiting.pop_front();
        }
        Ok(())
    }

    /// The next frame that is whole, if the driver has filled one.
    fn next(&mut self) -> Result<Option<Filled>> {
        let is_copied = self.memory == FrameMemory::Mapped;
        while !self.ended {
            if is_copied && self.waiting.is_empty() {
                return Ok(None);
            }
            let memory = match self.memory {
                FrameMemory::Heap(_) => v4l2::MEMORY_DMABUF,
                FrameMemory::Driver | FrameMemory::Mapped => v4l2::MEMORY_MMAP,
            };
            let one = match v4l2::dequeue(self.device.fd(), self.device.kind, memory) {
                Ok(one) => one,
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(self.device.failed("take a frame", errno)),
            };
            let slot = if is_copied {
                self.waiting.pop_front()
            } else {
                self.slots.get_mut(one.index as usize).and_then(Option::take)
            };
            let Some(block) = slot else {
                return Err(self.device.failed("tell which block is full", Errno::IO));
            };
            if self.is_over(&one) {
                self.ended = true;
                break;
            }
            let gaps = self.log.gaps().len();
            if self.log.record(&one, !self.format.compressed) == Verdict::Damaged {
                self.waiting.push_front(block);
                if is_copied {
                    self.give_back(one.index)?;
                }
                self.feed()?;
                continue;
            }
            if self.is_strict && self.log.gaps().len() > gaps {
                return Err(self.overflow());
            }
            let size = u64::from(self.format.frame_bytes);
            let filled = Filled { block, bytes: u64::from(one.bytes).min(size) };
            if is_copied {
                self.copy(one.index, block, filled.bytes)?;
                self.give_back(one.index)?;
            }
            self.feed()?;
            self.ended = self.most.is_some_and(|most| self.log.frames() >= most);
            return Ok(Some(filled));
        }
        Ok(None)
    }

    /// Whether a frame is beyond the time.
    fn is_over(&mut self, one: &Dequeued) -> bool {
        let Some(time) = self.time else { return false };
        let (first, arrival) = *self.first.get_or_insert((one.microseconds, Instant::now()));
        let has_clock = one.flags & v4l2::FLAG_TIMESTAMP_MASK == v4l2::FLAG_TIMESTAMP_MONOTONIC;
        let elapsed = match u64::try_from(one.microseconds - first) {
            Ok(micros) if has_clock => Duration::from_micros(micros),
            _ => arrival.elapsed(),
        };
        elapsed >= time
    }

    fn overflow(&self) -> Error {
        let frames = self.log.gaps().last().and_then(|gap| gap.frames);
        let frames = frames.map_or_else(|| "frames".into(), |frames| format!("{frames} frames"));
        let after = self.log.frames().saturating_sub(1);
        self.device.failed(format!("continue: {frames} lost after frame {after}"), Errno::OVERFLOW)
    }
}

/// All heaps except the heap of ordinary memory.
fn other_heaps() -> Vec<String> {
    let entries = fs::read_dir(HEAPS).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    // Memory of the heaps for protected guests is decrypted, and none of the module's.
    let mut names: Vec<_> = names.filter(|name| !name.starts_with("system")).collect();
    names.sort();
    names
}

impl Source for VideoSource {
    fn facts(&self) -> Facts {
        let why = self.refused.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
        let how = match &self.memory {
            FrameMemory::Heap(heap) => format!("V4L2, dma-bufs of the heap {heap}{why}"),
            FrameMemory::Driver => format!("V4L2, dma-bufs of the driver{why}"),
            FrameMemory::Mapped => format!("V4L2, copied by the CPU{why}"),
        };
        let frame = self.format.frame_bytes.into();
        Facts { frame, tells_losses: self.log.has_numbers(), ..Facts::new(how) }
    }

    fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<()> {
        let count = match self.memory {
            FrameMemory::Heap(_) => {
                let wanted = ring.len().min(MOST_BUFFERS) as u32;
                let (fd, kind) = (self.device.fd(), self.device.kind);
                let got = v4l2::request_buffers(fd, kind, v4l2::MEMORY_DMABUF, wanted)
                    .map_err(|errno| self.device.failed("import dma-bufs", errno))?;
                if got.count as usize > ring.len() {
                    let what = format!("its driver needs at least {} blocks", got.count);
                    return Err(self.device.refused(what, "choose more: --blocks NUMBER"));
                }
                got.count as usize
            }
            FrameMemory::Driver => ring.len(),
            FrameMemory::Mapped => 0,
        };
        self.slots = vec![None; count];
        self.ring = Some(Arc::clone(ring));
        Ok(())
    }

    fn attach_more(&mut self, _: usize) -> Result<bool> {
        Ok(self.memory != FrameMemory::Driver)
    }

    fn queue(&mut self, blocks: &[Filled]) -> Result<(usize, bool)> {
        for &filled in blocks {
            attached(self.ring.as_ref(), self.device.name())?.claim(filled)?;
            self.waiting.push_back(filled.block);
        }
        self.feed()?;
        Ok((blocks.len(), false))
    }

    fn take(&mut self) -> Result<Option<Filled>> {
        if let Some(filled) = self.full.pop_front() {
            return Ok(Some(filled));
        }
        if self.begun.is_none() { Ok(None) } else { self.next() }
    }

    fn pending(&self) -> Pending<'_> {
        let filling = self.slots.iter().flatten().count();
        let is_mapped = self.memory == FrameMemory::Mapped && !self.waiting.is_empty();
        let ready = (is_mapped || filling > 0).then(|| Wait::readable(self.device.fd()));
        Pending { blocks: filling + self.waiting.len() + self.full.len(), ready }
    }

    fn has_ended(&self) -> bool {
        let late = |time: Duration| self.begun.is_some_and(|begun| begun.elapsed() >= time + SLACK);
        self.ended || self.time.is_some_and(late)
    }

    fn frame_log(&self) -> Option<&FrameLog> {
        Some(&self.log)
    }

    fn live(&mut self) -> Option<&mut dyn Live> {
        Some(self)
    }

    fn stop(&mut self) -> Result<()> {
        if self.begun.is_none() {
            return Ok(());
        }
        // Frames that are full by now would be lost.
        while let Ok(Some(filled)) = self.next() {
            self.full.push_back(filled);
        }
        self.begun = None;
        self.slots.fill(None);
        self.waiting.clear();
        match v4l2::stream_off(self.device.fd(), self.device.kind) {
            Ok(()) | Err(Errno::NODEV) => Ok(()),
            Err(errno) => Err(self.device.failed("stop", errno)),
        }
    }
}

/// The log has the lost frames.
impl Live for VideoSource {
    fn start(&mut self) -> Result<()> {
        (0..self.buffers.len()).try_for_each(|index| self.give_back(index as u32))?;
        v4l2::stream_on(self.device.fd(), self.device.kind).map_err(|errno| match errno.raw() {
            libc::ENOSPC => self.device.refused(
                format!("cannot start: {errno}: the bus has no bandwidth left"),
                "choose a smaller --size, a lower --fps, a compressed --pixel-format, or another port",
            ),
            libc::EINVAL | libc::EPIPE | libc::ENOLINK => self.device.refused(
                format!("cannot start: {errno}"),
                "choose another --size or --pixel-format; a device with a pipeline is set up by media-ctl",
            ),
            _ => self.device.failed("start", errno),
        })?;
        self.begun = Some(Instant::now());
        Ok(())
    }

    fn is_dry(&self) -> Result<bool> {
        Ok(false)
    }

    fn lost(&mut self) -> Result<Reading> {
        Ok(Reading::Count(0))
    }
}
