// SPDX-License-Identifier: MIT OR Apache-2.0
//! All objects whose names begin alike, as a folder.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dmabuf_dio::Result;
use dmabuf_dio::content::{Content, Folder};
use futures_util::StreamExt as _;
use object_store::ObjectStore;

use crate::address::{Address, Kind};
use crate::net::Net;
use crate::object::Object;
use crate::origin::Origin;
use crate::origin::store::{Store, connect};
use crate::range::patiently;
use crate::settings::Settings;
use crate::trouble::{Trouble, code_in, failed, of_transport, status_in, told};

/// All objects whose names begin with those of a URL: `s3://bucket/models/llama/`. Those of a web server are opened by
/// name, and not listed.
#[derive(Debug)]
pub struct Prefix {
    name: PathBuf,
    place: Place,
    settings: Settings,
    net: Arc<Net>,
}

/// What the names are appended to.
#[derive(Debug)]
enum Place {
    Store { kind: Kind, store: Arc<dyn ObjectStore>, start: object_store::path::Path },
    Web(Address),
}

impl Prefix {
    /// Connects to the store; nothing is asked for yet. A query of a web server's URL is one of each file's.
    ///
    /// # Errors
    ///
    /// [`Error::Content`](dmabuf_dio::Error::Content).
    pub fn open(url: &str, settings: &Settings) -> Result<Arc<Self>> {
        Self::at(&Address::parse(url)?, settings)
    }

    /// The folder that an object is in, and its name there.
    ///
    /// # Errors
    ///
    /// [`Error::Content`](dmabuf_dio::Error::Content).
    pub fn around(url: &str, settings: &Settings) -> Result<(Arc<Self>, String)> {
        let address = Address::parse(url)?;
        let none = || {
            Trouble::Address("it names no object, or its name has a / (%2F) or is not UTF-8".into())
        };
        let split = address.split().ok_or_else(none);
        let (folder, name) = split.map_err(|trouble| failed(address.name(), 0..0, &trouble))?;
        Ok((Self::at(&folder, settings)?, name))
    }

    fn at(address: &Address, settings: &Settings) -> Result<Arc<Self>> {
        let fail = |trouble: Trouble| failed(address.name(), 0..0, &trouble);
        // These are of one object.
        let settings = Settings { sha256: None, sums: None, ..settings.clone() };
        let net = Net::new(&settings).map_err(fail)?;
        let place = if address.kind == Kind::Web {
            Place::Web(address.clone())
        } else {
            let (store, start) = connect(address, &net, 0).map_err(fail)?;
            Place::Store { kind: address.kind, store, start }
        };
        let name = address.name().to_owned();
        Ok(Arc::new(Self { name, place, settings, net: Arc::new(net) }))
    }

    /// Opens the object of that name. Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Content`](dmabuf_dio::Error::Content).
    pub fn object(&self, name: &Path) -> Result<Arc<Object>> {
        let shown = self.name.join(name);
        let fail = |trouble: Trouble| failed(&shown, 0..0, &trouble);
        let origin = match &self.place {
            Place::Store { kind, store, start } => {
                let key = key_of(start, name).map_err(fail)?;
                let open = || Store::of(Arc::clone(store), key.clone(), *kind, None);
                let opened = self.net.run(patiently(&self.settings, self.settings.stall, open));
                Origin::Store(opened.map_err(fail)?)
            }
            Place::Web(folder) => {
                let address = folder.join(name);
                let open = || Origin::open(&address, &self.net);
                let opened = self.net.run(patiently(&self.settings, self.settings.stall, open));
                opened.map_err(fail)?
            }
        };
        Object::with(shown, origin, &self.settings, Arc::clone(&self.net)).map(Arc::new)
    }

    async fn entries(&self) -> Result<Vec<(PathBuf, u64)>, Trouble> {
        let Place::Store { store, start, .. } = &self.place else {
            return Err(Trouble::Unsupported("a web server does not list its files".into()));
        };
        let stall = self.settings.stall;
        let mut listed = store.list(Some(start));
        let mut found = Vec::new();
        // A long list takes many requests: the limit is one of each.
        loop {
            let next = tokio::time::timeout(stall, listed.next()).await;
            let Some(meta) = next.map_err(|_| Trouble::Stalled(stall))? else { break };
            let meta = meta.map_err(|error| of_list(&error))?;
            let Some(rest) = meta.location.prefix_match(start) else { continue };
            let name: PathBuf = rest.map(|part| part.as_ref().to_owned()).collect();
            if !name.as_os_str().is_empty() {
                found.push((name, meta.size));
            }
        }
        as_files(found)
    }
}

