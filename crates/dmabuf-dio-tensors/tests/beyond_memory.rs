// SPDX-License-Identifier: MIT OR Apache-2.0
//! A model that is larger than the memory, read within a bound of it: every byte.
//!
//! `DMABUF_DIO_MODEL_MIB` is its size, 96 MiB by default. In a guest the process is in a control group
//! that has the window and 64 MiB (docs/notes/testing.md).

mod common;

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::folder;
use dmabuf_dio::Options;
use dmabuf_dio_tensors::{Model, Reader};

const MIB: u64 = 1 << 20;
const WINDOW: u64 = 64 * MIB;

/// The word at byte `at` of the tensors: no two pages are the same.
fn word(at: u64) -> u64 {
    (at / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Writes a safetensors file with tensors of 8 bytes to 40 MiB. Returns their lengths.
fn write(path: &Path, total: u64) -> Vec<u64> {
    let mut lens = Vec::new();
    for len in [8, 40 * MIB, 24, 4096, 3 * MIB + 8, MIB, 17 * MIB + 16].into_iter().cycle() {
        let left = total - lens.iter().sum::<u64>();
        if left == 0 {
            break;
        }
        lens.push(len.min(left));
    }
    let mut at = 0;
    let entries = lens.iter().enumerate().map(|(number, len)| {
        at += len;
        let (start, shape) = (at - len, len / 8);
        format!(
            r#""t{number:05}":{{"dtype":"U64","shape":[{shape}],"data_offsets":[{start},{at}]}}"#
        )
    });
    let header = format!("{{{}}}", entries.collect::<Vec<_>>().join(","));
    let mut file = BufWriter::with_capacity(4 << 20, File::create(path).expect("a file"));
    file.write_all(&(header.len() as u64).to_le_bytes()).expect("written");
    file.write_all(header.as_bytes()).expect("written");
    for at in (0..total).step_by(8) {
        file.write_all(&word(at).to_le_bytes()).expect("written");
    }
    let file = file.into_inner().expect("written");
    file.sync_all().expect("on the disk");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("dropped");
    lens
}

/// Confines this process to so much memory, if it is root of a machine with control groups.
fn confine(bytes: u64) -> bool {
    const GROUPS: &str = "/sys/fs/cgroup";
    if std::env::var_os("DMABUF_DIO_KERNEL").is_none() {
        return false;
    }
    if !Path::new(GROUPS).join("cgroup.procs").exists() {
        let mounted =
            std::process::Command::new("mount").args(["-t", "cgroup2", "cgroup2", GROUPS]).status();
        assert!(mounted.expect("mount").success(), "no control groups");
    }
    let group = Path::new(GROUPS).join("beyond-memory");
    let write = |path: &Path, text: &str| {
        fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    };
    write(&Path::new(GROUPS).join("cgroup.subtree_control"), "+memory");
    fs::create_dir_all(&group).expect("a group");
    write(&group.join("memory.max"), &bytes.to_string());
    // Swapped out it would not count.
    let _ = fs::write(group.join("memory.swap.max"), "0");
    write(&group.join("cgroup.procs"), &std::process::id().to_string());
    true
}

#[test]
fn model_beyond_the_memory_is_read_within_the_window() {
    let size = std::env::var("DMABUF_DIO_MODEL_MIB").map(|text| text.parse().expect("MiB"));
    let total = size.unwrap_or(96) * MIB;
    let folder = folder();
    let path = folder.path().join("large.safetensors");
    let lens = write(&path, total);
    let confined = confine(WINDOW + 64 * MIB);
    let model = Arc::new(Model::open(&path).expect("a model"));
    let reader = Reader::with(model, Some(WINDOW), &Options::default());
    let mut at = 0;
    for (item, len) in reader.iter().zip(&lens) {
        let (tensor, memory) = item.expect("read");
        let memory = memory.expect("bytes");
        assert_eq!((tensor.len(), memory.len()), (*len, *len));
        if at == 0 {
            // Reads ahead go on until the window is full, and no further, however long they may.
            while reader.report().read < WINDOW - 42 * MIB {
                thread::yield_now();
            }
            thread::sleep(Duration::from_secs(1));
            let read = reader.report().read;
            assert!(read <= WINDOW + 8 * MIB, "{read} bytes ahead of the first tensor");
        }
        for found in memory.bytes().expect("private memory").chunks_exact(8) {
            assert!(found == word(at).to_le_bytes(), "{} at {at}", tensor.name);
            at += 8;
        }
    }
    let report = reader.report();
    assert_eq!((at, report.requested, report.dropped), (total, total, 0));
    eprintln!("{} MiB, confined: {confined}, {report:?}", total / MIB);
}
