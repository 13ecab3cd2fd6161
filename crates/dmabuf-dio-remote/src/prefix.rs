// SPDX-License-Identifier: MIT OR Apache-2.0
//! All objects whose names begin alike, as a folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmabuf_dio::Result;
use dmabuf_dio::content::{Content, Folder};
use futures_util::TryStreamExt as _;
use object_store::ObjectStore;

use crate::address::{Address, Kind};
use crate::net::Net;
use crate::object::Object;
use crate::origin::Origin;
use crate::origin::store::{Store, connect};
use crate::range::patiently;
use crate::settings::Settings;
use crate::trouble::{Trouble, code_in, failed, status_in};

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
        let none = || Trouble::Address("it names no object".into());
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
                let key = name
                    .iter()
                    .fold(start.clone(), |key, part| key.join(part.to_string_lossy().as_ref()));
                let open = || Store::of(Arc::clone(store), key.clone(), *kind, None);
                let opened = self.net.run(patiently(&self.settings, open));
                Origin::Store(opened.map_err(fail)?)
            }
            Place::Web(folder) => {
                let address = folder.join(name);
                let open = || Origin::open(&address, &self.net);
                self.net.run(patiently(&self.settings, open)).map_err(fail)?
            }
        };
        Object::with(shown, origin, &self.settings, Arc::clone(&self.net)).map(Arc::new)
    }

    async fn entries(&self) -> Result<Vec<(PathBuf, u64)>, Trouble> {
        let Place::Store { store, start, .. } = &self.place else {
            return Err(Trouble::Unsupported("a web server does not list its files".into()));
        };
        let listed = store.list(Some(start)).try_collect::<Vec<_>>().await;
        let listed = listed.map_err(|error| of_list(&error))?;
        let mut found: Vec<_> = listed
            .into_iter()
            .filter_map(|meta| {
                let rest: Vec<_> = meta.location.prefix_match(start)?.collect();
                let name: PathBuf = rest.iter().map(|part| part.as_ref().to_owned()).collect();
                (!rest.is_empty()).then_some((name, meta.size))
            })
            .collect();
        found.sort();
        Ok(found)
    }
}

/// Why a list failed. Lists tell no more than their text, of which only the status and the store's own word are shown.
fn of_list(error: &object_store::Error) -> Trouble {
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
        None => Trouble::Broken("its objects cannot be listed".into()),
    }
}

impl Folder for Prefix {
    fn name(&self) -> &Path {
        &self.name
    }

    fn list(&self) -> Result<Vec<(PathBuf, u64)>> {
        let found = self.net.run(patiently(&self.settings, || self.entries()));
        found.map_err(|trouble| failed(&self.name, 0..0, &trouble))
    }

    fn open(&self, name: &Path) -> Result<Arc<dyn Content>> {
        let object = self.object(name)?;
        Ok(object)
    }
}
