// SPDX-License-Identifier: MIT OR Apache-2.0
//! Killed at any point, `keep` leaves the old file or the new one, whole, and no memory.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::common::{folder, program};
use super::inside::{own_tmpfs, used};
use super::trace::{End, run};

/// Kills of each kind.
const KILLS: u64 = 160;

fn keep(kept: &Path, source: &Path) -> Command {
    let mut command = program();
    command.args(["keep", "--quiet", "--dir"]).arg(kept).arg(format!("m={}", source.display()));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Points that are spread over all of them, the same in every run, and each of the last ones, where files get their names.
fn points(stops: u64) -> impl Iterator<Item = u64> {
    const LAST: u64 = 100;
    const SPREAD: u64 = KILLS - LAST;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let spread = (0..SPREAD).map(move |number| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let (start, end) = (number * stops / SPREAD, (number + 1) * stops / SPREAD);
        1 + start + state % (end - start).max(1)
    });
    spread.chain(stops - LAST..stops)
}

fn content(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 4096) as u8 ^ at as u8 ^ seed).collect()
}

/// The entries that are visible.
fn visible(kept: &Path) -> Vec<String> {
    let list = fs::read_dir(kept).expect("a list");
    let names = list.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| !name.starts_with('.')).collect()
}

#[test]
fn killed_first_keep_leaves_nothing_or_all() {
    let Some(kept) = own_tmpfs("kills::killed_first_keep_leaves_nothing_or_all") else { return };
    let disk = folder();
    let (source, bytes) = (disk.path().join("source"), content((3 << 20) + 777, 1));
    fs::write(&source, &bytes).expect("a source");
    let whole = run(&mut keep(&kept, &source), 0);
    let End::Exited { success: true, stops } = whole else { panic!("{whole:?}") };
    let (full, path) = (used(&kept), kept.join("m"));
    fs::remove_file(&path).expect("removed");
    let empty = used(&kept);
    assert!(full - empty >= bytes.len() as u64, "{empty} of {full} bytes are the folder's");
    let mut complete = 0;
    for point in points(stops) {
        assert_eq!(run(&mut keep(&kept, &source), point), End::Killed, "{point} of {stops}");
        match &visible(&kept)[..] {
            // Before anything is cleaned up; the locks, records and their folders are small.
            [] => assert!(used(&kept) <= empty + (64 << 10), "{point}: memory is left"),
            [_] => {
                complete += 1;
                assert!(fs::read(&path).expect("read") == bytes, "{point}: a partial file");
                fs::remove_file(&path).expect("removed");
            }
            more => panic!("{more:?}"),
        }
    }
    println!("{KILLS} kills at {stops} points, {complete} after the file was complete");
    assert!(complete < KILLS, "none was killed before");
    let again = run(&mut keep(&kept, &source), 0);
    assert!(matches!(again, End::Exited { success: true, .. }), "{again:?}");
    assert!(fs::read(&path).expect("read") == bytes, "bytes differ");
}

#[test]
fn killed_replacement_leaves_the_old_or_the_new() {
    let Some(kept) = own_tmpfs("kills::killed_replacement_leaves_the_old_or_the_new") else {
        return;
    };
    let disk = folder();
    let (source, path) = (disk.path().join("source"), kept.join("m"));
    let versions = [content(2 << 20, 1), content((3 << 20) + 5, 2)];
    fs::write(&source, &versions[0]).expect("a source");
    run(&mut keep(&kept, &source), 0);
    fs::write(&source, &versions[1]).expect("a source");
    let whole = run(&mut keep(&kept, &source), 0);
    let End::Exited { success: true, stops } = whole else { panic!("{whole:?}") };
    let full = used(&kept);
    let mut replaced = 0;
    for point in points(stops) {
        fs::write(&source, &versions[0]).expect("a source");
        run(&mut keep(&kept, &source), 0);
        fs::write(&source, &versions[1]).expect("a source");
        assert_eq!(run(&mut keep(&kept, &source), point), End::Killed, "{point} of {stops}");
        let there = fs::read(&path).expect("always there");
        assert!(versions.contains(&there), "{point}: a partial file");
        replaced += u32::from(there == versions[1]);
        // A complete file that was about to replace the other may be left, until the next keep.
        let next = run(&mut keep(&kept, &source), 0);
        assert!(matches!(next, End::Exited { success: true, .. }), "{next:?}");
        assert!(fs::read(&path).expect("read") == versions[1], "{point}: the old file");
        assert!(used(&kept) <= full + (64 << 10), "{point}: memory is left");
    }
    println!("{KILLS} kills at {stops} points, {replaced} after the file was replaced");
}
