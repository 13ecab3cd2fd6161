// SPDX-License-Identifier: MIT OR Apache-2.0
//! SigMF archives, as other programs write them: a tar file of a recording and its description.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::names::{self, DATA, META};

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
    /// The file of its samples.
    pub(crate) name: PathBuf,
    /// Offset of its samples; then their length, in bytes.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    /// Whether the archive ends before its samples do, as a broken copy does.
    pub(crate) cut: bool,
    pub(crate) description: Value,
}

/// The parts of a recording that an archive has.
#[derive(Default)]
struct Parts {
    /// Offset of the samples, and their length.
    data: Option<(u64, u64)>,
    description: Option<Result<Value, String>>,
}

/// Reads the names in an archive and the description of its recording.
pub(crate) fn find(path: &Path) -> io::Result<Found> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut all = recordings(file, length)?;
    let names: Vec<_> = all.keys().map(|name| name.display().to_string()).collect();
    if names.len() > 1 {
        return Err(invalid(format!("it has several recordings: {}", names.join(", "))));
    }
    let missing = |what: &str| invalid(format!("it has no {what}"));
    let (name, parts) = all.pop_first().ok_or_else(|| missing("samples, NAME.sigmf-data"))?;
    let of = |extension| name.with_extension(extension);
    let (start, size) =
        parts.data.ok_or_else(|| missing(&format!("samples, {}", of(DATA).display())))?;
    let meta = of(META);
    let description =
        parts.description.ok_or_else(|| missing(&format!("description, {}", meta.display())))?;
    let description = description.map_err(|why| invalid(format!("{}: {why}", meta.display())))?;
    let bytes = size.min(length.saturating_sub(start));
    Ok(Found { name: of(DATA), start, bytes, cut: bytes < size, description })
}

/// The recordings in an archive of `length` bytes, by their names without an extension.
fn recordings(file: File, length: u64) -> io::Result<BTreeMap<PathBuf, Parts>> {
    let mut archive = tar::Archive::new(file);
    let mut all: BTreeMap<PathBuf, Parts> = BTreeMap::new();
    for entry in archive.entries_with_seek()? {
        // A cut archive ends anywhere behind the header of its samples.
        let mut entry = match entry {
            Ok(entry) => entry,
            Err(_) if all.values().any(|parts| parts.data.is_some()) => break,
            Err(error) => return Err(error),
        };
        let name: PathBuf =
            entry.path()?.components().filter(|part| *part != Component::CurDir).collect();
        let is = |extension: &str| name.extension().is_some_and(|found| found == extension);
        // Attributes of files, as macOS packs them, have the names of the files.
        let is_other = name.file_name().is_none_or(|name| name.as_bytes().starts_with(b"._"));
        if is_other || !is(META) && !is(DATA) {
            continue;
        }
        let kind = entry.header().entry_type();
        if kind.is_gnu_sparse() {
            let what =
                format!("it has {} without its holes: pack it without --sparse", name.display());
            return Err(invalid(what));
        }
        if !kind.is_file() && !kind.is_contiguous() {
            continue;
        }
        // If a file was packed twice, tar unpacks the last one.
        let parts = all.entry(name.with_extension("")).or_default();
        if is(META) {
            parts.description = Some(description(&mut entry));
            continue;
        }
        let (start, size) = (entry.raw_file_position(), entry.size());
        parts.data = Some((start, size));
        if length.saturating_sub(start) < size {
            break;
        }
    }
    Ok(all)
}

