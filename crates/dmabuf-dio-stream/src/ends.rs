// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a stream needs of its two ends.

use std::sync::Arc;

use crate::error::Result;
use crate::gaps::{Gap, Reading};
use crate::ring::{BlockRing, Filled};
use crate::v4l2::log::FrameLog;
use crate::wait::Wait;

/// Fills blocks, in the order in which they were queued.
pub trait Source {
    /// Bytes per frame: blocks are filled with whole frames.
    fn frame(&self) -> u64;

    /// How data gets into a block, as text for users; known once a ring is attached.
    fn how(&self) -> String;

    /// Attaches the blocks of a ring, before any is queued.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`] if they cannot be used.
    fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<()>;

    /// Attaches block number `block`, which was added to the ring later. Returns
    /// whether the source supports that.
    ///
    /// # Errors
    ///
    /// As for [`attach`](Self::attach).
    fn attach_more(&mut self, _block: usize) -> Result<bool> {
        Ok(false)
    }

    /// The source fills multiples of this number of bytes, and discards what was not requested of the
    /// last one; known once a ring is attached. Only the last request of a stream may be another length.
    fn align(&self) -> u64 {
        1
    }

    /// Starts the flow of samples.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`].
    fn start(&mut self) -> Result<()>;

    /// Queues block number `block`, to be filled with `bytes` bytes. Only the block being filled
    /// when the source is stopped may come back with fewer. Does not block. Returns whether the
    /// source lost frames, or may have, because it had no block.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`]. [`RangeBeyondBuffer`](dmabuf_dio::Error::RangeBeyondBuffer) for more
    /// bytes than the ring's [`size`](BlockRing::size), and [`Setting`](dmabuf_dio::Error::Setting) for
    /// 0 bytes or a block that does not exist: nothing is queued then.
    fn queue(&mut self, block: usize, bytes: u64) -> Result<bool>;

    /// How many blocks are worth queueing at a time at the moment, at least 1.
    fn batch(&self) -> usize {
        1
    }

    /// Queues several blocks in this order, each to be filled with its `bytes`. Does not block.
    /// Returns whether the source lost frames, or may have, before one of them because it had no
    /// block.
    ///
    /// # Errors
    ///
    /// As for [`queue`](Self::queue).
    fn queue_all(&mut self, batch: &[Filled]) -> Result<bool> {
        let queue = |dry, filled: &Filled| Ok(self.queue(filled.block, filled.bytes)? || dry);
        batch.iter().try_fold(false, queue)
    }

    /// The block that was queued first, if it is full. Does not block.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`], with `ENODEV` if the device is gone.
    fn take(&mut self) -> Result<Option<Filled>>;

    /// What to poll until [`take`](Self::take) may return a block; `None` if nothing is queued.
    fn ready(&self) -> Option<Wait<'_>>;

    /// Number of queued blocks.
    fn queued(&self) -> usize;

    /// Length of the source's data in bytes; `None` if it is unlimited.
    fn len(&self) -> Option<u64> {
        None
    }

    /// Whether the source has no data.
    fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Whether it waits for a block instead of losing frames, though its length may be unknown. The
    /// ring then does not grow.
    fn waits(&self) -> bool {
        self.len().is_some()
    }

    /// Whether a source of unknown length has returned its last block.
    fn has_ended(&self) -> bool {
        false
    }

    /// What is missing in the data that it delivers, by offset in that data, apart from
    /// [`lost`](Self::lost): the frames that a video device numbers and does not deliver.
    fn gaps(&self) -> &[Gap] {
        &[]
    }

    /// What a video device says of its frames.
    fn frame_log(&self) -> Option<&FrameLog> {
        None
    }

    /// Whether frames are being lost at the moment because every queued block is full. Always
    /// `false` for a source that waits for a block.
    ///
    /// # Errors
    ///
    /// As for [`take`](Self::take).
    fn is_dry(&self) -> Result<bool> {
        Ok(false)
    }

    /// Whether the source can detect lost frames; known once a ring is attached.
    fn tells_losses(&self) -> bool {
        true
    }

