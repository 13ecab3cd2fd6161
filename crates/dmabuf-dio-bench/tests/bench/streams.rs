// SPDX-License-Identifier: MIT OR Apache-2.0
//! `stream` and `rates`, with the simulated device.

use std::fs;
use std::path::PathBuf;

use super::{folder, has_figure, result, rows, text, values};

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
fn peer() -> Vec<String> {
    let path = std::env::var("DMABUF_DIO_IIO_RWDEV").ok();
    if path.is_none() {
        println!("without libiio: DMABUF_DIO_IIO_RWDEV does not name iio_rwdev 1.0 or later");
    }
    path.into_iter().flat_map(|path| ["--peer-iio-rwdev".to_owned(), path]).collect()
}

#[test]
fn streams_are_compared() {
    if attribute("name").is_none() {
        return;
    }
    let peer = peer();
    let peer: Vec<&str> = peer.iter().map(String::as_str).collect();
    // Starting a program has to take less than the samples.
    let total = if peer.is_empty() { "8M" } else { "256M" };
    let small = ["stream", "--blocks", "16K,1M", "--total", total, "--runs", "1"];
    let streams = result(&folder(), &[&small[..], &peer].concat());
    assert_eq!(rows(&streams).len(), if peer.is_empty() { 20 } else { 26 });
    for row in rows(&streams) {
        // Without a USB function its rows say so.
        let measured = row["to"] != "usb";
        assert_eq!(has_figure(row, "per_mib", 1, measured), measured, "{row}");
    }
}

#[test]
fn lost_frames_are_counted() {
    let Some(inject) = attribute("inject_loss") else { return };
    let (folder, peer) = (folder(), peer());
    let peer: Vec<&str> = peer.iter().map(String::as_str).collect();
    let one = ["rates", "--rates", "200k", "--seconds", "1", "--runs", "1"];
    let rates = result(&folder, &[&one[..], &peer].concat());
    assert_eq!(
        (rows(&rates).len(), &rates["frame"]),
        (if peer.is_empty() { 4 } else { 8 }, &8.into())
    );
    for row in rows(&rates) {
        let number = |name: &str| values(row, name).expect("a figure")[0];
        let made = number("frames") + number("lost");
        assert!(number("frames") > 0.0 && made > 100_000.0 && made < 400_000.0, "{row}");
        assert!(number("lost") <= number("device_lost") && number("made_per_s") > 0.0, "{row}");
    }
    // What the device loses is missing in the file.
    for way in ["idle, dmabuf-dio", "idle, read()"] {
        fs::write(&inject, "1234").expect("a simulated device");
        let rates = result(&folder, &[&one[..], &["--only", way]].concat());
        assert!(values(&rows(&rates)[0], "lost").expect("a figure")[0] >= 1234.0, "{rates}");
    }
    let missing = ["--peer-iio-rwdev", "/no/such/program", "--only", "rwdev"];
    let rates = result(&folder, &[&one[..], &missing, &["--only", "read()"]].concat());
    for row in rows(&rates).iter().filter(|row| row["way"] != "read()") {
        assert!(text(&row["unavailable"]).contains("cannot be run"), "{row}");
    }
}
