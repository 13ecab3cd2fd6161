// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides which files are loaded and which are linked.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmabuf_dio::content::Folder;
use dmabuf_dio_terminal::exit::{FAILED, Failure, USAGE};
use dmabuf_dio_terminal::size::show_size;

use super::folder::MARK;
use crate::args::files::LoadArgs;
use crate::args::url::{is_url, shown};
use crate::remote;

/// Files of a folder that are smaller than this are linked, unless `--min-size` says otherwise.
pub(crate) const MIN_SIZE: u64 = 16 << 20;

/// The files and links of a private folder. Places are relative to that folder.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The place of the path that the command gets.
    pub(crate) name: PathBuf,
    pub(crate) loads: Vec<Load>,
    /// Folders to create, each before those in it.
    pub(crate) folders: Vec<PathBuf>,
    pub(crate) links: Vec<Link>,
    /// Opens the objects of a prefix, all with the same connections.
    pub(crate) store: Option<Arc<dyn Folder>>,
}

/// A file to load.
#[derive(Debug)]
pub(crate) struct Load {
    /// There is at least one. Hubs have the same file under several names.
    pub(crate) names: Vec<Name>,
    /// Its length in bytes, as far as known: 0 for a block device.
    pub(crate) length: u64,
}

/// A name of a file to load.
#[derive(Debug)]
pub(crate) struct Name {
    pub(crate) source: PathBuf,
    pub(crate) place: PathBuf,
}

/// A file or folder to link.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) target: PathBuf,
    pub(crate) place: PathBuf,
}

/// Plans the load of a file, of all parts of a split GGUF, or of the files of a folder that have at
/// least `min_size` bytes.
pub(crate) fn plan(path: &Path, min_size: u64, is_range: bool) -> Result<Plan, Failure> {
    let name = PathBuf::from(name_of(path));
    let is_folder = fs::metadata(path).is_ok_and(|stat| stat.is_dir());
    if !is_folder {
        let loads = match parts(path).filter(|_| !is_range) {
            Some(parts) => parts_to_load(path, parts)?,
            None => vec![Load::new(path.to_owned(), name.clone())],
        };
        return Ok(Plan { name, loads, ..Plan::default() });
    }
    if is_range {
        return Err(Failure::new(
            USAGE,
            format!("{}: a range of a folder cannot be loaded", path.display()),
            "name a file, or leave out --offset and --length",
        ));
    }
    let mut plan = Plan { folders: vec![name.clone()], name, ..Plan::default() };
    let root = std::path::absolute(path).map_err(|error| unreadable(path, &error))?;
    let place = plan.name.clone();
    plan.walk(&root, &place, min_size)?;
    plan.merge();
    if plan.loads.is_empty() {
        return Err(Failure::new(
            FAILED,
            format!("{}: no file is {} or larger", path.display(), show_size(min_size)),
            "choose a smaller --min-size, or give COMMAND the folder itself",
        ));
    }
    Ok(plan)
}

/// Plans the load of all objects of a prefix: what is not on this machine cannot be linked.
pub(crate) fn of_prefix(path: &Path, args: &LoadArgs, is_range: bool) -> Result<Plan, Failure> {
    let fail = |code, what, hint| {
        Err(Failure::new(code, format!("{}: {what}", shown(path).display()), hint))
    };
    if is_range {
        let hint = "name an object, or leave out --offset and --length";
        return fail(USAGE, "a range of a prefix cannot be loaded", hint);
    }
    let name = PathBuf::from(name_of(path));
    let store = remote::folder(path, &args.remote)?;
    let opens = Some(Arc::clone(&store));
    let mut plan = Plan { folders: vec![name.clone()], name, store: opens, ..Plan::default() };
    let mut known = HashSet::from([plan.name.clone()]);
    for (inner, source, length) in remote::list(path, store.as_ref())? {
        let place = plan.name.join(&inner);
        let mut above: Vec<_> =
            place.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()).collect();
        above.reverse();
        for folder in above {
            if known.insert(folder.to_owned()) {
                plan.folders.push(folder.to_owned());
            }
        }
        if length == 0 {
            // A buffer has at least one byte.
            plan.links.push(Link { target: "/dev/null".into(), place });
        } else {
            plan.loads.push(Load { names: vec![Name { source, place }], length });
        }
    }
    if plan.loads.is_empty() {
        return fail(FAILED, "no object's name begins so", "check the bucket and the prefix");
    }
    Ok(plan)
}

