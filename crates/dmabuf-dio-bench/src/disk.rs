// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files on disk.

use std::cell::OnceCell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dmabuf_dio::{Errno, probe};
use dmabuf_dio_terminal::progress::Bar;
use dmabuf_dio_terminal::size::show_size;
use rustix::fs::{Advice, OFlags, fadvise};
use rustix::io::Errno as Os;
use tempfile::{Builder, TempDir, TempPath};

use crate::outcome::{Result, Trouble, failed, refused};
use crate::pattern::{Pattern, compare};

/// The beginning of the names of what is made and removed again.
const TEMPORARY: &str = ".dmabuf-dio-bench-";
const PIECE: u64 = 1 << 20;

/// Through the page cache, or direct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IoMode {
    Buffer,
    Direct,
}

/// A file, or a block device, opened in each mode when it is needed.
#[derive(Debug)]
pub(crate) struct DiskFile {
    /// Its name, if it has one.
    pub(crate) path: Option<PathBuf>,
    /// The name is removed with this.
    temporary: Option<TempPath>,
    opened: [OnceCell<Result<File, Errno>>; 2],
    pub(crate) len: u64,
    /// What was written; `None` if others wrote it.
    pub(crate) content: Option<Pattern>,
    pub(crate) file_system: Option<String>,
}

impl DiskFile {
    /// A file of others, of `len` bytes.
    pub(crate) fn existing(path: &Path, len: u64) -> Self {
        let (path, opened) = (Some(path.to_owned()), [const { OnceCell::new() }; 2]);
        Self { path, temporary: None, opened, len, content: None, file_system: None }
    }

    /// Creates a file in `dir` and writes its content to the disk. Other programs can open it by its name, which
    /// ends in `ending`, until this is dropped. Without one it disappears even if the program is killed.
    pub(crate) fn create(
        dir: &Path,
        ending: Option<&str>,
        len: u64,
        content: Pattern,
    ) -> Result<Self> {
        has_room(dir, len)?;
        let cannot = format!("making a file in {} (--dir names another folder)", dir.display());
        let made = Builder::new().prefix(TEMPORARY).suffix(ending.unwrap_or("")).tempfile_in(dir);
        let (file, temporary) = made.map_err(failed(&cannot))?.into_parts();
        // A block is there while the file's abilities are tried.
        file.write_all_at(&[0; 4096], 0).map_err(failed(&cannot))?;
        let mut disk = Self::existing(&temporary, len);
        disk.file_system = probe::file(&temporary)?.file_system;
        disk.opened[IoMode::Buffer as usize] = OnceCell::from(Ok(file));
        // As long as it has a name.
        let _ = disk.open(IoMode::Direct);
        disk.temporary = ending.is_some().then_some(temporary);
        disk.path = disk.temporary.as_ref().map(|path| path.to_path_buf());
        disk.write(&content)?;
        disk.content = Some(content);
        Ok(disk)
    }

    fn write(&self, content: &Pattern) -> Result<()> {
        let file = self.open(IoMode::Buffer)?;
        let bar = Bar::new("writing the file");
        let mut bytes = vec![0; PIECE as usize];
        for at in (0..self.len).step_by(PIECE as usize) {
            Trouble::interrupted()?;
            let piece = &mut bytes[..PIECE.min(self.len - at) as usize];
            content.fill(piece, at);
            file.write_all_at(piece, at).map_err(failed("writing the file"))?;
            bar.update(at + piece.len() as u64, self.len);
        }
        bar.finish();
        file.sync_all().map_err(failed("writing the file"))
    }

    /// The descriptor for a mode, if the file system offers it.
    pub(crate) fn open(&self, mode: IoMode) -> Result<&File> {
        let flags = if mode == IoMode::Direct { OFlags::DIRECT } else { OFlags::empty() };
        let open = || {
            let path = self.path.as_ref().ok_or(Errno::NOENT)?;
            let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
            file.map_err(|error| Errno::from(&error))
        };
        let opened = self.opened[mode as usize].get_or_init(open).as_ref();
        let lacking = "this file system does not support O_DIRECT; choose another: --dir DIR";
        let refusals: &[Os] = if mode == IoMode::Direct { &[Os::INVAL] } else { &[] };
        opened.map_err(|errno| refused("open", &[(refusals, lacking)])(*errno))
    }

    /// Compares what was read from position `at` with what was written, or, of a file of others, with what the
    /// page cache has. Position and length are multiples of eight.
    pub(crate) fn check(&self, bytes: &[u8], at: u64) -> Result<()> {
        if let Some(content) = &self.content {
            return content.check(bytes, at);
        }
        let mut expected = vec![0; bytes.len()];
        let file = self.open(IoMode::Buffer)?;
        file.read_exact_at(&mut expected, at).map_err(failed("reading"))?;
        compare(bytes, &expected, at)
    }

    /// Removes the file, which has been written back, from the page cache.
    pub(crate) fn forget(&self) {
        if let Ok(file) = self.open(IoMode::Buffer) {
            let _ = fadvise(file, 0, None, Advice::DontNeed);
        }
    }

    /// The name in `/dev` of the disk that contains it, not of a partition.
    pub(crate) fn device(&self) -> Option<String> {
        let device = rustix::fs::fstat(self.open(IoMode::Buffer).ok()?).ok()?.st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let link = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        let is_partition = link.join("partition").exists();
        let disk = if is_partition { link.parent()? } else { &link };
        Some(disk.file_name()?.to_str()?.to_owned())
    }
}

/// A folder in `dir`, which is removed with all that is in it when this is dropped.
pub(crate) fn temporary_folder(dir: &Path) -> Result<TempDir> {
    Builder::new().prefix(TEMPORARY).tempdir_in(dir).map_err(failed("making a folder"))
}

/// Fails if fewer bytes are free in a folder.
pub(crate) fn has_room(dir: &Path, wanted: u64) -> Result<()> {
    let space = rustix::fs::statvfs(dir).map_err(failed("statvfs"))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if free >= wanted {
        return Ok(());
    }
    let (wanted, free) = (show_size(wanted), show_size(free));
    let what =
        format!("{wanted} do not fit on the disk, {free} are free; choose another: --dir DIR");
    Err(Trouble::broken(what))
}

/// Removes the file from the page cache, and all else from the kernel's caches unless they are kept or only root may.
pub(crate) fn drop_caches(file: &DiskFile, keep: bool) {
    file.forget();
    if !keep {
        // What is not on the disk yet would stay.
        rustix::fs::sync();
        let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_files_leave_no_name_and_have_to_fit() {
        let folder = tempfile::tempdir().expect("a folder");
        let count = || std::fs::read_dir(folder.path()).expect("list").count();
        let create = |dir: &Path, ending, len| DiskFile::create(dir, ending, len, Pattern::new(1));
        let _file = create(folder.path(), None, 3 << 20).expect("a file");
        assert_eq!(count(), 0);
        let named = create(folder.path(), Some(".name"), 4096).expect("a file");
        let path = named.path.as_ref().expect("a name");
        let bytes = std::fs::read(path).expect("it is there");
        assert_eq!((bytes.len(), named.check(&bytes, 0)), (4096, Ok(())));
        let other = DiskFile::existing(path, 4096);
        assert_eq!(other.check(&bytes, 0), Ok(()));
        assert!(other.check(&[0; 16], 0).is_err() && named.check(&[0; 16], 0).is_err());
        drop(named);
        assert!(create(folder.path(), None, 1 << 60).is_err());
        assert!(create(&folder.path().join("missing"), None, 4096).is_err());
        assert_eq!(count(), 0);
    }
}
