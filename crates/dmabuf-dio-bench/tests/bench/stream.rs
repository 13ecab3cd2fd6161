// SPDX-License-Identifier: MIT OR Apache-2.0
//! `stream`, with the simulated device.

use super::{folder, json, list, ok, peer};

#[test]
fn streams_are_compared() {
    let devices = std::fs::read_dir("/sys/bus/iio/devices");
    if devices.map_or(true, |mut devices| devices.next().is_none()) {
        println!("skipped: no simulated IIO device");
        return;
    }
    let folder = folder();
    let peer = peer();
    let peer: Vec<&str> = peer.iter().flat_map(|path| ["--peer-iio-rwdev", path]).collect();
    // Starting a program has to take less than the samples.
    let total = if peer.is_empty() { "8M" } else { "256M" };
    let small = ["stream", "--blocks", "16K,1M", "--total", total, "--runs", "1"];
    let streams = json(&folder, &[&small[..], &peer].concat());
    assert_eq!((&streams["bench"], &streams["device"]), (&"stream".into(), &"stream-adc".into()));
    let rows = list(&streams["rows"]);
    assert_eq!(rows.len(), if peer.is_empty() { 14 } else { 20 });
    for row in rows {
        // Without a USB function its rows say so.
        let measured = row["to"] != "usb";
        let status = if measured { "verified" } else { "unavailable" };
        assert_eq!(row["status"], status, "{row}");
        assert_eq!(row["per_mib"]["median"].as_f64().is_some_and(|cost| cost > 0.0), measured);
    }
    let page = ok(
        &folder,
        &[
            "stream",
            "--blocks",
            "64K",
            "--total",
            "1M",
            "--runs",
            "1",
            "--only",
            "dma-buf into a file",
        ],
    );
    assert!(page.contains("64 KiB dma-buf"), "{page}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0, "left behind");
}