    /// Frames that the source reports as lost since it was started; `None` if it does not report
    /// them.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`].
    fn lost(&mut self) -> Result<Option<u64>> {
        Ok(Some(0))
    }

    /// Whether frames were lost since the last call, if the source notes that, but not how many. Asked
    /// only if [`lost`](Self::lost) does not tell.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`].
    fn has_lost(&mut self) -> Result<Option<bool>> {
        Ok(None)
    }

    /// Stops the flow of samples. Full blocks can still be taken; the other queued blocks do not
    /// come back.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`].
    fn stop(&mut self) -> Result<()>;
}

/// Empties blocks, in the order in which they were queued.
pub trait Sink {
    /// How data gets out of a block, as text for users; known once a ring is attached.
    fn how(&self) -> String;

    /// Attaches the blocks of a ring, before any is queued. `expected` is the number of bytes to
    /// come, if known.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`] if they cannot be used: `ENOSPC` if there is no room for `expected` bytes.
    fn attach(&mut self, ring: &Arc<BlockRing>, expected: Option<u64>) -> Result<()>;

    /// As [`Source::attach_more`].
    ///
    /// # Errors
    ///
    /// As for [`attach`](Self::attach).
    fn attach_more(&mut self, _block: usize) -> Result<bool> {
        Ok(false)
    }

    /// Queues a block, whose data follows that of the blocks before. Does not block. Returns
    /// whether the sink had nothing to output, or may have had nothing, since the block before.
    /// Always `false` for a sink without a rate of its own, and for the first block.
    ///
    /// # Errors
    ///
    /// As for [`Source::queue`].
    fn queue(&mut self, filled: Filled) -> Result<bool>;

    /// Announces that no more blocks follow: the sink no longer waits for more blocks to deliver
    /// several together.
    ///
    /// # Errors
    ///
    /// As for [`take`](Self::take).
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    /// The block that was queued first, once all of its data has been delivered. Does not block.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`]: `ENOSPC` if there is no room for it.
    fn take(&mut self) -> Result<Option<Filled>>;

    /// What to poll until [`take`](Self::take) may return a block; `None` if nothing is queued.
    fn ready(&self) -> Option<Wait<'_>>;

    /// Number of queued blocks.
    fn queued(&self) -> usize;

    /// Whether the sink has nothing to output at the moment, and needs something. Always `false`
    /// for a sink without a rate of its own.
    ///
    /// # Errors
    ///
    /// As for [`take`](Self::take).
    fn is_dry(&self) -> Result<bool> {
        Ok(false)
    }

    /// Whether the sink can detect that it had nothing to output; known once a ring is attached.
    fn tells_losses(&self) -> bool {
        true
    }

    /// The number of frames that the sink could not output since its start because it had none;
    /// `None` if it does not report them.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`].
    fn lost(&mut self) -> Result<Option<u64>> {
        Ok(Some(0))
    }

    /// As [`Source::has_lost`]: whether it had nothing to output.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`].
    fn has_lost(&mut self) -> Result<Option<bool>> {
        Ok(None)
    }

    /// Bytes of taken blocks that the sink may not have output yet; known once a ring is attached.
    fn behind(&self) -> u64 {
        0
    }

    /// Makes the taken blocks' data durable, if the sink supports that. Called once, even after an
    /// error.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`].
    fn finish(&mut self) -> Result<()>;
}

impl Reading {
    pub(super) fn of_source(source: &mut dyn Source) -> Result<Self> {
        let lost = source.lost()?;
        lost.map_or_else(|| source.has_lost().map(Self::noted), |lost| Ok(Self::Count(lost)))
    }

    pub(super) fn of_sink(sink: &mut dyn Sink) -> Result<Self> {
        let lost = sink.lost()?;
        lost.map_or_else(|| sink.has_lost().map(Self::noted), |lost| Ok(Self::Count(lost)))
    }

