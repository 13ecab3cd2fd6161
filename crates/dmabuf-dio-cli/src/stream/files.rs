// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that a stream must not replace, and the room for those that it writes.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use dmabuf_dio_terminal::exit::{FAILED, Failure, USAGE};
use dmabuf_dio_terminal::size::show_size;
use rustix::fs::FlockOperation;

use crate::args::destination::DestinationArgs;

/// Space beyond the end of a file that is worth reporting, in bytes.
const LEFT: u64 = 4 << 20;

/// Fails if the path exists, unless `force` is set.
pub(crate) fn refuse_to_replace(path: &Path, force: bool) -> Result<(), Failure> {
    if force || !path.exists() {
        return Ok(());
    }
    let what = format!("{} already exists", path.display());
    let hint = "choose another name, or replace it: --force";
    Err(Failure::new(USAGE, what, format!("{hint}{}", left_allocated(path).unwrap_or_default())))
}

impl DestinationArgs {
    /// Fails if one of these options was given although TO is not a file that they apply to. `example`
    /// is a file name for the hint.
    pub(super) fn need_file(&self, options: &[(&str, bool)], example: &str) -> Result<(), Failure> {
        let Some((option, _)) = options.iter().find(|(_, given)| *given) else { return Ok(()) };
        let what = format!("{option} needs a file, not {}", self.to);
        Err(Failure::new(USAGE, what, format!("leave it out, or write --to {example}")))
    }
}

/// Describes how to release the space beyond the end of a file, if much is allocated there. A killed
/// capture leaves it.
fn left_allocated(path: &Path) -> Option<String> {
    let facts = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let (length, beyond) = (facts.len(), (facts.blocks() * 512).checked_sub(facts.len())?);
    (beyond > LEFT).then(|| {
        format!(
            ". {} are allocated beyond its end, as a killed capture leaves them; this releases \
             them: truncate -s {length} {}",
            show_size(beyond),
            path.display()
        )
    })
}

/// Keeps a file of samples from other captures, and from being completed by a replay, until the result
/// is dropped or the process is killed. `None` if the file system cannot do that.
pub(super) fn lock(path: &Path) -> Result<Option<File>, Failure> {
    // It keeps its content until the sink opens it.
    let file = File::options().write(true).create(true).truncate(false).open(path);
    let Ok(file) = file else { return Ok(None) };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let what = format!("{} is being written by another capture", path.display());
            Err(Failure::new(FAILED, what, "choose another name, or stop the other capture"))
        }
        Err(_) => Ok(None),
    }
}

/// Fails if there is no room for `bytes` bytes. The space of a file that is replaced counts as free.
pub(super) fn room_for(path: &Path, bytes: u64) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let Ok(facts) = rustix::fs::statvfs(folder.unwrap_or(Path::new("."))) else { return Ok(()) };
    let replaced = std::fs::metadata(path).map_or(0, |facts| facts.blocks() * 512);
    let free = facts.f_bavail.saturating_mul(facts.f_frsize).saturating_add(replaced);
    // Some file systems do not say.
    if facts.f_blocks == 0 || bytes <= free {
        return Ok(());
    }
    let what = format!("{}: cannot make room for {bytes} bytes: {free} are free", path.display());
    Err(Failure::new(FAILED, what, "free space on the file system, or request less"))
}
