// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the bytes of an object come from.

mod answer;
#[cfg(any(test, fuzzed))]
pub(crate) mod simulated;
pub(crate) mod store;
pub(crate) mod web;

use std::ops::Range;
use std::sync::Arc;

use self::answer::Body;
use self::store::Store;
use self::web::Web;
use crate::address::{Address, Kind};
use crate::net::Net;
use crate::trouble::Trouble;

/// One version of an object.
#[derive(Debug)]
pub(crate) enum Origin {
    Web(Web),
    Store(Store),
    #[cfg(any(test, fuzzed))]
    Simulated(simulated::Simulated),
}

impl Origin {
    /// Asks for the length and the version.
    pub(crate) async fn open(address: &Address, net: &Net) -> Result<Self, Trouble> {
        Ok(match address.kind {
            Kind::Web => Self::Web(Web::open(Arc::clone(&net.clients), address.url()).await?),
            _ => Self::Store(Store::open(address, net).await?),
        })
    }

    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Web(web) => web.length,
            Self::Store(store) => store.length,
            #[cfg(any(test, fuzzed))]
            Self::Simulated(server) => server.bytes.len() as u64,
        }
    }

    /// The version as the store names it, if it does.
    pub(crate) fn tag(&self) -> Option<&str> {
        match self {
            Self::Web(web) => web.tag.as_deref(),
            Self::Store(store) => store.tag.as_deref(),
            #[cfg(any(test, fuzzed))]
            Self::Simulated(_) => None,
        }
    }

    /// What tells this version from others: a strong tag or a generation. Times and weak tags are of several.
    pub(crate) fn version(&self) -> Option<String> {
        let other = match self {
            Self::Web(_) => None,
            Self::Store(store) => store.version.as_deref(),
            #[cfg(any(test, fuzzed))]
            Self::Simulated(_) => None,
        };
        self.tag().filter(|tag| answer::is_strong(tag)).or(other).map(str::to_owned)
    }

    /// Asks for a range of that version.
    pub(crate) async fn get(&self, range: Range<u64>) -> Result<Body, Trouble> {
        match self {
            Self::Web(web) => web.get(range).await,
            Self::Store(store) => store.get(range).await,
            #[cfg(any(test, fuzzed))]
            Self::Simulated(server) => server.get(range),
        }
    }
}
