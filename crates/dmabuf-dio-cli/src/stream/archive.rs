// SPDX-License-Identifier: MIT OR Apache-2.0
//! SigMF archives: a tar file of a recording and its description.
//!
//! A capture writes its samples to their final place in the archive. They begin at byte 65,536,
//! where `O_DIRECT` can write them; the description is before them, padded with spaces. If it does
//! not fit there at the end, because of many gaps, it is also the last entry, which readers prefer.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde_json::Value;
use tar::{EntryType, Header};

use super::sigmf::{DATA, META};

const EXTENSION: &str = "sigmf";
/// Where the samples of our archives begin, in bytes.
pub(crate) const START: u64 = 64 << 10;
/// A block of a tar file.
const BLOCK: u64 = 512;
/// Room for the description before the samples.
const ROOM: u64 = START - 2 * BLOCK;
/// No description is longer.
const LONGEST: u64 = 256 << 20;
/// The length of the samples while it is not known: a reader takes all that are present.
const UNKNOWN: u64 = 1 << 60;

/// Whether a file is an archive.
pub(crate) fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == EXTENSION)
}

/// An archive that is being written.
#[derive(Debug)]
pub(crate) struct Archive<'a> {
    path: &'a Path,
    name: String,
}

impl<'a> Archive<'a> {
    /// Checks the name.
    pub(crate) fn new(path: &'a Path) -> io::Result<Self> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let archive = Self { path, name };
        archive.header(META, 0)?;
        Ok(archive)
    }

    pub(crate) fn path(&self) -> &Path {
        self.path
    }

    /// Writes what is before the samples into the file that the sink has made.
    pub(crate) fn begin(&self, description: &str) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(self.path)?;
        self.write_front(&file, description, UNKNOWN)
    }

    /// Writes the description and the end, behind `bytes` bytes of samples.
    pub(crate) fn finish(&self, description: &str, bytes: u64) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(self.path)?;
        if description.len() as u64 <= ROOM {
            self.write_front(&file, description, bytes)?;
        } else {
            file.write_all_at(self.header(DATA, bytes)?.as_bytes(), START - BLOCK)?;
        }
        file.seek(SeekFrom::Start(START + bytes))?;
        file.write_all(&vec![0; padding(bytes)])?;
        if description.len() as u64 > ROOM {
            file.write_all(self.header(META, description.len() as u64)?.as_bytes())?;
            file.write_all(description.as_bytes())?;
            file.write_all(&vec![0; padding(description.len() as u64)])?;
        }
        file.write_all(&[0; 2 * BLOCK as usize])?;
        let end = file.stream_position()?;
        file.set_len(end)?;
        file.sync_all()
    }

    fn write_front(&self, file: &File, description: &str, bytes: u64) -> io::Result<()> {
        let mut front = self.header(META, ROOM)?.as_bytes().to_vec();
        front.extend_from_slice(description.as_bytes());
        front.resize((START - BLOCK) as usize, b' ');
        front.extend_from_slice(self.header(DATA, bytes)?.as_bytes());
        file.write_all_at(&front, 0)
    }

    fn header(&self, extension: &str, bytes: u64) -> io::Result<Header> {
        let mut header = Header::new_ustar();
        header.set_path(format!("{0}/{0}.{extension}", self.name))?;
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_size(bytes);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        header.set_mtime(now.map_or(0, |time| time.as_secs()));
        header.set_cksum();
        Ok(header)
    }
}

fn padding(bytes: u64) -> usize {
    (bytes.next_multiple_of(BLOCK) - bytes) as usize
}

/// The recording in an archive.
#[derive(Debug)]
pub(crate) struct Found {
    /// Where its samples begin, and how many bytes they have.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    /// Whether the archive ends before its samples do, as a killed capture leaves it.
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

    fn written(path: &Path, description: &str, samples: &[u8]) {
        let archive = Archive::new(path).expect("a name");
        let mut bytes = vec![0; START as usize];
        bytes.extend_from_slice(samples);
        fs::write(path, bytes).expect("written");
        archive.begin("{\"first\": 1}").expect("begun");
        archive.finish(description, samples.len() as u64).expect("finished");
    }

    #[test]
    fn what_is_written_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("some name.sigmf");
        for (long, samples) in [(0, 0), (10, 1), (100, 512), (70_000, 5000), (200_000, 1024)] {
            let description = serde_json::json!({ "long": "x".repeat(long) });
            let samples: Vec<u8> = (0..samples).map(|number: u32| number as u8).collect();
            written(&path, &description.to_string(), &samples);
            let found = find(&path).expect("an archive");
            assert_eq!((found.start, found.bytes, found.cut), (START, samples.len() as u64, false));
            assert!(found.description == description);
            let listed = std::process::Command::new("tar").arg("-tvf").arg(&path).output();
            let listed = listed.expect("tar");
            let names = String::from_utf8_lossy(&listed.stdout).into_owned();
            assert!(listed.status.success() && names.contains("some name/some name.sigmf-data"));
            let out = std::process::Command::new("tar")
                .args(["-xOf"])
                .arg(&path)
                .arg("some name/some name.sigmf-data")
                .output();
            assert!(out.expect("tar").stdout == samples);
        }
    }

    /// What a killed capture leaves.
    #[test]
    fn a_cut_archive_has_what_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cut.sigmf");
        let archive = Archive::new(&path).expect("a name");
        fs::write(&path, vec![7; START as usize + 1000]).expect("written");
        archive.begin("{\"first\": 1}").expect("begun");
        let found = find(&path).expect("an archive");
        assert_eq!((found.start, found.bytes, found.cut), (START, 1000, true));
        assert_eq!(found.description["first"], 1);
        for bad in [&b""[..], b"nothing", &[0; 2048], &[7; 2048]] {
            fs::write(&path, bad).expect("written");
            assert!(find(&path).is_err());
        }
        assert!(Archive::new(&folder.path().join(format!("{}.sigmf", "x".repeat(300)))).is_err());
    }
}
