// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams without devices: files, sockets, and a source and a sink that lose data and delay by the
//! number of calls, not by the clock. The blocks are memfds.

#[path = "../common/mod.rs"]
mod common;
mod cuts;
mod errors;
mod frames;
mod pipes;

use std::collections::VecDeque;
use std::fs;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use dmabuf_dio::{Buffer, CancelToken, Errno, Error as DioError};
use dmabuf_dio_stream::{
    BlockRing, Discard, Error, Facts, FileSink, FileSource, Filled, Live, Overrun, Pending,
    Reading, SocketSink, Source, State, Stream,
};

use crate::common::{FRAME, Keeper, check_gaps, missing, put, ring};

/// Frames numbered from `first`.
fn frames(first: u64, bytes: u64) -> Vec<u8> {
    (first..first + bytes / FRAME).flat_map(u64::to_le_bytes).collect()
}

/// A device that fills a block every `every` calls, and loses as many frames if it has none.
#[derive(Default)]
struct Device {
    ring: Option<Arc<BlockRing>>,
    queued: VecDeque<Filled>,
    every: u32,
    calls: u32,
    next: u64,
    lost: u64,
    running: bool,
    /// Fails after filling this number of blocks.
    fails_after: Option<u32>,
    filled: u32,
    /// Tells how many frames it has lost.
    counts: bool,
    /// Loses frames of its own before filling the block of this number.
    skips_at: Option<u32>,
    /// How long a call takes.
    pause: Duration,
    /// How many blocks it wants at a time, and how many it got.
    batch: usize,
    batches: Vec<usize>,
}

impl Device {
    fn new(every: u32) -> Self {
        Self { every, counts: true, batch: 1, ..Self::default() }
    }
}

impl Source for Device {
    fn facts(&self) -> Facts {
        Facts { frame: FRAME, ..Facts::new("counted") }
    }

    fn attach(&mut self, ring: &Arc<BlockRing>) -> Result<(), Error> {
        self.ring = Some(Arc::clone(ring));
        Ok(())
    }

    fn queue(&mut self, blocks: &[Filled]) -> Result<(usize, bool), Error> {
        let was_dry = self.queued.is_empty();
        let count = blocks.len().min(self.batch);
        self.queued.extend(&blocks[..count]);
        self.batches.push(count);
        Ok((count, was_dry))
    }

    fn take(&mut self) -> Result<Option<Filled>, Error> {
        if !self.running {
            return Ok(None);
        }
        if self.fails_after == Some(self.filled) {
            let (device, call) = ("the device".into(), "go on".into());
            return Err(Error::Stream { device, call, errno: Errno::from_raw(libc::ENODEV) });
        }
        std::thread::sleep(self.pause);
        self.calls += 1;
        if self.calls % self.every != 0 {
            return Ok(None);
        }
        let ring = self.ring.as_ref().expect("attached");
        let Some(Filled { block, bytes }) = self.queued.pop_front() else {
            self.lost += ring.size() / FRAME;
            self.next += ring.size() / FRAME;
            return Ok(None);
        };
        if self.skips_at == Some(self.filled) {
            self.lost += 7;
            self.next += 7;
        }
        put(ring.block(block), &frames(self.next, bytes));
        self.next += bytes / FRAME;
        self.filled += 1;
        Ok(Some(Filled { block, bytes }))
    }

    fn pending(&self) -> Pending<'_> {
        Pending { blocks: self.queued.len(), ready: None }
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.running = false;
        self.queued.clear();
        Ok(())
    }

    fn live(&mut self) -> Option<&mut dyn Live> {
        Some(self)
    }
}

impl Live for Device {
    fn start(&mut self) -> Result<(), Error> {
        self.running = true;
        Ok(())
    }

    fn is_dry(&self) -> Result<bool, Error> {
        Ok(self.queued.is_empty())
    }

    fn lost(&mut self) -> Result<Reading, Error> {
        Ok(if self.counts { Reading::Count(self.lost) } else { Reading::Nothing })
    }
}

