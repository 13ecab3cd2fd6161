// SPDX-License-Identifier: MIT OR Apache-2.0
//! A disk on which some sectors fail: the device mapper over `DMABUF_DIO_RAW_DISK`, whose content
//! is disposable. Without it, or without `dmsetup`, these tests are skipped.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dmabuf_dio::gather::{Gatherer, Gathering, Piece, PieceError};
use dmabuf_dio::{Backend, Buffer};

use crate::common::{bytes, content, fill, page};
use crate::model::{each, piece};

const PATH: &str = "/dev/mapper/dio-gather";
const LEN: u64 = 4 << 20;

struct Disk {
    raw: String,
    _lock: MutexGuard<'static, ()>,
}

impl Disk {
    /// A disk of [`LEN`] bytes with known content.
    fn get() -> Option<Self> {
        static LOCK: Mutex<()> = Mutex::new(());
        let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let raw = std::env::var("DMABUF_DIO_RAW_DISK").ok();
        let available = run("modprobe -q dm_mod; dmsetup version >/dev/null 2>&1");
        let Some(raw) = raw.filter(|_| available) else {
            println!("skipped: DMABUF_DIO_RAW_DISK is not set, or there is no dmsetup");
            return None;
        };
        run("dmsetup --noudevsync remove dio-gather 2>/dev/null");
        let disk = Self { raw, _lock: lock };
        std::fs::write(&disk.raw, content(LEN as usize, 4)).expect("fill the disk");
        disk.table("create", &[]);
        assert!(run("dmsetup mknodes dio-gather >/dev/null") && Path::new(PATH).exists());
        Some(disk)
    }

    /// Makes exactly these ranges fail. They are in order.
    fn fail(&self, ranges: &[(u64, u64)]) {
        self.table("reload", ranges);
        assert!(run("dmsetup --noudevsync --nolockfs resume dio-gather"));
    }

