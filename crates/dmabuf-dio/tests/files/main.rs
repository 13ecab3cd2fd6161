// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files on one file system, or a block device: every operation moves the right bytes, and reports
//! about direct I/O agree with the kernel's counters.
//!
//! `tests/files/run` starts this in a guest, once for each file system. Prints a row for the table
//! of docs/reach.md.
//!
//! - `FILES_AT`: a folder, or a block device. Without it nothing is tested.
//! - `FILES_NAME`: the name in the table
//! - `FILES_READ_ONLY`: if set, the folder has a file `data` already, written by `FILES_PREPARE`
//! - `FILES_PREPARE`: a file to be written with the content that is expected; nothing is tested
//! - `FILES_LENGTH`: of the file, in bytes
//! - `FILES_SCOPE`: `machine` (the default), `cache` where disks move fewer bytes, `file` where only
//!   the pages of the file tell
//! - `FILES_BELOW`: a file that the file system or the device is in

#[path = "../common/mod.rs"]
mod common;

mod evidence;
mod operations;

use std::env::var;
use std::path::PathBuf;

use common::content;
use evidence::Scope;
use operations::{OPERATIONS, Place};

/// Some whole blocks of any size, and a part of one.
const LENGTH: usize = (4 << 20) + 1234;
const SEED: u64 = 17;
/// How often each byte is there.
const REPEATED: usize = 16;

#[test]
fn every_operation_moves_bytes_and_reports_truly() {
    let length = var("FILES_LENGTH").map_or(LENGTH, |text| text.parse().expect("a length"));
    // No two pages are equal, and all can be compressed.
    let few = content(length.div_ceil(REPEATED), SEED);
    let mut wanted: Vec<u8> = few.iter().flat_map(|byte| [*byte; REPEATED]).collect();
    wanted.truncate(length);
    if let Ok(path) = var("FILES_PREPARE") {
        return common::write_cold(&PathBuf::from(path), &wanted);
    }
    let Ok(at) = var("FILES_AT") else {
        return println!("skipped: for tests/files/run");
    };
    // Pages of this program shall not come into the page cache while files are read.
    std::fs::read("/proc/self/exe").expect("this program");
    let at = PathBuf::from(at);
    let scope = var("FILES_SCOPE").unwrap_or_else(|_| "machine".into());
    let is_device = !at.is_dir();
    let place = Place {
        source: if is_device { at.clone() } else { at.join("data") },
        target: if is_device { at } else { at.join("copy") },
        is_device,
        writable: var("FILES_READ_ONLY").is_err(),
        below: var("FILES_BELOW").ok().map(PathBuf::from),
        scope: Scope { machine: scope != "file", disk: scope == "machine" },
        content: wanted,
    };
    if place.writable {
        common::write_cold(&place.source, &place.content);
    }
    let mut failures = Vec::new();
    let cells: Vec<String> = OPERATIONS
        .iter()
        .map(|(name, run)| {
            let cell = run(&place);
            println!("{name}: {cell:?}");
            cell.unwrap_or_else(|failure| {
                failures.push(format!("{name}: {failure}"));
                "FAILED".into()
            })
        })
        .collect();
    println!("files: {} | {}", var("FILES_NAME").expect("a name"), cells.join(" | "));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
