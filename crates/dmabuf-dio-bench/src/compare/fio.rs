// SPDX-License-Identifier: MIT OR Apache-2.0
//! The disk's maximum: fio reads the same files into allocated memory and ignores the content.

use std::process::Command;

use dmabuf_dio_terminal::size::show_size;

use super::contract::{LoaderReport, Source};
use crate::buffer::mapping::{Pages, huge_page, page_size};
use crate::fio::{self, FioJob, filename, no_result};
use crate::measure::outcome::Trouble;
use crate::ways::held::PagesGot;

/// fio reports whole milliseconds, so short runs read the file repeatedly.
const LEAST: u64 = 1 << 30;
/// Maximum duration of such a run, in seconds.
const MOST: u32 = 2;

/// How fio reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SequentialFio {
    block: u64,
    depth: u64,
    pages: Pages,
}

const ALL: [SequentialFio; 5] = [
    SequentialFio { block: 4 << 20, depth: 4, pages: Pages::Huge },
    SequentialFio { block: 4 << 20, depth: 8, pages: Pages::Huge },
    SequentialFio { block: 8 << 20, depth: 8, pages: Pages::Huge },
    SequentialFio { block: 1 << 20, depth: 32, pages: Pages::Huge },
    SequentialFio { block: 4 << 20, depth: 8, pages: Pages::Small },
];

impl SequentialFio {
    /// The variants for a file of `len` bytes: none if it is small.
    pub(crate) fn for_file(len: u64) -> impl Iterator<Item = Self> {
        ALL.into_iter().filter(move |fio| fio.block <= len)
    }

    /// Whether it is a candidate for the disk's maximum.
    pub(crate) fn is_ceiling(self) -> bool {
        self.pages == Pages::Huge
    }

    pub(crate) fn name(self) -> String {
        let pages = match self.pages {
            Pages::Huge => "",
            Pages::Small => ", 4 KiB",
        };
        format!("fio {} x {}{pages}", show_size(self.block), self.depth)
    }

    pub(crate) fn memory(self) -> u64 {
        self.block * self.depth
    }

    /// Reads all files at once. The result is scaled to reading each once.
    pub(crate) fn run(self, sources: &[Source<'_>]) -> Result<Vec<LoaderReport>, Trouble> {
        let jobs = fio::run(self.command(sources))?;
        let jobs = jobs.iter().zip(sources);
        jobs.map(|(job, source)| {
            let result = told(job, source.len, self.pages);
            result.ok_or_else(|| no_result(&"nothing was read"))
        })
        .collect()
    }

    fn command(self, sources: &[Source<'_>]) -> Command {
        let mut command = Command::new("fio");
        command.args(["--output-format=json", "--thread", "--readonly", "--rw=read"]);
        command.args(["--ioengine=io_uring", "--direct=1", "--allow_file_create=0"]);
        command.arg(format!("--bs={}", self.block));
        command.arg(format!("--iodepth={}", self.depth));
        match self.pages {
            Pages::Huge => {
                command.args(["--mem=mmaphuge", &format!("--hugepage-size={}", huge_page())]);
            }
            Pages::Small => {
                command.arg("--mem=mmap");
            }
        }
        for (number, source) in sources.iter().enumerate() {
            command.arg(format!("--name=file{number}"));
            command.arg(filename(source.path));
            let size = LEAST.next_multiple_of(source.len);
            command.arg(format!("--io_size={size}"));
            if size > source.len {
                command.arg(format!("--runtime={MOST}"));
            }
        }
        command
    }
}

fn told(job: &FioJob, len: u64, pages: Pages) -> Option<LoaderReport> {
    if job.read.io_bytes == 0 || job.read.runtime == 0 {
        return None;
    }
    let seconds = job.read.runtime as f64 / 1e3 * len as f64 / job.read.io_bytes as f64;
    Some(LoaderReport {
        seconds,
        user_seconds: seconds * job.usr_cpu / 100.0,
        sys_seconds: seconds * job.sys_cpu / 100.0,
        release_seconds: None,
        bytes: len,
        verified: None,
        version: None,
        note: None,
        pages: Some(match pages {
            Pages::Huge => PagesGot { page_size: huge_page(), huge_bytes: len },
            Pages::Small => PagesGot { page_size: page_size(), huge_bytes: 0 },
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_have_no_ceiling() {
        assert_eq!(SequentialFio::for_file(512 << 10).count(), 0);
        assert_eq!(SequentialFio::for_file(8 << 20).count(), ALL.len());
        assert!(ALL.iter().any(|fio| fio.is_ceiling()) && !ALL.iter().all(|fio| fio.is_ceiling()));
    }

    #[test]
    fn fio_figures_are_scaled_to_one_read_of_the_file() {
        let text = r#"{"read": {"io_bytes": 4000000, "runtime": 2000, "bw": 7},
            "usr_cpu": 5.0, "sys_cpu": 10.0}"#;
        let job: FioJob = serde_json::from_str(text).expect("fio's JSON");
        let told = told(&job, 1_000_000, Pages::Huge).expect("a result");
        assert!((told.seconds - 0.5).abs() < 1e-9 && told.bytes == 1_000_000, "{told:?}");
        assert!((told.user_seconds - 0.025).abs() < 1e-9, "{told:?}");
        assert!((told.sys_seconds - 0.05).abs() < 1e-9, "{told:?}");
    }
}