    fn noted(noted: Option<bool>) -> Self {
        noted.map_or(Self::Nothing, Self::Noted)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{Discard, Error, FileSink, FileSource, SocketSink};

    const SIZE: u64 = 5000;

    /// Claims that are not in a block.
    const BAD: [Filled; 5] = [
        Filled { block: 0, bytes: SIZE + 1 },
        Filled { block: 1, bytes: 1 << 30 },
        Filled { block: 0, bytes: u64::MAX },
        Filled { block: 0, bytes: 0 },
        Filled { block: 2, bytes: 1 },
    ];

    fn ring() -> Arc<BlockRing> {
        let ring = BlockRing::of_memfds(2, SIZE);
        for (number, block) in (1..).zip(ring.blocks()) {
            let mut block = block.try_clone().expect("a descriptor");
            let len = block.len();
            block.map_mut().expect("a view").fill_at(0, len, number).expect("filled");
        }
        Arc::new(ring)
    }

    fn is_refused(result: &Result<()>) {
        use dmabuf_dio::Error::{RangeBeyondBuffer, Setting};
        let good =
            matches!(result, Err(Error::Transfer(RangeBeyondBuffer { .. } | Setting { .. })));
        assert!(good, "{result:?}");
    }

    /// Both blocks go through, with the requested bytes of each.
    fn empties(sink: &mut dyn Sink) {
        let ring = ring();
        let early = sink.queue(Filled { block: 0, bytes: 1 });
        assert!(matches!(early, Err(Error::Stream { .. })), "not attached: {early:?}");
        sink.attach(&ring, None).expect("attached");
        for bad in BAD {
            is_refused(&sink.queue(bad).map(|_| ()));
            assert_eq!(sink.queued(), 0, "{bad:?}");
        }
        let all = [Filled { block: 1, bytes: SIZE }, Filled { block: 0, bytes: 1 }];
        for filled in all {
            assert!(!sink.queue(filled).expect("queued"), "it has no rate");
        }
        assert_eq!(sink.queued(), all.len());
        let begin = Instant::now();
        for filled in all {
            let taken = loop {
                assert!(begin.elapsed() < Duration::from_secs(60), "it takes none");
                if let Some(taken) = sink.take().expect("taken") {
                    break taken;
                }
            };
            assert_eq!(taken, filled);
        }
        sink.finish().expect("finished");
    }

    fn expected() -> Vec<u8> {
        [&[2; SIZE as usize][..], &[1]].concat()
    }

    #[test]
    fn sinks_refuse_bytes_beyond_a_block() {
        empties(&mut Discard::default());
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("samples");
        empties(&mut FileSink::create(&path).expect("a file"));
        assert_eq!(std::fs::read(&path).expect("read"), expected());
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        empties(&mut SocketSink::new(ours, "somebody"));
        let mut bytes = Vec::new();
        theirs.read_to_end(&mut bytes).expect("all of it");
        assert_eq!(bytes, expected());
    }

    #[test]
    fn sources_refuse_bytes_beyond_a_block() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("samples");
        std::fs::write(&path, [7; 3000]).expect("written");
        let mut source = FileSource::open(&path, 1).expect("a file");
        let ring = ring();
        source.attach(&ring).expect("attached");
        for Filled { block, bytes } in BAD {
            is_refused(&source.queue(block, bytes).map(|_| ()));
            assert_eq!(source.queued(), 0);
        }
        source.queue(1, 3000).expect("queued");
        let taken = loop {
            if let Some(taken) = source.take().expect("taken") {
                break taken;
            }
        };
        assert_eq!(taken, Filled { block: 1, bytes: 3000 });
        let bytes = ring.block(1).map().expect("a view").to_vec().expect("all of it");
        assert!(bytes[..3000].iter().all(|byte| *byte == 7));
        assert!(bytes[3000..].iter().all(|byte| *byte == 2), "nothing behind it");
    }
    #[test]
    fn file_source_waits_for_blocks_without_loss() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("samples");
        for bytes in [0, 4] {
            std::fs::write(&path, vec![7; bytes]).expect("written");
            let mut source = FileSource::open(&path, 1).expect("a file");
            assert_eq!((source.len(), source.is_empty()), (Some(bytes as u64), bytes == 0));
            assert!(!source.is_dry().expect("known") && source.tells_losses());
            assert_eq!(source.lost().expect("known"), Some(0));
        }
        assert!(!ring().is_empty());
    }
}
