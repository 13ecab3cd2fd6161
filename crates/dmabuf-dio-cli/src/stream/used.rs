// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files that a stream uses, which its report must not replace.

use std::fs::File;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use dmabuf_dio_terminal::exit::{Failure, USAGE};

use super::numbered::is_piece;
use super::report::cannot_write;
use crate::args::address::{Address, Target, Use};
use crate::args::streams::ReportArgs;

/// The files that a stream reads or writes.
#[derive(Debug, Default)]
pub(crate) struct Used<'a> {
    pub(super) files: Vec<PathBuf>,
    /// Standard input or output.
    pub(super) standard: Option<Use>,
    /// The name of the numbered files of a recording.
    pub(super) series: Option<&'a Path>,
}

impl Used<'_> {
    /// Fails early if the report cannot be written, or if it would replace a file that the stream
    /// uses.
    pub(super) fn check_report(&self, args: &ReportArgs) -> Result<(), Failure> {
        let Some(path) = &args.file else { return Ok(()) };
        if self.has(path) {
            let path = path.display();
            let what = format!("{path}: the report would replace the samples or their description");
            return Err(Failure::new(USAGE, what, "choose another name: --report NAME.json"));
        }
        let existed = path.exists();
        if existed && !path.is_file() && !path.is_dir() {
            // Opening a FIFO would wait for its reader.
            return Ok(());
        }
        let opened = File::options().append(true).create(true).open(path);
        if !existed && opened.is_ok() {
            let _ = std::fs::remove_file(path);
        }
        opened.map(drop).map_err(|error| cannot_write(path, &error))
    }

    /// Whether a path leads to one of these files, under any name.
    fn has(&self, path: &Path) -> bool {
        let facts = path.metadata().ok();
        // Writing to a terminal or to /dev/null replaces nothing.
        if facts.as_ref().is_some_and(|facts| facts.file_type().is_char_device()) {
            return false;
        }
        let own = facts.map(|facts| (facts.dev(), facts.ino()));
        let is_same = |file: &PathBuf| {
            let other = file.metadata().ok().map(|facts| (facts.dev(), facts.ino()));
            own.is_some() && own == other || resolved(path, LINKS) == resolved(file, LINKS)
        };
        let standard = self.standard.and_then(|used| match used {
            Use::Read => rustix::fs::fstat(std::io::stdin()).ok(),
            Use::Write => rustix::fs::fstat(std::io::stdout()).ok(),
        });
        let is_standard = standard.is_some_and(|facts| own == Some((facts.st_dev, facts.st_ino)));
        let is_piece = |first: &Path| {
            let (first, path) = (resolved(first, LINKS), resolved(path, LINKS));
            first.parent() == path.parent() && is_piece(&first, &path)
        };
        is_standard || self.files.iter().any(is_same) || self.series.is_some_and(is_piece)
    }
}

/// Most links that are followed.
const LINKS: u32 = 16;

/// A path with its links resolved. The file need not exist.
fn resolved(path: &Path, links: u32) -> PathBuf {
    if let Ok(found) = path.canonicalize() {
        return found;
    }
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    match path.read_link() {
        Ok(target) if links > 0 => resolved(&folder.join(target), links - 1),
        _ => {
            let folder = folder.canonicalize().unwrap_or_else(|_| folder.into());
            folder.join(path.file_name().unwrap_or_default())
        }
    }
}

impl<'a> Used<'a> {
    /// The files that a capture writes: the target, and its description, whose path `description`
    /// returns.
    pub(super) fn by_capture(to: &'a Target, description: fn(&Path) -> PathBuf) -> Self {
        let mut used = Self::default();
        match to {
            Target::File(path) => used.files = vec![path.clone(), description(path)],
            Target::To(Address::Special(path)) => used.files = vec![path.clone()],
            Target::To(Address::Standard) => used.standard = Some(Use::Write),
            _ => {}
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_replaces_none_of_the_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("x")).expect("a folder");
        let used = Used { files: vec![path("a.bin"), path("a.sigmf-meta")], ..Used::default() };
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, path(name)).expect("a link");
        };
        link("a.bin", "link");
        link("x/../link", "chain");
        link("loop", "loop");
        link(".", "here");
        // Whether it exists yet or not.
        for exists in [false, true] {
            if exists {
                std::fs::write(path("a.bin"), "samples").expect("written");
                std::fs::hard_link(path("a.bin"), path("hard")).expect("a link");
                assert!(used.has(&path("hard")));
            }
            let same = ["a.bin", "x/../a.bin", "./a.bin", "link", "chain", "here/a.bin"];
            for name in same.into_iter().chain(["a.sigmf-meta"]) {
                assert!(used.has(&path(name)), "{name}");
            }
            for name in ["b.bin", "x/a.bin", "a.bin.json", "loop", "no/a.bin"] {
                assert!(!used.has(&path(name)), "{name}");
            }
        }
        let null = PathBuf::from("/dev/null");
        assert!(!Used { files: vec![null.clone()], ..Used::default() }.has(&null));
        let first = path("c.bin");
        let series = Used { series: Some(&first), ..Used::default() };
        for (name, is_one) in [
            ("c-000004.bin", true),
            ("here/c-000004.sigmf-meta", true),
            ("c.bin", false),
            ("x/c-000004.bin", false),
            ("c-000004.json", false),
        ] {
            assert_eq!(series.has(&path(name)), is_one, "{name}");
        }
    }
}