impl Plan {
    /// Adds the content of a folder. A subfolder without files to load is linked as a whole.
    fn walk(&mut self, folder: &Path, place: &Path, min_size: u64) -> Result<(), Failure> {
        let failed = |error| unreadable(folder, &error);
        let mut entries: Vec<_> =
            fs::read_dir(folder).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (source, place) = (entry.path(), place.join(entry.file_name()));
            // A link to a folder may lead back here, so it is not followed.
            if entry.file_type().map_err(failed)?.is_dir() {
                let mut inner = Self { folders: vec![place.clone()], ..Self::default() };
                // A folder that cannot be listed is linked: the command cannot list it either.
                if inner.walk(&source, &place, min_size).is_ok() && !inner.loads.is_empty() {
                    self.folders.append(&mut inner.folders);
                    self.loads.append(&mut inner.loads);
                    self.links.append(&mut inner.links);
                    continue;
                }
            }
            match fs::metadata(&source) {
                Ok(stat) if stat.is_file() && stat.len() >= min_size.max(1) => {
                    let names = vec![Name { source, place }];
                    self.loads.push(Load { names, length: stat.len() });
                }
                _ => self.links.push(Link { target: source, place }),
            }
        }
        Ok(())
    }

    /// Loads a file that has several names once.
    fn merge(&mut self) {
        let mut known = HashMap::new();
        let mut merged: Vec<Load> = Vec::new();
        for mut load in self.loads.drain(..) {
            let file = fs::metadata(load.source()).map(|stat| (stat.dev(), stat.ino()));
            match file.ok().map(|file| known.entry(file)) {
                Some(Entry::Occupied(entry)) => {
                    let first: &mut Load = &mut merged[*entry.get()];
                    first.names.append(&mut load.names);
                    continue;
                }
                Some(Entry::Vacant(entry)) => {
                    entry.insert(merged.len());
                }
                None => {}
            }
            merged.push(load);
        }
        self.loads = merged;
    }

    /// Names of files that are loaded.
    pub(crate) fn names(&self) -> usize {
        self.loads.iter().map(|load| load.names.len()).sum()
    }

    /// Bytes to load; `u64::MAX` if they do not fit, because sparse files can have any length.
    pub(crate) fn bytes(&self) -> u64 {
        self.loads.iter().fold(0, |sum, load| sum.saturating_add(load.length))
    }

    pub(crate) fn is_folder(&self) -> bool {
        !self.folders.is_empty()
    }
}

impl Load {
    fn new(source: PathBuf, place: PathBuf) -> Self {
        let length = fs::metadata(&source).map_or(0, |stat| stat.len());
        Self { names: vec![Name { source, place }], length }
    }

    /// The path that it is loaded from.
    pub(crate) fn source(&self) -> &Path {
        &self.names[0].source
    }
}

fn unreadable(folder: &Path, error: &io::Error) -> Failure {
    let what = format!("{}: cannot list it: {error}", folder.display());
    Failure::new(FAILED, what, "check its permissions: ls -ld")
}

/// The last name in a path, with the file's own extension even if it is a link to another name. The
/// name of the private folder's mark is taken.
fn name_of(path: &Path) -> OsString {
    let name = shown(path).file_name().map(OsStr::to_owned);
    let name = name.or_else(|| Some(fs::canonicalize(path).ok()?.file_name()?.to_owned()));
    name.filter(|name| name != MARK).unwrap_or_else(|| "files".into())
}

/// The names of all parts of a split GGUF. Programs open the first part and find the others by their
/// names: `NAME-00001-of-00003.gguf`.
pub(crate) fn parts(path: &Path) -> Option<impl Iterator<Item = String> + use<>> {
    let name = path.file_name()?.to_str()?;
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let parse = |text: &str| text.parse::<u32>().ok().filter(|_| is_number(text));
    let (number, count) = (parse(number)?, parse(count)?);
    let stem = stem.to_owned();
    (1..=count)
        .contains(&number)
        .then(|| (1..=count).map(move |part| format!("{stem}-{part:05}-of-{count:05}.gguf")))
}

