// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures of samples that a trigger causes: their times, their rate, and their delay until they
//! are in the file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use crate::common::eventually;
use crate::common::iio::{
    Setup, end_of, number, read_json, report, signal_now, start, sysfs, until_it_is_enabled,
};

const DEVICES: &str = "/sys/bus/iio/devices";
/// Two values of 16 bits.
const FRAME: u64 = 4;

/// A trigger that fires when it is told to.
struct Button(PathBuf);

impl Button {
    fn make() -> Option<Self> {
        let root = Path::new(DEVICES);
        let _ = Command::new("modprobe").arg("iio-trig-sysfs").status();
        if sysfs("stream-sensor").is_none() || !root.join("iio_sysfs_trigger").exists() {
            let required = std::env::var("DMABUF_DIO_REQUIRE").unwrap_or_default();
            assert!(!required.contains("trigger"), "there have to be a sensor and triggers");
            println!("skipped: no simulated sensor, or no trigger for it");
            return None;
        }
        fs::write(root.join("iio_sysfs_trigger/add_trigger"), "7").expect("a trigger");
        sysfs("sysfstrig7").map(Self)
    }

    fn push(&self) {
        fs::write(self.0.join("trigger_now"), "1").expect("fired");
        // The device takes its sample in a thread.
        thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Button {
    fn drop(&mut self) {
        let _ = fs::write(Path::new(DEVICES).join("iio_sysfs_trigger/remove_trigger"), "7");
    }
}

const BUTTON: &str = "capture stream-sensor --trigger sysfstrig7";

/// A description has the time of the first sample.
#[test]
fn described_time_is_that_of_the_first_sample() {
    let Some(setup) = Setup::get() else { return };
    let Some(button) = Button::make() else { return };
    let data = setup.path("samples.bin");
    let mut child = start(format!("{BUTTON} --samples 8 --json --to {data}"));
    until_it_is_enabled("stream-sensor");
    thread::sleep(Duration::from_millis(50));
    let before = SystemTime::now();
    // A device is told to be enabled a moment before it is: some may be in vain.
    eventually("it does not end", || {
        button.push();
        child.try_wait().expect("a child").is_some()
    });
    let (code, summary) = end_of(child);
    let after = SystemTime::now();
    assert_eq!((code, &summary["frames"]), (0, &8.into()), "{summary}");
    let meta = read_json(setup.path("samples.sigmf-meta"));
    let text = meta["captures"][0]["core:datetime"].as_str().expect("a time");
    let [before, after] =
        [before, after].map(|time| humantime::format_rfc3339_micros(time).to_string());
    assert!(*before <= *text && *text <= *after, "{before} <= {text} <= {after}");
}

/// However slow a trigger is, a frame is in the file soon after it came.
#[test]
fn each_frame_of_a_slow_trigger_is_delivered() {
    let Some(setup) = Setup::get() else { return };
    let Some(button) = Button::make() else { return };
    let data = setup.path("samples.bin");
    let mut child = start(format!("{BUTTON} --to {data}"));
    until_it_is_enabled("stream-sensor");
    let length = || fs::metadata(&data).map_or(0, |facts| facts.len());
    // A device is told to be enabled a moment before it is.
    eventually("the first frame is not delivered", || {
        button.push();
        length() > 0
    });
    thread::sleep(Duration::from_millis(500));
    for _ in 0..3 {
        let before = length();
        button.push();
        eventually("the frame is not delivered", || length() == before + FRAME);
    }
    signal_now(&child, "-KILL");
    child.wait().expect("its end");
    let bytes = fs::read(&data).expect("the samples");
    for (number, frame) in (0_u16..).zip(bytes.chunks_exact(FRAME as usize)) {
        assert_eq!(frame[..2], number.to_le_bytes(), "frame {number}");
    }
    fs::write(sysfs("stream-sensor").expect("a device").join("buffer0/enable"), "0").expect("off");
    let _ = fs::write(sysfs("stream-sensor").expect("one").join("trigger/current_trigger"), "\n");
}

/// The timer sets the rate, not the device's own 13 Hz.
#[test]
fn timer_trigger_sets_the_rate() {
    let Some(setup) = Setup::get() else { return };
    let folder = Path::new("/sys/kernel/config/iio/triggers/hrtimer/rate-timer");
    let _ = Command::new("modprobe").arg("iio-trig-hrtimer").status();
    if sysfs("stream-sensor").is_none() || fs::create_dir(folder).is_err() {
        return println!("skipped: no simulated sensor, or no timer");
    }
    let data = setup.path("samples.bin");
    let words = format!("capture stream-sensor --trigger rate-timer --to {data} --force");
    let (code, summary) =
        report(format!("{words} --set rate-timer/sampling_frequency=500 --seconds 2"));
    assert_eq!((code, &summary["rate"]), (0, &500.0.into()), "{summary}");
    assert_eq!((&summary["asked_frames"], &summary["frames"]), (&1000.into(), &1000.into()));
    // An eighth of a second, and a FIFO of seconds in the kernel.
    assert!(summary["ring"]["block_bytes"].as_u64() <= Some(500 * FRAME / 8), "{summary}");
    assert!(number("stream-sensor", "buffer0/length") >= 2000, "the FIFO is short");
    let bytes = fs::read(&data).expect("the samples");
    for (number, frame) in (0_u16..).zip(bytes.chunks_exact(FRAME as usize)) {
        assert_eq!(frame[..2], number.to_le_bytes(), "frame {number}");
    }
    // --rate sets the rate of the trigger that drives the device.
    let rate = "--rate 200 --samples 100 --restore";
    let (code, summary) = report(format!("{words} {rate}"));
    assert_eq!((code, &summary["rate"]), (0, &200.0.into()), "{summary}");
    let value = fs::read_to_string(sysfs("rate-timer").expect("it").join("sampling_frequency"));
    assert!(value.expect("a rate").starts_with("500"), "put back");
    fs::remove_dir(folder).expect("removed");
}
