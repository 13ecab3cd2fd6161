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

/// All objects whose names begin with those of a URL: `s3://bucket/models/llama/`. Web servers have no list of them.
#[derive(Debug)]
pub struct Prefix {
    name: PathBuf,
    kind: Kind,
    store: Arc<dyn ObjectStore>,
    start: object_store::path::Path,
    settings: Settings,
    net: Arc<Net>,
}

impl Prefix {
    /// Connects to the store; nothing is asked for yet.
    ///
    /// # Errors
    ///
    /// [`Error::Content`](dmabuf_dio::Error::Content).
    pub fn open(url: &str, settings: &Settings) -> Result<Arc<Self>> {
        let address = Address::parse(url)?;
        let fail = |trouble: Trouble| failed(address.name(), 0..0, &trouble);
        // These are of one object.
        let settings = Settings { sha256: None, sums: None, ..settings.clone() };
        let net = Net::new(&settings).map_err(fail)?;
        let (store, start) = connect(&address, &net, 0).map_err(fail)?;
        let name = address.name().to_owned();
        Ok(Arc::new(Self { name, kind: address.kind, store, start, settings, net: Arc::new(net) }))
    }

    async fn entries(&self) -> Result<Vec<(PathBuf, u64)>, Trouble> {
        let listed = self.store.list(Some(&self.start)).try_collect::<Vec<_>>().await;
        let listed = listed.map_err(|error| of_list(&error))?;
        let mut found: Vec<_> = listed
            .into_iter()
            .filter_map(|meta| {
                let rest: Vec<_> = meta.location.prefix_match(&self.start)?.collect();
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
        let mut key = self.start.clone();
        for part in name {
            key = key.join(part.to_string_lossy().as_ref());
        }
        let shown = self.name.join(name);
        let store = || Store::of(Arc::clone(&self.store), key.clone(), self.kind, None);
        let opened = self.net.run(patiently(&self.settings, store));
        let store = opened.map_err(|trouble| failed(&shown, 0..0, &trouble))?;
        let object =
            Object::with(shown, Origin::Store(store), &self.settings, Arc::clone(&self.net))?;
        Ok(Arc::new(object))
    }
}