/// Blocks come back in batches, and the last ones, held back by the sink, are not forgotten.
#[test]
fn blocks_are_queued_in_batches() {
    let (mut source, mut sink) = (Device::new(1), Keeper::new(1));
    (source.batch, sink.holds) = (3, 4);
    let limit = 800 + 16;
    let stream = Stream::new(&mut source, &mut sink, ring(8, 80)).limit(limit);
    let summary = stream.run().expect("run");
    assert_eq!((summary.bytes, summary.complete), (limit, true));
    // Eleven blocks: eight at first, then the other three.
    assert_eq!(source.filled, 11);
    assert!(source.batches.contains(&3), "{:?}", source.batches);
    // A loss before a batch counts as before one of its blocks.
    check_gaps(&summary, &sink.missing());
}

#[test]
fn file_passes_through_rings_of_any_size() {
    let folder = tempfile::tempdir().expect("a folder");
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let content: Vec<u8> = frames(0, 1_000_000);
    fs::write(&from, &content).expect("written");
    for (count, size) in [(1, 4096), (2, 65_536), (3, 4096 + 24), (4, 1 << 20), (16, 8)] {
        let wanted = if size == 8 { 8000 } else { content.len() };
        let mut source = FileSource::open(&from, FRAME).expect("open");
        let mut sink = FileSink::create(&to).expect("create");
        let stream = Stream::new(&mut source, &mut sink, ring(count, size)).limit(wanted as u64);
        let summary = stream.run().expect("run");
        assert_eq!((summary.bytes, summary.lost_frames), (wanted as u64, 0), "{count} of {size}");
        assert!(summary.gaps.is_empty() && summary.loss_known);
        assert!(fs::read(&to).expect("read") == content[..wanted], "{count} of {size}");
    }
}

#[test]
fn limit_within_a_frame_stops_before_it() {
    let mut sink = Keeper::new(1);
    let mut source = Device::new(1);
    let stream = Stream::new(&mut source, &mut sink, ring(2, 4096)).limit(10_007);
    assert_eq!(stream.run().expect("run").bytes, 10_000);
    assert_eq!((sink.bytes.len(), sink.finished), (10_000, true));
}

#[test]
fn a_socket_gets_every_byte() {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        theirs.read_to_end(&mut bytes).map(|_| bytes)
    });
    let (mut source, mut sink) = (Device::new(2), SocketSink::new(ours, "the other end"));
    let stream = Stream::new(&mut source, &mut sink, ring(64, 4096)).limit(200_000);
    let summary = stream.run().expect("run");
    let bytes = reader.join().expect("no panic").expect("read");
    assert_eq!((summary.bytes, bytes.len()), (200_000, 200_000));
    let told: u64 = summary.gaps.iter().map(|gap| gap.frames.expect("counted")).sum();
    assert_eq!(missing(&bytes).iter().map(|(_, frames)| frames).sum::<u64>(), told);
}

/// The summary reports everything the sink misses, place by place.
#[test]
fn losses_of_a_slow_sink_are_reported_with_their_place() {
    for count in [2, 5] {
        let (mut source, mut sink) = (Device::new(2), Keeper::new(7));
        let stream = Stream::new(&mut source, &mut sink, ring(count, 4096));
        let summary = stream.limit(40 * 4096).run().expect("run");
        assert_eq!((summary.bytes, sink.bytes.len()), (40 * 4096, 40 * 4096), "{count} blocks");
        let found = sink.missing();
        assert!(!found.is_empty(), "{count} blocks");
        check_gaps(&summary, &found);
        assert!(summary.lost_frames >= found.iter().map(|(_, frames)| frames).sum());
    }
}

