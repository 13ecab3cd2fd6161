// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams between the simulated devices of `kernel/sim/iio_stream` and `kernel/sim/usb_sink`, if
//! present, and files and sockets.

#[path = "../common/mod.rs"]
mod common;
mod devices;
mod file;
mod socket;
mod usb;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dmabuf_dio::{CancelToken, Errno, Error as Buffer};
use dmabuf_dio_stream::{
    BlockRing, Device, Error, Filled, IioSource, Overrun, Repeat, Sink, Source, Stream, frame_bytes,
};

use crate::common::{FRAME, Keeper, check_gaps};
use crate::devices::{Devices, number, once_running, run, sink, source};

#[test]
fn every_frame_arrives_in_order() {
    let Some(devices) = Devices::get() else { return };
    let (adc, dac) = (&devices.adc, &devices.dac);
    assert_eq!(frame_bytes(&adc.channels(0).expect("channels")), FRAME);
    for (count, size, limit) in [
        (2, 16 << 10, 1 << 20),
        (4, 1 << 20, 64 << 20),
        (3, 4096 + 24, 1_000_000),
        (8, 4096, 8),
        // In batches
        (64, 16 << 10, 32 << 20),
        (7, 4096, 8 << 20),
    ] {
        let summary = run(devices.source(), &mut devices.sink(), (count, size), limit);
        assert_eq!(summary.bytes, limit / FRAME * FRAME);
        assert!(summary.gaps.is_empty(), "{:?}", summary.gaps);
        assert_eq!(number(dac, "moved_frames"), summary.bytes / FRAME);
        assert_eq!(number(dac, "wrong_frames"), 0);
    }
}

#[test]
fn losses_are_reported_with_their_place() {
    let Some(devices) = Devices::get() else { return };
    let adc = &devices.adc;
    for overrun in [Overrun::Block, Overrun::Fail] {
        adc.write("sampling_frequency", "1000000").expect("rate");
        let mut source = devices.source();
        // A block of 2 ms takes the sink 20 ms.
        let mut sink = Keeper::slow(Duration::from_millis(20));
        let ring = BlockRing::new(4, 16 << 10).expect("blocks");
        let stream = Stream::new(&mut source, &mut sink, ring).limit(256 << 10).overrun(overrun);
        let result = stream.run();
        if overrun == Overrun::Fail {
            let error = result.expect_err("the sink is too slow");
            assert_eq!(error.error.errno(), Some(Errno::OVERFLOW));
            continue;
        }
        let summary = result.expect("run");
        assert_eq!((summary.bytes, sink.bytes.len()), (256 << 10, 256 << 10));
        assert!(!summary.gaps.is_empty());
        check_gaps(&summary, &sink.missing());
        let exact = summary.gaps.iter().filter(|gap| gap.at == gap.to).count();
        assert!(exact > 0, "{:?}", summary.gaps);
    }
}

/// The same with blocks that come so fast that they are queued in batches.
#[test]
fn losses_between_batches_are_reported_with_their_place() {
    let Some(devices) = Devices::get() else { return };
    devices.adc.write("sampling_frequency", "100000000").expect("rate");
    let mut sink = Keeper::slow(Duration::from_micros(10));
    let summary = run(devices.source(), &mut sink, (32, 4096), 8 << 20);
    assert_eq!((summary.bytes, sink.bytes.len()), (8 << 20, 8 << 20));
    assert!(!sink.missing().is_empty(), "the sink is too slow");
    check_gaps(&summary, &sink.missing());
}

/// At the start blocks are queued in batches, of up to eight here, before their rate is known.
#[test]
fn slow_device_delivers_blocks_one_by_one() {
    const BLOCK: u64 = 64 << 10;
    let Some(devices) = Devices::get() else { return };
    // 100 ms each
    devices.adc.write("sampling_frequency", "81920").expect("rate");
    // Frames that the device has sampled when each block comes. A busy machine may deliver late once.
    let counts = || {
        let (adc, counted) = (devices.adc.clone(), Arc::new(Mutex::new(Vec::new())));
        let (mut sink, count) = (Keeper::new(1), Arc::clone(&counted));
        sink.notice =
            Box::new(move || count.lock().expect("no panic").push(number(&adc, "moved_frames")));
        let summary = run(devices.source(), &mut sink, (16, BLOCK), 16 * BLOCK);
        assert_eq!(summary.bytes, 16 * BLOCK);
        drop(sink);
        Arc::into_inner(counted).expect("the only one").into_inner().expect("no panic")
    };
    // A block comes before the device has filled another after the next one. In batches of eight only the last two do.
    let prompt = |counts: &[u64]| {
        (1..)
            .zip(counts)
            .filter(|(blocks, frames)| **frames <= (blocks + 1) * BLOCK / FRAME)
            .count()
    };
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(counts());
        let last = all.last().expect("one");
        if last.len() == 16 && prompt(last) >= 13 {
            return;
        }
    }
    panic!("blocks came late: {all:?}");
}

