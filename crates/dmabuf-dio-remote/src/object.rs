// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmabuf_dio::content::{Content, Fetched, Fill};
use dmabuf_dio::{Error, Result};
use sha2::{Digest as _, Sha256};

use crate::address::Address;
use crate::job::Job;
use crate::net::Net;
use crate::origin::Origin;
use crate::range::patiently;
use crate::read;
use crate::settings::Settings;
use crate::source::Source;
use crate::sums::hex;
use crate::trouble::{Trouble, failed};

/// One version of an object of a store or a web server.
#[derive(Debug)]
pub struct Object(Source);

impl Object {
    /// Opens the object of a URL: asks for its length and pins its version. Blocks.
    ///
    /// A web server may send us elsewhere now, but not from https to http, and not later.
    ///
    /// # Errors
    ///
    /// [`Error::Content`]. [`Error::Cancelled`], by the token of the settings.
    pub fn open(url: &str, settings: &Settings) -> Result<Arc<Self>> {
        let address = Address::parse(url)?;
        let fail = |trouble: Trouble| failed(address.name(), 0..0, &trouble);
        let net = Net::new(settings).map_err(fail)?;
        if address.is_prefix() && address.kind != crate::address::Kind::Web {
            return Err(fail(Trouble::Address("it names no key".into())));
        }
        let opened = net.run(patiently(settings, settings.stall, || Origin::open(&address, &net)));
        let opened = opened.map_err(fail)?;
        Self::with(address.name().to_owned(), opened, settings, Arc::new(net)).map(Arc::new)
    }

    /// An object that was opened, if the sums are of its length.
    pub(crate) fn with(
        name: PathBuf,
        origin: Origin,
        settings: &Settings,
        net: Arc<Net>,
    ) -> Result<Self> {
        if let Some(sums) = settings.sums.as_ref().filter(|sums| sums.length() != origin.length()) {
            let trouble = Trouble::OtherSums { length: sums.length() };
            return Err(failed(&name, 0..origin.length(), &trouble));
        }
        let of_nothing: [u8; 32] = Sha256::digest([]).into();
        if origin.length() == 0 && settings.sha256.is_some_and(|sha256| sha256 != of_nothing) {
            // Nothing arrives that would be compared.
            return Err(failed(&name, 0..0, &Trouble::Whole { found: hex(&of_nothing) }));
        }
        Ok(Self(Source { name, origin, settings: settings.clone(), net }))
    }
}

impl Content for Object {
    fn name(&self) -> &Path {
        &self.0.name
    }

    fn length(&self) -> u64 {
        self.0.origin.length()
    }

    fn version(&self) -> Option<String> {
        self.0.origin.version()
    }

    fn read(&self, offset: u64, fill: &Fill<'_>) -> Result<Fetched, Error> {
        let range = offset..offset + fill.length();
        if self.0.settings.sha256.is_some() && range != (0..self.length()) {
            return Err(failed(&self.0.name, range, &Trouble::Part));
        }
        read::run(&Job::new(&self.0, offset, fill))
    }
}