/// The time of the device includes lost frames: every frame before frame 10,000 is delivered or
/// reported as lost.
#[test]
fn lost_frames_count_as_elapsed_time() {
    for count in [2, 5] {
        let (mut source, mut sink) = (Device::new(2), Keeper::new(7));
        let stream = Stream::new(&mut source, &mut sink, ring(count, 4096));
        let summary = stream.time(Some(10_000), 0.001).run().expect("run");
        let last = sink.bytes.chunks_exact(FRAME as usize).last().expect("some");
        let end = u64::from_le_bytes(last.try_into().expect("a frame")) + 1;
        let missing: u64 = sink.missing().iter().map(|(_, frames)| frames).sum();
        assert!(summary.complete && missing > 0 && end <= 10_000, "{count} blocks: {end}");
        assert_eq!(summary.bytes / FRAME + summary.lost_frames, 10_000, "{count} blocks");
        assert_eq!(missing + 10_000 - end, summary.lost_frames, "{count} blocks");
    }
}

/// If the device does not count, the clock says when its time is over.
#[test]
fn uncounted_stream_is_timed_by_the_clock() {
    let (mut source, mut sink) = (Device::new(2), Keeper::new(7));
    source.counts = false;
    let stream = Stream::new(&mut source, &mut sink, ring(2, 4096)).time(Some(1 << 40), 0.5);
    let summary = stream.run().expect("run");
    assert!(summary.seconds >= 0.5 && summary.complete, "{summary:?}");
    assert!(summary.gaps.iter().all(|gap| gap.frames.is_none()));
}

#[test]
fn overrun_fail_ends_the_stream() {
    let (mut source, mut sink) = (Device::new(1), Keeper::new(50));
    let stream = Stream::new(&mut source, &mut sink, ring(2, 4096)).overrun(Overrun::Fail);
    let ended = stream.limit(1 << 20).run().expect_err("the sink is too slow");
    assert_eq!(ended.error.errno(), Some(Errno::OVERFLOW), "{ended}");
    assert_eq!(
        (ended.summary.bytes, sink.bytes.len() as u64),
        (sink.bytes.len() as u64, ended.summary.bytes)
    );
    assert!(sink.finished);
    assert!(ended.to_string().contains(&format!("after {} bytes", ended.summary.bytes)));
}

#[test]
fn frames_before_a_failure_are_kept() {
    let (mut source, mut sink) = (Device::new(1), Keeper::new(3));
    source.fails_after = Some(5);
    let ended = Stream::new(&mut source, &mut sink, ring(8, 4096)).run().expect_err("it fails");
    assert_eq!(ended.error.errno(), Some(Errno::NODEV));
    assert_eq!(ended.summary.bytes, 5 * 4096);
    assert!(sink.bytes == frames(0, 5 * 4096) && sink.finished);

    let (mut source, mut sink) = (Device::new(1), Keeper::new(1));
    sink.fails_after = Some(3);
    let ended = Stream::new(&mut source, &mut sink, ring(4, 4096)).run().expect_err("it fails");
    assert_eq!(ended.error.errno(), Some(Errno::NOSPC));
    assert_eq!((ended.summary.bytes, sink.bytes.len()), (3 * 4096, 3 * 4096));
    assert!(sink.finished);
}

#[test]
fn cancelled_stream_keeps_full_blocks() {
    let (mut source, mut sink) = (Device::new(1), Keeper::new(2));
    let token = CancelToken::new();
    let at_once = token.clone();
    let mut states = Vec::new();
    let stream = Stream::new(&mut source, &mut sink, ring(3, 4096)).cancel(token);
    let stream = stream.progress(|state: State| {
        states.push((state.bytes, state.blocks));
        if states.len() == 3 {
            at_once.cancel();
        }
    });
    let summary = stream.run().expect("in order");
    assert_eq!((states[0], summary.bytes % 4096), ((0, 3), 0), "before the first sample");
    assert!(states.windows(2).all(|two| two[0].0 <= two[1].0), "{states:?}");
    assert_eq!(summary.bytes, sink.bytes.len() as u64);
    assert!(summary.bytes > 0 && sink.finished && summary.seconds > 0.1);
}

