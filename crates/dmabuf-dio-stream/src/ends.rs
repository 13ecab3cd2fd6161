// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interfaces of the two ends of a stream.

use std::sync::Arc;

use crate::error::Result;
use crate::gaps::Reading;
use crate::ring::{BlockRing, Filled};
use crate::v4l2::log::FrameLog;
use crate::wait::Wait;

/// Facts about a source or a sink, known once a ring is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// How data gets into a block, or out of it, as text for users.
    pub how: String,
    /// Bytes per frame: a source fills blocks with whole frames.
    pub frame: u64,
    /// A source fills multiples of this number of bytes. It discards bytes of the last multiple that
    /// were not requested. Only the last request of a stream may be another length.
    pub align: u64,
    /// Length of the source's data in bytes; `None` if it is unlimited.
    pub len: Option<u64>,
    /// Whether a source of unknown length waits for a block instead of losing frames. A source of
    /// known length always does. The ring then does not grow.
    pub waits: bool,
    /// Of a sink: bytes of taken blocks that it may not have output yet. Of a source: bytes that it may hold itself,
    /// beyond those that are queued.
    pub behind: u64,
    /// Whether it can detect lost frames, or underruns.
    pub tells_losses: bool,
}

impl Facts {
    /// Facts about an end that works in this way, on single bytes and without losses.
    pub fn new(how: impl Into<String>) -> Self {
        let (how, frame, align, len) = (how.into(), 1, 1, None);
        Self { how, frame, align, len, waits: false, behind: 0, tells_losses: true }
    }
}

/// The blocks that are queued on a source or a sink.
#[derive(Debug, Default)]
pub struct Pending<'e> {
    /// Number of queued blocks.
    pub blocks: usize,
    /// A descriptor to poll until `take` may return one of them; `None` if there is nothing to poll.
    pub ready: Option<Wait<'e>>,
}

/// An end with a rate of its own. If no block is queued in time, a source loses frames, and a sink
/// has nothing to output.
pub trait Live {
    /// Starts the flow of samples of a source. A sink starts with its first block.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream).
    fn start(&mut self) -> Result<()> {
        Ok(())
    }

    /// Whether it has no block at the moment, and needs one.
    ///
    /// # Errors
    ///
    /// As for [`Source::take`].
    fn is_dry(&self) -> Result<bool>;

    /// Reads its losses.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream).
    fn lost(&mut self) -> Result<Reading>;
}

/// Fills blocks, in the order in which they were queued.
pub trait Source {
    /// What it says of itself.
    fn facts(&self) -> Facts;

    /// Attaches the blocks of a ring, before any is queued.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream) if they cannot be used.
    fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<()>;

    /// Attaches block number `block`, which was added to the ring later. Returns whether the source
    /// supports that.
    ///
    /// # Errors
    ///
    /// As for [`attach`](Self::attach).
    fn attach_more(&mut self, _block: usize) -> Result<bool> {
        Ok(false)
    }

    /// Queues the first of these blocks in this order, at least one, each to be filled with its
    /// `bytes`. Only the block being filled when the source is stopped may come back with fewer. Does
    /// not block. Returns how many it has queued, and whether it lost frames before one of them, or may
    /// have, because it had no block.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream). [`RangeBeyondBuffer`](dmabuf_dio::Error::RangeBeyondBuffer)
    /// for more bytes than the ring's [`size`](BlockRing::size), and
    /// [`Setting`](dmabuf_dio::Error::Setting) for 0 bytes or a block that does not exist: that block
    /// is not queued then.
    fn queue(&mut self, blocks: &[Filled]) -> Result<(usize, bool)>;

    /// The block that was queued first, if it is full. Does not block.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream), with `ENODEV` if the device is gone.
    fn take(&mut self) -> Result<Option<Filled>>;

    /// What is queued.
    fn pending(&self) -> Pending<'_>;

    /// Stops the flow of samples. Full blocks can still be taken; the other queued blocks do not come
    /// back.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream).
    fn stop(&mut self) -> Result<()>;

    /// Whether a source of unknown length has returned its last block.
    fn has_ended(&self) -> bool {
        false
    }

    /// The numbers and times of a video device's frames. Frames that are missing there are missing
    /// in the data, and do not count as losses of the source.
    fn frame_log(&self) -> Option<&FrameLog> {
        None
    }

    /// The source's interface if it has a rate of its own; `None` for a source that waits for
    /// blocks.
    fn live(&mut self) -> Option<&mut dyn Live> {
        None
    }
}

/// Empties blocks, in the order in which they were queued.
pub trait Sink {
    /// What it says of itself.
    fn facts(&self) -> Facts;

    /// Attaches the blocks of a ring, before any is queued. `expected` is the number of bytes to
    /// come, if known.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream) if they cannot be used: `ENOSPC` if there is no room
    /// for `expected` bytes.
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
    /// [`Error::Stream`](crate::Error::Stream): `ENOSPC` if there is no room for it.
    fn take(&mut self) -> Result<Option<Filled>>;

    /// What is queued.
    fn pending(&self) -> Pending<'_>;

    /// Makes the taken blocks' data durable, if the sink supports that. Called once, even after an
    /// error.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream).
    fn finish(&mut self) -> Result<()>;

    /// The sink's interface if it has a rate of its own.
    fn live(&mut self) -> Option<&mut dyn Live> {
        None
    }
}

/// Reads the losses of an end, and then whether it has no block. In this order, later losses are
/// left for the next reading.
pub(crate) fn reading(live: Option<&mut dyn Live>) -> Result<(Reading, bool)> {
    let Some(live) = live else { return Ok((Reading::Count(0), false)) };
    Ok((live.lost()?, live.is_dry()?))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

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
            assert_eq!(sink.pending().blocks, 0, "{bad:?}");
        }
        let all = [Filled { block: 1, bytes: SIZE }, Filled { block: 0, bytes: 1 }];
        for filled in all {
            assert!(!sink.queue(filled).expect("queued"), "it has no rate");
        }
        assert_eq!(sink.pending().blocks, all.len());
        for filled in all {
            let taken = loop {
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
            is_refused(&source.queue(&[Filled { block, bytes }]).map(|_| ()));
            assert_eq!(source.pending().blocks, 0);
        }
        source.queue(&[Filled { block: 1, bytes: 3000 }]).expect("queued");
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
            let facts = source.facts();
            assert_eq!((facts.len, facts.tells_losses), (Some(bytes as u64), true));
            assert_eq!(reading(source.live()).expect("known"), (Reading::Count(0), false));
        }
        assert!(!ring().is_empty());
    }
}
