// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rates`, with the simulated device.

use std::fs;

use serde_json::Value;

use super::{folder, is_summary, json, list, ok, peer, text};

/// The simulated device's file in sysfs.
fn attribute(name: &str) -> Option<std::path::PathBuf> {
    let devices = fs::read_dir("/sys/bus/iio/devices").ok()?.flatten().map(|entry| entry.path());
    let is_adc = |folder: &std::path::PathBuf| {
        fs::read_to_string(folder.join("name")).is_ok_and(|name| name.trim() == "stream-adc")
    };
    Some(devices.into_iter().find(is_adc)?.join(name))
}

#[test]
fn lost_frames_are_counted() {
    let Some(inject) = attribute("inject_loss") else {
        println!("skipped: no simulated IIO device");
        return;
    };
    let folder = folder();
    let peer = peer();
    let peer: Vec<&str> = peer.iter().flat_map(|path| ["--peer-iio-rwdev", path]).collect();
    let one = ["rates", "--rates", "200k", "--seconds", "1"];
    let rates = json(&folder, &[&one[..], &peer].concat());
    assert_eq!((&rates["bench"], &rates["frame"]), (&"rates".into(), &8.into()));
    let rows = list(&rates["rows"]);
    assert_eq!(rows.len(), if peer.is_empty() { 4 } else { 8 });
    for row in rows {
        assert_eq!(row["status"], "verified", "{row}");
        for name in ["frames", "lost", "gaps", "device_lost", "made_per_s"] {
            is_summary(&row[name], 1);
        }
        let number = |name: &str| row[name]["median"].as_f64().expect("a number");
        let made = number("frames") + number("lost");
        assert!(number("frames") > 0.0 && made > 100_000.0 && made < 400_000.0, "{row}");
        assert!(number("lost") <= number("device_lost"), "{row}");
    }

    // What the device loses is missing in the file.
    for way in ["dmabuf-dio", "read()"] {
        fs::write(&inject, "1234").expect("a simulated device");
        let only = format!("idle, {way}");
        let rates = json(&folder, &[&one[..], &["--only", &only]].concat());
        let row = &list(&rates["rows"])[0];
        let (lost, gaps) = (&row["lost"]["median"], &row["gaps"]["median"]);
        assert!(lost.as_f64() >= Some(1234.0) && gaps.as_f64() >= Some(1.0), "{row}");
    }
    let page = ok(&folder, &[&one[..], &["--only", "busy, read()"]].concat());
    assert!(page.contains("A busy thread for each CPU") && !page.contains("Idle"), "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0, "left behind");
}

#[test]
fn missing_program_is_reported() {
    if attribute("inject_loss").is_none() {
        println!("skipped: no simulated IIO device");
        return;
    }
    let folder = folder();
    let missing = ["--command", "/no/such/program", "--peer-iio-rwdev", "/no/such/program"];
    let rates =
        json(&folder, &[&["rates", "--rates", "100k", "--seconds", "1"], &missing[..]].concat());
    let told = |row: &&Value| {
        row["way"] != "read()"
            && row["status"] == "unavailable"
            && text(&row["reason"]).contains("cannot be run")
    };
    assert_eq!(list(&rates["rows"]).iter().filter(told).count(), 6, "{rates}");
}