#[test]
fn unsuitable_blocks_are_refused() {
    let refused = |result: Result<BlockRing, Error>| match result {
        Err(Error::Transfer(DioError::Setting { name, .. })) => name,
        Err(Error::Transfer(DioError::RangeBeyondBuffer { .. })) => "range",
        other => panic!("{other:?}"),
    };
    let memfd = || Buffer::memfd(4096).expect("a memfd");
    assert_eq!(refused(BlockRing::of(vec![], 4096)), "blocks");
    assert_eq!(refused(BlockRing::of(vec![memfd()], 0)), "block");
    assert_eq!(refused(BlockRing::of(vec![memfd()], 2 << 30)), "block");
    assert_eq!(refused(BlockRing::of(vec![memfd(), memfd()], memfd().len() + 1)), "range");
    let odd = Stream::new(&mut Device::new(1), &mut Discard::default(), ring(2, 1001)).run();
    let odd = odd.expect_err("no whole frames");
    assert!(matches!(odd.error, Error::Transfer(DioError::Setting { name: "block", .. })), "{odd}");
}

/// A device that always has a block.
#[test]
fn losses_within_the_device_are_reported_with_their_place() {
    let (mut source, mut sink) = (Device::new(2), Keeper::new(1));
    source.skips_at = Some(10);
    let stream = Stream::new(&mut source, &mut sink, ring(4, 4096));
    let summary = stream.limit(40 * 4096).run().expect("run");
    assert_eq!(sink.missing(), [(10 * 4096, 7)]);
    let told: Vec<_> = summary.gaps.iter().map(|gap| gap.frames).collect();
    assert_eq!((told, summary.lost_frames), (vec![Some(7)], 7));
    let gap = summary.gaps[0];
    assert!((gap.at..=gap.to).contains(&(10 * 4096)), "{gap:?}");
    assert!(summary.cpu_seconds.is_some_and(|seconds| seconds > 0.0));
}

/// With one block the device runs out of blocks each time, and its counter is read each time. Up to
/// the first loss it may look like a device that waits, on a slow machine: then the first loss is
/// known with the second.
#[test]
fn losses_after_each_block_are_reported_separately() {
    let (mut source, mut sink) = (Device::new(1), Keeper::new(3));
    let stream = Stream::new(&mut source, &mut sink, ring(1, 4096));
    let summary = stream.limit(20 * 4096).run().expect("run");
    let told: Vec<_> = summary.gaps.iter().map(|gap| (gap.at, gap.to, gap.frames)).collect();
    let found = sink.missing();
    assert_eq!(found.len(), 19);
    let exact = |&(at, lost): &(u64, u64)| (at, at, Some(lost));
    let mut wanted: Vec<_> = found.iter().map(exact).collect();
    if told[0].0 < told[0].1 {
        let both = (found[0].0, found[1].0, Some(found[0].1 + found[1].1));
        wanted.splice(..2, [both]);
    }
    assert_eq!(told, wanted);
}

#[test]
fn overrun_fail_ends_the_stream_only_at_a_loss() {
    let (mut source, mut sink) = (Device::new(2), Keeper::new(1));
    let stream = Stream::new(&mut source, &mut sink, ring(4, 4096)).overrun(Overrun::Fail);
    assert_eq!(stream.limit(20 * 4096).run().expect("no loss").bytes, 20 * 4096);
    // The loss is noticed although the device never lacks a block.
    let (mut source, mut sink) = (Device::new(2), Keeper::new(1));
    (source.skips_at, source.pause) = (Some(2), Duration::from_millis(15));
    let stream = Stream::new(&mut source, &mut sink, ring(4, 4096)).overrun(Overrun::Fail);
    let ended = stream.limit(20 * 4096).run().expect_err("a loss");
    assert_eq!(ended.error.errno(), Some(Errno::OVERFLOW), "{ended}");
    assert!(sink.bytes.len() < 10 * 4096, "{ended}");
    let source = std::error::Error::source(&*ended).expect("the error");
    assert_eq!(source.to_string(), ended.error.to_string());
}

#[test]
fn summary_names_the_discarding_sink() {
    let (mut source, mut sink) = (Device::new(1), Discard::default());
    let stream = Stream::new(&mut source, &mut sink, ring(2, 4096));
    let summary = stream.limit(8192).run().expect("run");
    assert_eq!((summary.bytes, &*summary.sink), (8192, "discarded"));
}
