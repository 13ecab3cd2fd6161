// SPDX-License-Identifier: MIT OR Apache-2.0
//! SigMF archives, as other programs write them: a tar file of a recording and its description.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde_json::Value;

use super::sigmf::{DATA, META};

const EXTENSION: &str = "sigmf";
/// No description is longer.
const LONGEST: u64 = 256 << 20;
/// Whether a file is an archive.
pub(crate) fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == EXTENSION)
}

/// The recording in an archive.
#[derive(Debug)]
pub(crate) struct Found {
    /// Where its samples begin, and how many bytes they have.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    /// Whether the archive ends before its samples do, as a broken copy does.
    pub(crate) cut: bool,
    pub(crate) description: Value,
}

/// Reads the names in an archive and its description.
pub(crate) fn find(path: &Path) -> io::Result<Found> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut archive = tar::Archive::new(file);
    let (mut description, mut data) = (None, None);
    for entry in archive.entries_with_seek()? {
        // A cut archive ends anywhere behind the header of its samples.
        let mut entry = match entry {
            Ok(entry) => entry,
            Err(_) if data.is_some() => break,
            Err(error) => return Err(error),
        };
        let name = entry.path()?.into_owned();
        let is = |extension: &str| name.extension().is_some_and(|found| found == extension);
        if is(META) && entry.size() <= LONGEST {
            let mut text = Vec::new();
            if entry.read_to_end(&mut text).is_ok() {
                description = serde_json::from_slice(&text).ok().or(description);
            }
        } else if is(DATA) && data.is_none() {
            data = Some((entry.raw_file_position(), entry.size()));
            if length.saturating_sub(entry.raw_file_position()) < entry.size() {
                break;
            }
        }
    }
    let missing = |what| io::Error::new(io::ErrorKind::InvalidData, format!("it has no {what}"));
    let (start, size) = data.ok_or_else(|| missing("samples, NAME.sigmf-data"))?;
    let description = description.ok_or_else(|| missing("description, NAME.sigmf-meta"))?;
    let bytes = size.min(length.saturating_sub(start));
    Ok(Found { start, bytes, cut: bytes < size, description })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    /// An archive that tar makes, and how many bytes are before its samples.
    fn made(folder: &Path, description: &str, samples: &[u8]) -> std::path::PathBuf {
        let inner = folder.join("x");
        fs::create_dir_all(&inner).expect("a folder");
        fs::write(inner.join("x.sigmf-meta"), description).expect("written");
        fs::write(inner.join("x.sigmf-data"), samples).expect("written");
        let path = folder.join("x.sigmf");
        let mut tar = Command::new("tar");
        tar.arg("cf").arg(&path).arg("-C").arg(folder).args(["x/x.sigmf-meta", "x/x.sigmf-data"]);
        assert!(tar.status().expect("tar").success());
        path
    }

    #[test]
    fn samples_in_a_tar_archive_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        for (long, samples) in [(0, 0), (10, 1), (100, 512), (70_000, 5000), (200_000, 1024)] {
            let description = serde_json::json!({ "long": "x".repeat(long) });
            let samples: Vec<u8> = (0..samples).map(|number: u32| number as u8).collect();
            let path = made(folder.path(), &description.to_string(), &samples);
            let found = find(&path).expect("an archive");
            assert_eq!((found.bytes, found.cut), (samples.len() as u64, false));
            assert!(found.description == description);
            let all = fs::read(&path).expect("read");
            assert!(all[found.start as usize..][..samples.len()] == samples);
        }
    }

    #[test]
    fn truncated_archive_gives_the_samples_present() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = made(folder.path(), "{\"first\": 1}", &[7; 5000]);
        let start = find(&path).expect("an archive").start;
        let all = fs::read(&path).expect("read");
        fs::write(&path, &all[..start as usize + 1000]).expect("cut");
        let found = find(&path).expect("an archive");
        assert_eq!((found.start, found.bytes, found.cut), (start, 1000, true));
        assert_eq!(found.description["first"], 1);
        for bad in [&b""[..], b"nothing", &[0; 2048], &[7; 2048]] {
            fs::write(&path, bad).expect("written");
            assert!(find(&path).is_err());
        }
    }
}
