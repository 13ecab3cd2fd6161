// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulated devices, and helpers of the tests.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dmabuf_dio_stream::{BlockRing, Device, IioSink, IioSource, Sink, Source, Stream, Summary};

/// Reserves the devices for one test at a time.
pub(crate) struct Devices {
    pub(crate) adc: Device,
    pub(crate) dac: Device,
    _lock: MutexGuard<'static, ()>,
}

impl Devices {
    /// Both unthrottled; `None` without simulated devices.
    pub(crate) fn get() -> Option<Self> {
        static LOCK: Mutex<()> = Mutex::new(());
        let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let (adc, dac) = (Device::find("stream-adc"), Device::find("stream-dac"));
        let (Some(adc), Some(dac)) = (adc, dac) else {
            skip("iio", "no simulated IIO device");
            return None;
        };
        for device in [&adc, &dac] {
            device.write("sampling_frequency", "0").expect("rate");
            device.write("sparse", "0").expect("sparse");
        }
        Some(Self { adc, dac, _lock: lock })
    }

    pub(crate) fn source(&self) -> IioSource {
        source(&self.adc)
    }

    pub(crate) fn sink(&self) -> IioSink {
        sink(&self.dac)
    }
}

/// Streams `limit` bytes through some blocks.
#[track_caller]
pub(crate) fn run(
    mut source: impl Source,
    sink: &mut dyn Sink,
    (count, size): (usize, u64),
    limit: u64,
) -> Summary {
    let ring = BlockRing::new(count, size).expect("blocks");
    Stream::new(&mut source, sink, ring).limit(limit).run().expect("run")
}

/// Reports that a test is skipped, if that is allowed (`DMABUF_DIO_REQUIRE`).
pub(crate) fn skip(device: &str, why: &str) {
    let required = std::env::var("DMABUF_DIO_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == device), "{why}, and there has to be one");
    println!("skipped: {why}");
}

/// Hides the module while it lives, as on a kernel without it.
pub(crate) struct NoModule;

impl NoModule {
    const NODE: &str = "/dev/dmabuf_dio";
    const HIDDEN: &str = "/dev/dmabuf_dio.hidden";

    pub(crate) fn hide() -> Self {
        std::fs::rename(Self::NODE, Self::HIDDEN).expect("the module's node");
        Self
    }
}

impl Drop for NoModule {
    fn drop(&mut self) {
        std::fs::rename(Self::HIDDEN, Self::NODE).expect("the module's node");
    }
}

pub(crate) fn source(device: &Device) -> IioSource {
    let channels = device.channels(0).expect("channels");
    IioSource::open(device.clone(), 0, &channels).expect("an ADC")
}

pub(crate) fn sink(device: &Device) -> IioSink {
    let channels = device.channels(0).expect("channels");
    IioSink::open(device.clone(), 0, &channels).expect("a DAC")
}

/// Waits until samples flow, and then for so long.
pub(crate) fn once_running(device: &Device, time: Duration) {
    let begin = Instant::now();
    while device.read("buffer0/enable").expect("a buffer") != "1" {
        // It ends a hang; nothing depends on it.
        assert!(begin.elapsed() < Duration::from_secs(600), "no samples flow");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(time);
}

pub(crate) fn number(device: &Device, attribute: &str) -> u64 {
    device.read(attribute).expect(attribute).parse().expect("a number")
}