fn description(entry: &mut tar::Entry<'_, File>) -> Result<Value, String> {
    if entry.size() > LONGEST {
        return Err(format!("it has {} bytes", entry.size()));
    }
    let mut text = Vec::new();
    entry.read_to_end(&mut text).map_err(|error| error.to_string())?;
    names::parse(&text)
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
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
            let description = serde_json::json!({ "global": { "long": "x".repeat(long) } });
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
        let path = made(folder.path(), "{\"global\": {\"first\": 1}}", &[7; 5000]);
        let start = find(&path).expect("an archive").start;
        let all = fs::read(&path).expect("read");
        fs::write(&path, &all[..start as usize + 1000]).expect("cut");
        let found = find(&path).expect("an archive");
        assert_eq!((found.start, found.bytes, found.cut), (start, 1000, true));
        assert_eq!(found.description["global"]["first"], 1);
        for bad in [&b""[..], b"nothing", &[0; 2048], &[7; 2048]] {
            fs::write(&path, bad).expect("written");
            assert!(find(&path).is_err());
        }
    }

    /// An archive of these files, in this order.
    fn packed(folder: &Path, files: &[(&str, &str)]) -> PathBuf {
        let path = folder.join("y.sigmf");
        let mut tar = tar::Builder::new(File::create(&path).expect("created"));
        for (name, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, name, content.as_bytes()).expect("packed");
        }
        tar.finish().expect("finished");
        path
    }

    const ONE: &str = r#"{"global": {"number": 1}}"#;
    const TWO: &str = r#"{"global": {"number": 2}}"#;

    #[test]
    fn samples_are_found_by_the_name_of_their_description() {
        let folder = tempfile::tempdir().expect("a folder");
        for files in [
            &[("a.sigmf-data", "samples"), ("a.sigmf-meta", ONE)][..],
            &[("x/a.sigmf-meta", ONE), ("./x/a.sigmf-data", "samples")],
            // Attributes of macOS, and other files.
            &[
                ("._a.sigmf-data", "no"),
                ("a.sigmf-data", "samples"),
                ("._a.sigmf-meta", TWO),
                ("a.sigmf-meta", ONE),
                ("README", "no"),
            ],
            &[("a.sigmf-meta", ONE), ("x/._a.sigmf-meta", "no"), ("a.sigmf-data", "samples")],
            // Packed again.
            &[
                ("a.sigmf-data", "old"),
                ("a.sigmf-meta", TWO),
                ("a.sigmf-data", "samples"),
                ("a.sigmf-meta", ONE),
            ],
        ] {
            let path = packed(folder.path(), files);
            let found = find(&path).expect("an archive");
            let all = fs::read(&path).expect("read");
            assert_eq!(&all[found.start as usize..][..found.bytes as usize], b"samples");
            assert_eq!(found.description["global"]["number"], 1, "{files:?}");
            assert_eq!(found.name.file_name().and_then(|name| name.to_str()), Some("a.sigmf-data"));
        }
    }

    #[test]
    fn archive_without_one_pair_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        for (files, why) in [
            (
                &[
                    ("a.sigmf-data", "1"),
                    ("a.sigmf-meta", ONE),
                    ("b.sigmf-data", "2"),
                    ("b.sigmf-meta", TWO),
                ][..],
                "several recordings: a, b",
            ),
            (&[("a.sigmf-data", "1"), ("b.sigmf-meta", TWO)], "several recordings: a, b"),
            (&[("a.sigmf-data", "1"), ("x/a.sigmf-meta", TWO)], "several recordings: a, x/a"),
            (&[("a.sigmf-data", "1")], "no description, a.sigmf-meta"),
            (&[("a.sigmf-meta", ONE)], "no samples, a.sigmf-data"),
            (&[("._a.sigmf-data", "1"), ("._a.sigmf-meta", ONE)], "no samples, NAME.sigmf-data"),
            (&[("a.sigmf-data", "1"), ("a.sigmf-meta", "no")], "a.sigmf-meta: it is not JSON"),
        ] {
            let said = find(&packed(folder.path(), files)).expect_err("refused").to_string();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn sparse_archive_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = File::create(folder.path().join("a.sigmf-data")).expect("created");
        data.set_len(1 << 20).expect("a hole");
        fs::write(folder.path().join("a.sigmf-meta"), ONE).expect("written");
        let path = folder.path().join("a.sigmf");
        let mut tar = Command::new("tar");
        tar.args(["--format=gnu", "-Scf"]).arg(&path).arg("-C").arg(folder.path());
        let made = tar.args(["a.sigmf-data", "a.sigmf-meta"]).status().expect("tar").success();
        let said = find(&path).expect_err("refused").to_string();
        assert!(made && said.contains("--sparse"), "{said}");
    }
}
