// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbered files of a recording.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use dmabuf_dio_terminal::exit::{FAILED, Failure, USAGE};

use super::files::lock;
use super::sigmf::names::{path_of, refuse_other};

/// Digits of a file's number.
const DIGITS: usize = 6;

/// The name of a file: `capture-000003.sigmf-data` for `capture.sigmf-data`.
pub(crate) fn name(first: &Path, number: u64) -> PathBuf {
    let mut name = OsString::from(first.file_stem().unwrap_or_default());
    name.push(format!("-{number:0DIGITS$}"));
    if let Some(extension) = first.extension() {
        name.push(".");
        name.push(extension);
    }
    first.with_file_name(name)
}

/// Fails if there are files of an earlier recording of this name, or removes them with `force`:
/// files that the new recording does not replace would look like a part of it.
pub(crate) fn refuse_to_replace(first: &Path, force: bool) -> Result<(), Failure> {
    let earlier = earlier(first).map_err(|error| {
        let what = format!("{}: cannot look for earlier files: {error}", first.display());
        Failure::new(FAILED, what, "check that the folder can be read")
    })?;
    // All of it before the first is removed.
    for (number, path) in &earlier {
        if !force {
            let what = format!("{} already exists", path.display());
            let hint = "choose another name, or replace all of its files: --force";
            return Err(Failure::new(USAGE, what, hint));
        }
        if path.is_dir() {
            let what = format!("{} is a folder, and is not replaced", path.display());
            return Err(Failure::new(USAGE, what, "choose another name, or remove it"));
        }
        let data = name(first, *number);
        refuse_other(&data)?;
        if *path == data && path.is_file() {
            // Another capture may be writing it.
            lock(path)?;
        }
    }
    for (_, path) in &earlier {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let what = format!("{}: cannot remove it: {error}", path.display());
                return Err(Failure::new(FAILED, what, "check the folder"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The files and descriptions of an earlier recording of this name, with their numbers, in order.
/// Some may be missing between them.
fn earlier(first: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let folder = first.parent().filter(|folder| *folder != Path::new(""));
    let entries = match std::fs::read_dir(folder.unwrap_or(Path::new("."))) {
        Ok(entries) => entries,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let mut all = Vec::new();
    for entry in entries {
        let path = first.with_file_name(entry?.file_name());
        if let Some(number) = number_of(first, &path) {
            all.push((number, path));
        }
    }
    all.sort();
    Ok(all)
}

/// The number of a file of the recording `first`, or of the file that a description of it describes.
pub(crate) fn number_of(first: &Path, path: &Path) -> Option<u64> {
    let stem = first.file_stem()?.as_bytes();
    let rest = path.file_name()?.as_bytes().strip_prefix(stem)?.strip_prefix(b"-")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    let data = name(first, number);
    (path == data || path == path_of(&data)).then_some(number)
}

/// Whether a path names a file that a recording of this name may have.
pub(super) fn is_piece(first: &Path, path: &Path) -> bool {
    number_of(first, path).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotated_files_have_numbered_names() {
        let of = |first: &str, number| name(Path::new(first), number).display().to_string();
        assert_eq!(of("a/capture.sigmf-data", 3), "a/capture-000003.sigmf-data");
        assert_eq!(of("capture", 1_234_567), "capture-1234567");
        assert_eq!(of("x.y.bin", 0), "x.y-000000.bin");
    }

    /// All existing files and descriptions of the recording are removed, and no others.
    #[test]
    fn earlier_files_after_a_gap_are_found() {
        for first in ["c.bin", "c.sigmf-data", "c"] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = |name: &str| folder.path().join(name);
            let first = path(first);
            let others = [
                "c-00001.bin",
                "c-0000012.bin",
                "c-000001.txt",
                "c-000001x",
                "cc-000001.bin",
                "c.bin",
            ];
            for other in others {
                std::fs::write(path(other), "x").expect("written");
            }
            let mut mine: Vec<_> = [1, 7, 1_234_567].map(|number| name(&first, number)).into();
            mine.extend([path_of(&mine[0]), path("c-000009.sigmf-meta")]);
            for path in &mine {
                std::fs::write(path, "x").expect("written");
                let said = refuse_to_replace(&first, false).expect_err("it exists");
                assert!(said.what().contains("already exists"), "{}", said.what());
                refuse_to_replace(&first, true).expect("removed");
                assert!(!path.exists() && refuse_to_replace(&first, false).is_ok());
            }
            for path in &mine {
                std::fs::write(path, "x").expect("written");
            }
            refuse_to_replace(&first, true).expect("removed");
            assert!(mine.iter().all(|path| !path.exists()), "{}", first.display());
            assert!(others.iter().all(|other| path(other).exists()), "{}", first.display());
            assert!(is_piece(&first, &mine[2]) && !is_piece(&first, &path("c-000001.txt")));
        }
    }

    /// Either all earlier files are removed, or none.
    #[test]
    fn nothing_is_removed_if_one_file_must_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = folder.path().join("c.bin");
        for number in 0..2 {
            std::fs::write(name(&first, number), "x").expect("written");
        }
        std::fs::create_dir(name(&first, 2)).expect("a folder");
        assert!(refuse_to_replace(&first, true).is_err());
        std::fs::remove_dir(name(&first, 2)).expect("removed");
        let writer = lock(&name(&first, 1)).expect("locked");
        assert!(refuse_to_replace(&first, true).is_err(), "it is being written");
        assert!(name(&first, 0).exists() && name(&first, 1).exists());
        drop(writer);
        refuse_to_replace(&first, true).expect("removed");
        assert!(!name(&first, 0).exists() && !name(&first, 1).exists());
    }

    #[test]
    fn earlier_recording_is_not_replaced_without_force() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = folder.path().join("c.bin");
        assert!(refuse_to_replace(&first, false).is_ok());
        for number in 0..3 {
            std::fs::write(name(&first, number), "x").expect("written");
        }
        std::fs::write(folder.path().join("c-000001.sigmf-meta"), "x").expect("written");
        std::fs::write(folder.path().join("c-00000x.bin"), "x").expect("written");
        assert!(refuse_to_replace(&first, false).is_err());
        assert!(name(&first, 2).exists());
        refuse_to_replace(&first, true).expect("removed");
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 1);
    }
}