#[test]
fn cancelled_stream_ends_cleanly() {
    let Some(devices) = Devices::get() else { return };
    let (adc, dac) = (&devices.adc, &devices.dac);
    adc.write("sampling_frequency", "1000000").expect("rate");
    let (mut source, mut sink) = (devices.source(), devices.sink());
    let ring = BlockRing::new(4, 64 << 10).expect("blocks");
    let token = CancelToken::new();
    let stream = Stream::new(&mut source, &mut sink, ring).cancel(token.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            once_running(adc, Duration::from_millis(300));
            token.cancel();
        });
        let summary = stream.run().expect("run");
        assert!(summary.bytes > 0);
        assert_eq!(number(dac, "moved_frames"), summary.bytes / FRAME);
    });
}

#[test]
fn bad_arguments_are_refused() {
    assert!(Device::find("no such device").is_none());
    let Some(devices) = Devices::get() else { return };
    let adc = &devices.adc;
    assert!(matches!(adc.read("nothing"), Err(Error::Stream { .. })));
    let channels = adc.channels(0).expect("channels");
    let _first = IioSource::open(adc.clone(), 0, &channels).expect("the ADC");
    let second = IioSource::open(adc.clone(), 0, &channels).expect_err("it is in use");
    assert_eq!(second.errno(), Some(Errno::BUSY), "{second}");
    let other = IioSource::open(devices.dac.clone(), 0, &channels).expect_err("a DAC");
    assert_eq!(other.errno(), Some(Errno::OPNOTSUPP), "{other}");
    let none = IioSource::open(adc.clone(), 7, &channels).expect_err("no such buffer");
    assert!(matches!(none, Error::Stream { .. }), "{none}");
}

/// Another program that lists devices opens them, too.
#[test]
fn briefly_busy_device_is_opened_after_a_wait() {
    let Some(devices) = Devices::get() else { return };
    let adc = &devices.adc;
    let other = std::fs::File::open(adc.node()).expect("the node");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            drop(other);
        });
        IioSource::open(adc.clone(), 0, &adc.channels(0).expect("channels")).expect("the ADC");
    });
}

#[test]
fn device_without_dmabufs_is_copied() {
    let Some(devices) = Devices::get() else { return };
    let adc = Device::find("stream-adc-fileio").expect("another ADC");
    let dac = Device::find("stream-dac-fileio").expect("another DAC");
    for device in [&adc, &dac] {
        device.write("sampling_frequency", "0").expect("rate");
    }
    for (from, to) in [(&adc, &devices.dac), (&devices.adc, &dac), (&adc, &dac)] {
        let summary = run(source(from), &mut sink(to), (4, 64 << 10), 1 << 20);
        assert!(summary.loss_known, "it counts");
        assert_eq!((summary.bytes, summary.gaps.len()), (1 << 20, 0), "{summary:?}");
        assert_eq!(number(to, "wrong_frames"), 0);
        let copied = |how: &str| how.contains("does not support dma-bufs");
        assert_eq!(copied(&summary.source), from.name() == adc.name(), "{summary:?}");
        assert_eq!(copied(&summary.sink), to.name() == dac.name(), "{summary:?}");
    }
}