/// The key of an object of a prefix. It is taken as it is: some characters would be escaped otherwise.
pub(crate) fn key_of(
    start: &object_store::path::Path,
    name: &Path,
) -> Result<object_store::path::Path, Trouble> {
    let text = || Trouble::Names(format!("the name {} is not UTF-8", name.display()));
    let name = name.to_str().ok_or_else(text)?;
    let key = if start.as_ref().is_empty() { name.into() } else { format!("{start}/{name}") };
    object_store::path::Path::parse(&key).map_err(|error| of_key(&error))
}

/// Sorts the names, without objects that only stand for a folder. Fails if the others cannot be files side by side.
pub(crate) fn as_files(mut found: Vec<(PathBuf, u64)>) -> Result<Vec<(PathBuf, u64)>, Trouble> {
    found.sort_by(|(a, long), (b, longer)| (a, Reverse(long)).cmp(&(b, Reverse(longer))));
    // `a` and `a/` have the same name.
    found.dedup_by(|(after, _), (name, _)| after == name);
    let mut folders = HashSet::new();
    for (name, _) in &found {
        let new = |folder: &&Path| folders.insert(folder.to_path_buf());
        name.ancestors().skip(1).take_while(new).for_each(drop);
    }
    found.retain(|(name, length)| *length > 0 || !folders.contains(name));
    match found.iter().find(|(name, _)| folders.contains(name)) {
        None => Ok(found),
        Some((name, _)) => {
            let name = name.display();
            Err(Trouble::Names(format!("the key {name} is an object, and a folder of others")))
        }
    }
}

/// Why a key is no name of a file.
fn of_key(error: &object_store::path::Error) -> Trouble {
    use object_store::path::Error;
    let (Error::EmptySegment { path } | Error::BadSegment { path, .. }) = error else {
        return Trouble::Names("a key is no name of a file".into());
    };
    Trouble::Names(format!("the key {path:?} has an empty part, or one that is . or .."))
}

/// Why a list failed. Lists tell no more than their text, of which only the status and the store's own word are shown.
fn of_list(error: &object_store::Error) -> Trouble {
    if let object_store::Error::InvalidPath { source } = error {
        return of_key(source);
    }
    if let Some(trouble) = told(error) {
        return trouble;
    }
    let text = error.to_string();
    let code = code_in(&text);
    let status = match error {
        object_store::Error::NotFound { .. } => Some(404),
        object_store::Error::PermissionDenied { .. } => Some(403),
        object_store::Error::Unauthenticated { .. } => Some(401),
        _ => status_in(&text),
    };
    match status {
        Some(status) => Trouble::Status { status, code, after: None },
        None => match of_transport(error) {
            trouble @ (Trouble::Connect(_) | Trouble::Certificate(_)) => trouble,
            _ => Trouble::Broken("its objects cannot be listed".into()),
        },
    }
}

impl Folder for Prefix {
    fn name(&self) -> &Path {
        &self.name
    }

    fn list(&self) -> Result<Vec<(PathBuf, u64)>> {
        let found = self.net.run(patiently(&self.settings, Duration::MAX, || self.entries()));
        found.map_err(|trouble| failed(&self.name, 0..0, &trouble))
    }

    fn open(&self, name: &Path) -> Result<Arc<dyn Content>> {
        let object = self.object(name)?;
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn objects_that_stand_for_folders_are_no_files() {
        let files = |names: &[(&str, u64)]| {
            as_files(names.iter().map(|(name, length)| (name.into(), *length)).collect())
        };
        let found = files(&[("sub", 0), ("sub/a", 1), ("b", 5), ("b", 0), ("empty", 0)]);
        let expected = [("b", 5), ("empty", 0), ("sub/a", 1)];
        assert_eq!(found, Ok(expected.map(|(name, length)| (name.into(), length)).to_vec()));
        let Err(Trouble::Names(said)) = files(&[("a", 1), ("a.b", 1), ("a/b/c", 1)]) else {
            panic!("it cannot be both")
        };
        assert!(said.contains("the key a is"), "{said}");
    }

    #[test]
    fn keys_are_taken_as_they_are() {
        let start = object_store::path::Path::from("p");
        let name = "a~[x]{y}^z%20#\"<>|/b";
        assert_eq!(key_of(&start, Path::new(name)).expect("a key").as_ref(), format!("p/{name}"));
        let error = key_of(&start, Path::new("a/../b")).expect_err("no key");
        assert!(!error.passes() && matches!(error, Trouble::Names(_)), "{error:?}");
        // Keys are text: another character would name another object.
        let name = Path::new(OsStr::from_bytes(b"caf\xe9"));
        assert!(matches!(key_of(&start, name), Err(Trouble::Names(_))));
    }
}