fn parts_to_load(path: &Path, parts: impl Iterator<Item = String>) -> Result<Vec<Load>, Failure> {
    let load = |name: String| {
        let source = path.with_file_name(&name);
        if !is_url(path) && !source.exists() {
            return Err(Failure::new(
                FAILED,
                format!("{}: there is no {name} in the same folder", path.display()),
                "put all parts of the model into one folder",
            ));
        }
        Ok(Load::new(source, name.into()))
    };
    parts.map(load).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Option<Vec<String>> {
        parts(Path::new(path)).map(Iterator::collect)
    }

    #[test]
    fn split_models_are_recognised() {
        let all = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"].map(str::to_owned);
        assert_eq!(names("/a/m-00001-of-00002.gguf"), Some(all.to_vec()));
        assert_eq!(names("m-00002-of-00002.gguf"), Some(all.to_vec()));
        for other in [
            "m.gguf",
            "m-00001-of-00002.safetensors",
            "m-00003-of-00002.gguf",
            "m-00000-of-00002.gguf",
            "m-1-of-2.gguf",
            "m-0000a-of-00002.gguf",
            "m-+0001-of-00002.gguf",
            "m-00001-of-+0002.gguf",
            "m-00001-00002.gguf",
            "/",
        ] {
            assert_eq!(names(other), None, "{other}");
        }
    }

    #[test]
    fn folder_is_divided_into_loads_and_links() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let write = |name: &str, len: usize| {
            fs::create_dir_all(root.join(name).parent().expect("a folder")).expect("folders");
            fs::write(root.join(name), vec![7; len]).expect("a file");
        };
        write("a.safetensors", 100);
        write("config.json", 99);
        write("empty", 0);
        write("deep/er/b.bin", 200);
        write("deep/small", 1);
        write("docs/README", 5);
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, root.join(name)).expect("a link");
        };
        link("a.safetensors", "again.safetensors");
        link(".", "deep/loop");
        link("nowhere", "dangling");
        let plan = plan(root, 100, false).expect("a plan");
        let name = root.file_name().map(PathBuf::from).expect("a name");
        let relative = |path: &PathBuf| {
            path.strip_prefix(&name).expect("in the folder").to_str().expect("text").to_owned()
        };
        let names = |load: &Load| load.names.iter().map(|name| relative(&name.place)).collect();
        let mut loads: Vec<Vec<_>> = plan.loads.iter().map(names).collect();
        loads.sort();
        let twice = ["a.safetensors", "again.safetensors"].map(str::to_owned).to_vec();
        assert_eq!(loads, [twice, vec!["deep/er/b.bin".to_owned()]]);
        assert_eq!(plan.names(), 3);
        let mut links: Vec<_> = plan.links.iter().map(|link| relative(&link.place)).collect();
        links.sort();
        assert_eq!(links, ["config.json", "dangling", "deep/loop", "deep/small", "docs", "empty"]);
        assert!(plan.links.iter().all(|link| link.target.is_absolute()));
        assert_eq!(plan.folders.iter().map(relative).collect::<Vec<_>>(), ["", "deep", "deep/er"]);
        assert_eq!(plan.bytes(), 300);
        assert!(super::plan(root, 201, false).is_err());
        assert!(super::plan(root, 100, true).is_err());
    }

    #[test]
    fn sparse_files_have_any_length() {
        let load = || Load { length: i64::MAX as u64, ..Load::new("f".into(), "f".into()) };
        let plan = Plan { loads: vec![load(), load(), load()], ..Plan::default() };
        assert_eq!(plan.bytes(), u64::MAX);
    }

    #[test]
    fn file_named_as_the_mark_gets_another_name() {
        let plan = plan(Path::new("/nowhere").join(MARK).as_path(), 1, false).expect("a plan");
        assert_eq!(plan.name, Path::new("files"));
        assert_eq!(plan.loads[0].names[0].place, plan.name);
    }
}