/// More than a block has, 0 bytes, a block that does not exist.
#[test]
fn bytes_beyond_a_block_are_refused() {
    let Some(devices) = Devices::get() else { return };
    let refused = |result: Result<(), Error>| {
        assert!(
            matches!(
                result,
                Err(Error::Transfer(Buffer::RangeBeyondBuffer { .. } | Buffer::Setting { .. }))
            ),
            "{result:?}"
        );
    };
    let adc = Device::find("stream-adc-fileio").expect("another ADC");
    let dac = Device::find("stream-dac-fileio").expect("another DAC");
    for (from, to) in [(&devices.adc, &devices.dac), (&adc, &dac)] {
        let (mut source, mut sink) = (source(from), sink(to));
        let ring = Arc::new(BlockRing::new(2, 16 << 10).expect("blocks"));
        source.attach(&ring).expect("attached");
        sink.attach(&ring, None).expect("attached");
        for (block, bytes) in [(0, (16 << 10) + FRAME), (1, 1 << 40), (0, 0), (2, FRAME)] {
            let filled = Filled { block, bytes };
            refused(source.queue(&[filled]).map(|_| ()));
            refused(sink.queue(filled).map(|_| ()));
            let queued = (source.pending().blocks, sink.pending().blocks);
            assert_eq!(queued, (0, 0), "{bytes} bytes of {block}");
        }
        refused(source.queue(&[Filled { block: 0, bytes: u64::MAX }]).map(|_| ()));
    }
    let block = dmabuf_dio::Buffer::alloc(8192).expect("a block");
    let channels = devices.dac.channels(0).expect("channels");
    let beyond = block.len() + FRAME;
    let repeat = Repeat::start(devices.dac.clone(), 0, &channels, block, beyond);
    assert!(matches!(repeat, Err(Error::Transfer(Buffer::RangeBeyondBuffer { .. }))));
}

#[test]
fn cyclic_output_repeats_the_samples() {
    let Some(devices) = Devices::get() else { return };
    devices.dac.write("sampling_frequency", "1000000").expect("rate");
    let channels = devices.dac.channels(0).expect("channels");
    let mut block = dmabuf_dio::Buffer::alloc(8000).expect("a block");
    let frames: Vec<u8> = (0..1000_u64).flat_map(u64::to_le_bytes).collect();
    let mut view = block.map_mut().expect("a view");
    view.write_at(0, &frames).expect("written");
    view.finish().expect("finished");
    let repeat = Repeat::start(devices.dac.clone(), 0, &channels, block, 8000).expect("it begins");
    while number(&devices.dac, "moved_frames") < 10_000 {
        repeat.check().expect("it goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
    // In each repetition the numbers start again. The device continues while the counts are read.
    let before = number(&devices.dac, "moved_frames");
    let wrong = number(&devices.dac, "wrong_frames");
    let after = number(&devices.dac, "moved_frames");
    let right = before / 1000 - 1..=after / 1000 + 2;
    assert!(right.contains(&wrong), "{wrong} of {before} to {after}");
    repeat.stop().expect("it ends");
    let block = dmabuf_dio::Buffer::alloc(8000).expect("a block");
    let error = Repeat::start(devices.dac.clone(), 0, &channels, block, 7999);
    assert!(matches!(error, Err(Error::Transfer(Buffer::Setting { .. }))));
}

#[test]
fn invalid_ring_settings_are_refused() {
    for (count, size, wanted) in
        [(0, 4096, "blocks"), (5000, 4096, "blocks"), (1, 0, "block"), (1, 2 << 30, "block")]
    {
        let refused = BlockRing::new(count, size).expect_err("invalid");
        let right =
            matches!(&refused, Error::Transfer(Buffer::Setting { name, .. }) if *name == wanted);
        assert!(right, "{refused}");
    }
    let Some(devices) = Devices::get() else { return };
    let (mut source, mut sink) = (devices.source(), devices.sink());
    let ring = BlockRing::new(2, 1001).expect("blocks");
    let ended = Stream::new(&mut source, &mut sink, ring).run().expect_err("not whole frames");
    assert!(
        matches!(ended.error, Error::Transfer(Buffer::Setting { name: "block", value: 1001, .. })),
        "{ended}"
    );
}

#[test]
fn removed_device_ends_the_stream() {
    let Some(devices) = Devices::get() else { return };
    devices.adc.write("sampling_frequency", "100000").expect("rate");
    let driver = "/sys/bus/platform/drivers/iio_stream";
    let bound = BoundAgain(format!("{driver}/bind"));
    let (mut source, mut sink) = (devices.source(), Keeper::new(1));
    let ring = BlockRing::new(4, 16 << 10).expect("blocks");
    let stream = Stream::new(&mut source, &mut sink, ring);
    let summary = std::thread::scope(|scope| {
        let unbind = scope.spawn(|| {
            once_running(&devices.adc, Duration::from_millis(300));
            std::fs::write(format!("{driver}/unbind"), "iio_stream").expect("unbound");
        });
        let ended = stream.run().expect_err("there is no device");
        assert_eq!(ended.error.errno(), Some(Errno::NODEV), "{ended}");
        unbind.join().expect("unbound");
        ended.summary
    });
    // The data before it is complete, and there is none after it.
    let arrived = sink.bytes.len() as u64;
    assert!(summary.bytes > 0 && summary.bytes == arrived, "{summary:?}, {arrived} arrived");
    assert!(sink.missing().is_empty() || summary.lost_frames > 0, "{summary:?}");
    drop((source, bound));
}

/// For example between queueing a block and checking its fence: a block that the device has
/// cancelled is not one that it has filled.
#[test]
fn device_removed_at_any_moment_gives_no_wrong_block() {
    let Some(devices) = Devices::get() else { return };
    let driver = "/sys/bus/platform/drivers/iio_stream";
    for round in 0..20 {
        devices.adc.write("sampling_frequency", "10000000").expect("rate");
        let bound = BoundAgain(format!("{driver}/bind"));
        let (mut source, mut sink) = (devices.source(), Keeper::new(1));
        // With one block, nothing else is queued while it is; many are queued in batches.
        let ring =
            if round % 2 == 0 { BlockRing::new(1, 16 << 10) } else { BlockRing::new(32, 4096) };
        let ring = ring.expect("blocks");
        let stream = Stream::new(&mut source, &mut sink, ring);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                once_running(&devices.adc, Duration::from_micros(round * 1037));
                std::fs::write(format!("{driver}/unbind"), "iio_stream").expect("unbound");
            });
            let ended = stream.run().expect_err("there is no device");
            assert_eq!(ended.error.errno(), Some(Errno::NODEV), "round {round}: {ended}");
        });
        drop((source, bound));
    }
}