    fn table(&self, command: &str, ranges: &[(u64, u64)]) {
        let (mut table, mut at) = (String::new(), 0);
        let mut line = |start: u64, end: u64, target: String| {
            if end > start {
                table += &format!("{} {} {target}\n", start / 512, (end - start) / 512);
            }
        };
        for (start, len) in ranges.iter().copied().chain([(LEN, 0)]) {
            line(at, start, format!("linear {} {}", self.raw, at / 512));
            at = start + len;
            line(start, at, "error".into());
        }
        assert!(run(&format!("dmsetup --noudevsync {command} dio-gather <<'END'\n{table}END\n")));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let remove = || run("dmsetup --noudevsync remove dio-gather 2>/dev/null");
        for _ in 0..50 {
            if remove() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        eprintln!("the mapped device cannot be removed");
    }
}

fn run(command: &str) -> bool {
    Command::new("sh").args(["-c", command]).status().expect("a shell").success()
}

/// Reads pieces of a disk with bad ranges with every backend: exactly those that touch one fail
/// with `EIO`. The disk is changed once for all backends, which takes longer than the reads.
fn only_those(pieces: &[Piece], bad: &[(u64, u64)], align: u64) {
    let Some(disk) = Disk::get() else { return };
    let content = content(LEN as usize, 4);
    let spare = 7 << 20..8 << 20;
    let mut open = Vec::new();
    each(8 << 20, |buf, backend| {
        let gatherer = Gatherer::new(PATH).backend(backend).spare(spare.clone());
        let gathering = gatherer.open(buf).expect("open");
        // The node is on a tmpfs, the disk is not.
        let direct = gathering.alignment() != (1, 1);
        assert_eq!(direct, backend != Backend::Buffered, "{backend}");
        // Otherwise whole pages go through the page cache.
        if gathering.alignment().0 <= align {
            open.push((gathering, buf.try_clone().expect("a descriptor of our own")));
        }
    });
    disk.fail(bad);
    for (gathering, buf) in &mut open {
        fill(buf, 0);
        fails_there(gathering, buf, pieces, &content, bad);
    }
    disk.fail(&[]);
    for (gathering, _) in &mut open {
        let whole = gathering.read(pieces).expect("read").is_whole();
        assert!(whole, "{}: healed", gathering.backend());
    }
}

/// Checks which pieces fail, and that the others have the disk's content.
fn fails_there(
    gathering: &mut Gathering,
    buf: &Buffer,
    pieces: &[Piece],
    content: &[u8],
    bad: &[(u64, u64)],
) {
    let (backend, block) = (gathering.backend(), gathering.alignment().0);
    let gathered = gathering.read(pieces).expect("read");
    let all = bytes(buf);
    for (number, (one, result)) in pieces.iter().zip(gathered.pieces()).enumerate() {
        let start = one.offset / block * block;
        let end = (one.offset + one.len).next_multiple_of(block);
        let touches = |start, end| bad.iter().any(|(at, len)| start < at + len && *at < end);
        let is_bad = touches(start, end);
        // The page cache and the module may read more than the blocks: whole pages.
        let page = page() as u64;
        let around = touches(start / page * page, end.next_multiple_of(page));
        let by_pages = matches!(backend, Backend::Buffered | Backend::Module);
        let may_fail = is_bad || by_pages && around;
        let what = format!("{backend}: {number}, {one:?}: {result:?}");
        match result {
            Ok(found) => {
                assert!(!is_bad, "{what}");
                let from = one.offset as usize..(one.offset + one.len) as usize;
                let to = found.start as usize..(found.start + found.len) as usize;
                assert!(all[to] == content[from], "{what}");
            }
            Err(PieceError::Failed { offset, errno }) => {
                assert!(may_fail, "{what}");
                assert_eq!(errno.name(), Some("EIO"), "{what}");
                assert!((start..end).contains(&offset), "{what}");
            }
            Err(other) => panic!("{what}: {other}"),
        }
    }
    let failed = gathered.errors().len() as u64;
    assert_eq!(gathered.report().failed, failed);
    println!("{backend}: {failed} failed, {} requests", gathered.report().requests);
}

#[test]
fn neighbours_of_a_bad_piece_succeed() {
    // All in one request, and the others at random.
    let pieces: Vec<_> = (0..40).map(|at| piece(at * 4096, at * 4096, 4096)).collect();
    only_those(&pieces, &[(40_960, 4096), (81_920, 8192)], 4096);
    let apart: Vec<_> = (0..300).map(|at| piece(at * 37 % 300 * 8192, at * 8192, 8192)).collect();
    only_those(&apart, &[(0, 4096), (1 << 20, 65_536)], 4096);
}

#[test]
fn long_piece_fails_as_a_whole() {
    let pieces = [piece(0, 0, 1 << 20), piece(1 << 20, 1 << 20, 1 << 20), piece(0, 2 << 20, 4096)];
    only_those(&pieces, &[(700 << 10, 4096)], 4096);
}

#[test]
fn shared_bad_block_fails_its_pieces() {
    // Rows of 100 bytes that share blocks, and a long one that covers them.
    let rows: Vec<_> = (0..200).map(|at| piece(at * 100 + 3, at * 128, 100)).collect();
    let long = piece(1, 1 << 20, (1 << 19) + 5);
    let pieces: Vec<_> = rows.into_iter().chain([long]).collect();
    only_those(&pieces, &[(8192, 4096)], 4096);
    only_those(&pieces, &[(8192, 4096), (1 << 19, 512)], 4096);
}

#[test]
fn repeats_of_a_bad_piece_fail() {
    let (good, bad) = (piece(4096, 0, 4096), piece(8192, 4096, 4096));
    let aside = piece(8200, 8192, 10);
    only_those(&[bad, good, aside, bad, bad, good, aside], &[(8192, 4096)], 4096);
}

#[test]
fn failed_disk_fails_every_piece() {
    let pieces: Vec<_> = (0..200)
        .map(|at| piece(at * 8192 % (1 << 20), at * 4096, 4096))
        .chain((0..50).map(|at| piece(at * 3000 + 1, (1 << 20) + at * 4096, 3000)))
        .collect();
    only_those(&pieces, &[(0, LEN)], 4096);
}
