// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a source fits, before it is loaded.

use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::{Error, Result};
use crate::folder::Folder;
use crate::source::File;

/// Descriptors for the load itself.
const SPARE: u64 = 64;

/// What is free; `None` where nothing limits it, or nobody knows.
#[derive(Clone, Copy, Debug)]
struct Room {
    bytes: Option<u64>,
    files: Option<u64>,
    memory: Option<u64>,
}

/// Fails if files do not fit.
pub(crate) fn check(folder: &Folder, files: &[File]) -> Result<()> {
    let (bytes, free) = folder.free();
    let swap = rustix::system::sysinfo();
    let swap = (swap.freeswap as u64).saturating_mul(swap.mem_unit.into());
    let memory = dmabuf_dio::probe::available_memory().map(|free| free.saturating_add(swap));
    let page = rustix::param::page_size() as u64;
    let rounded = |file: &File| file.identity.length().checked_next_multiple_of(page);
    let wanted =
        files.iter().fold(0_u64, |sum, file| sum.saturating_add(rounded(file).unwrap_or(u64::MAX)));
    // And the record. Folders are not counted.
    fits(folder.path(), wanted, files.len() as u64 + 1, Room { bytes, files: free, memory })
}

fn fits(folder: &Path, wanted: u64, files: u64, room: Room) -> Result<()> {
    let folder = folder.to_owned();
    if let Some(free) = room.bytes.filter(|free| *free < wanted) {
        return Err(Error::NoRoom { folder, wanted, free });
    }
    if let Some(free) = room.files.filter(|free| *free < files) {
        let what = format!("the tmpfs has room for {free} files, and {files} are to be kept");
        let remedy = "remove what is kept there, or raise the number: mount -o remount,nr_inodes=";
        return Err(Error::Folder { folder, what, remedy });
    }
    if let Some(free) = room.memory.filter(|free| *free < wanted) {
        let what = format!("{free} bytes of memory are free, and {wanted} are to be kept");
        return Err(Error::Folder { folder, what, remedy: "free memory, or keep less" });
    }
    Ok(())
}

/// Makes sure that so many files can be open at a time: raises this process's own limit up to what the system lets
/// it have.
pub(crate) fn descriptors(files: usize) -> Result<()> {
    let used = std::fs::read_dir("/proc/self/fd").map_or(SPARE, |list| list.count() as u64);
    let Some(current) = dmabuf_dio::probe::most_open_files() else { return Ok(()) };
    // The call is not blocked, which rustix does not expect.
    let maximum = getrlimit(Resource::Nofile).maximum;
    let Some(current) = raised(files as u64, used, current, maximum)? else { return Ok(()) };
    // If it cannot be raised, the load says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum });
    Ok(())
}

/// The limit to set, if the present one is too low.
fn raised(files: u64, used: u64, current: u64, maximum: Option<u64>) -> Result<Option<u64>> {
    let wanted = files.saturating_add(used).saturating_add(SPARE);
    if current >= wanted {
        return Ok(None);
    }
    match maximum.filter(|maximum| *maximum < wanted) {
        None => Ok(Some(wanted)),
        Some(maximum) => Err(Error::Source {
            path: "its files".into(),
            what: format!("{wanted} must be open at a time, and this process may have {maximum}"),
            remedy: "raise the limit: ulimit -Hn, or LimitNOFILE= of a service",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_files_and_memory_count() {
        let fits = |bytes, files, memory| {
            fits(Path::new("/t"), 8192, 3, Room { bytes, files, memory }).is_ok()
        };
        assert!(fits(None, None, None) && fits(Some(8192), Some(3), Some(8192)));
        assert!(!fits(Some(8191), None, None));
        assert!(!fits(None, Some(2), None));
        assert!(!fits(None, None, Some(8191)));
    }

    #[test]
    fn limit_of_open_files_is_raised_as_far_as_it_goes() {
        let raised = |files, maximum| raised(files, 10, 1024, maximum);
        assert_eq!(raised(100, Some(4096)).expect("enough"), None);
        assert_eq!(raised(2000, Some(4096)).expect("raised"), Some(2074));
        assert_eq!(raised(2000, None).expect("raised"), Some(2074));
        raised(5000, Some(4096)).expect_err("refused");
    }
}
