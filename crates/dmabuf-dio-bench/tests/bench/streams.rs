// SPDX-License-Identifier: MIT OR Apache-2.0
//! `stream` and `rates`, with the simulated device.

use std::fs;
use std::path::PathBuf;

use super::{has_figures, result, rows, text, values};

/// The simulated device's file in sysfs.
fn attribute(name: &str) -> Option<PathBuf> {
    let devices = fs::read_dir("/sys/bus/iio/devices").ok()?.flatten().map(|entry| entry.path());
    let is_adc = |folder: &PathBuf| {
        fs::read_to_string(folder.join("name")).is_ok_and(|name| name.trim() == "stream-adc")
    };
    let found = devices.into_iter().find(is_adc);
    if found.is_none() {
        println!("skipped: no simulated IIO device");
    }
    Some(found?.join(name))
}

/// The option for libiio's `iio_rwdev`, if the environment names it.
fn peer() -> Option<String> {
    let path = std::env::var("DMABUF_DIO_IIO_RWDEV").ok();
    if path.is_none() {
        println!("without libiio: DMABUF_DIO_IIO_RWDEV does not name iio_rwdev 1.0 or later");
    }
    Some(format!("--peer-iio-rwdev '{}'", path?))
}

#[test]
fn streams_are_compared() {
    if attribute("name").is_none() {
        return;
    }
    // Starting a program has to take less than the samples.
    let (total, count, peer) = match peer() {
        Some(peer) => ("256M", 26, peer),
        None => ("8M", 20, String::new()),
    };
    let streams = result(&format!("stream --blocks 16K,1M --total {total} --runs 1 {peer}"));
    assert_eq!(rows(&streams).len(), count);
    for row in rows(&streams) {
        // Without a USB function its rows say so.
        let measured = row["to"] != "usb";
        assert_eq!(has_figures(row, &["per_mib"], 1, measured), measured, "{row}");
    }
}

#[test]
fn lost_frames_are_counted() {
    let Some(inject) = attribute("inject_loss") else { return };
    let (count, peer) = peer().map_or_else(|| (4, String::new()), |peer| (8, peer));
    let rates = |more: &str| result(&format!("rates --rates 200k --seconds 1 --runs 1 {more}"));
    let all = rates(&peer);
    assert_eq!((rows(&all).len(), &all["frame"]), (count, &8.into()));
    for row in rows(&all) {
        let number = |name: &str| values(row, name).expect("a figure")[0];
        let made = number("frames") + number("lost");
        assert!(number("frames") > 0.0 && made > 100_000.0 && made < 400_000.0, "{row}");
        assert!(number("lost") <= number("device_lost") && number("made_per_s") > 0.0, "{row}");
    }
    // What the device loses is missing in the file.
    for way in ["idle, dmabuf-dio", "idle, read()"] {
        fs::write(&inject, "1234").expect("a simulated device");
        let rates = rates(&format!("--only '{way}'"));
        assert!(values(&rows(&rates)[0], "lost").expect("a figure")[0] >= 1234.0, "{rates}");
    }
    let rates = rates("--peer-iio-rwdev /no/such/program --only rwdev --only 'read()'");
    for row in rows(&rates).iter().filter(|row| row["way"] != "read()") {
        assert!(text(&row["unavailable"]).contains("cannot be run"), "{row}");
    }
}