/// Brings the devices back, whatever the test's result.
struct BoundAgain(String);

impl Drop for BoundAgain {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.0, "iio_stream");
    }
}

/// The device goes away, or is stopped by someone, while it has no block that could tell.
#[test]
fn device_stopped_without_a_block_is_noticed() {
    let Some(devices) = Devices::get() else { return };
    devices.adc.write("sampling_frequency", "1000000").expect("rate");
    let (mut source, mut sink) = (devices.source(), Keeper::slow(Duration::from_millis(600)));
    let ring = BlockRing::new(2, 16 << 10).expect("blocks");
    let stream = Stream::new(&mut source, &mut sink, ring);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            once_running(&devices.adc, Duration::from_millis(300));
            devices.adc.write("buffer0/enable", "0").expect("stopped");
        });
        let ended = stream.run().expect_err("it gives nothing");
        assert_eq!(ended.error.errno(), Some(Errno::NODEV), "{ended}");
        assert_eq!(ended.summary.bytes, 2 * (16 << 10), "{ended}");
    });
}

/// Blocks queued to a device that never ran do not reach its next user.
#[test]
fn unfinished_blocks_do_not_reach_the_next_user() {
    let Some(devices) = Devices::get() else { return };
    let ring = Arc::new(BlockRing::new(2, 16 << 10).expect("blocks"));
    let mut source = devices.source();
    source.attach(&ring).expect("attached");
    source.queue(&[Filled { block: 0, bytes: 16 << 10 }]).expect("queued");
    drop(source);
    let summary = run(devices.source(), &mut devices.sink(), (2, 16 << 10), 64 << 10);
    assert_eq!(summary.bytes, 64 << 10);
    assert_eq!(number(&devices.dac, "wrong_frames"), 0);
}

/// Frames that a device loses although it has blocks.
#[test]
fn frames_lost_by_the_device_are_reported() {
    let Some(devices) = Devices::get() else { return };
    devices.adc.write("sampling_frequency", "100000").expect("rate");
    let (mut source, mut sink) = (devices.source(), Keeper::new(1));
    let ring = BlockRing::new(8, 16 << 10).expect("blocks");
    let stream = Stream::new(&mut source, &mut sink, ring).limit(512 << 10);
    let summary = std::thread::scope(|scope| {
        scope.spawn(|| {
            once_running(&devices.adc, Duration::from_millis(150));
            devices.adc.write("inject_loss", "1000").expect("lost");
        });
        stream.run().expect("run")
    });
    let missing = sink.missing();
    let found: u64 = missing.iter().map(|gap| gap.1).sum();
    assert!(found >= 1000 && found == summary.lost_frames, "{found}: {summary:?}");
    // A slow guest may lose others because it has no block.
    if let ([gap], [(at, 1000)]) = (&summary.gaps[..], &missing[..]) {
        assert!((gap.at..=gap.to).contains(at), "{at} is not in {gap:?}");
    }
}
