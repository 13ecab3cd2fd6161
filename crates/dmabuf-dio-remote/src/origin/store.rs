// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects of S3, Google Cloud Storage and Azure: requests that `object_store` signs. Its own retries are off, so that
//! one place decides what is tried again.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::{Extensions, GetOptions, GetRange, ObjectStore, RetryConfig};

use super::answer::{Body, is_strong};
use crate::address::{Address, Kind};
use crate::net::{Net, Outcome, Seen};
use crate::profile;
use crate::trouble::{Trouble, code_in, of_transport, told};

/// One version of an object of a store.
pub(crate) struct Store {
    client: Arc<dyn ObjectStore>,
    key: Path,
    pub(crate) length: u64,
    pub(crate) tag: Option<String>,
    /// The generation, or the version that the URL names. That of S3 is not asked for unless it was: that needs a
    /// permission of its own.
    pub(crate) version: Option<String>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Store {
    pub(crate) async fn open(address: &Address, net: &Net) -> Result<Self, Trouble> {
        let version = version_in(address)?;
        let (store, key) = connect(address, net, 0)?;
        Self::of(store, key, address.kind, version).await
    }

    /// Asks for the length and the version of an object of a store that is connected.
    pub(crate) async fn of(
        store: Arc<dyn ObjectStore>,
        key: Path,
        kind: Kind,
        version: Option<String>,
    ) -> Result<Self, Trouble> {
        let seen = Seen::default();
        let options = GetOptions {
            head: true,
            version: version.clone(),
            extensions: with(&seen),
            ..GetOptions::default()
        };
        let meta =
            store.get_opts(&key, options).await.map_err(|error| of_store(&error, &seen))?.meta;
        let version = version.or(meta.version.filter(|_| kind == Kind::Google));
        Ok(Self { client: store, key, length: meta.size, tag: meta.e_tag, version })
    }

    pub(crate) async fn get(&self, range: Range<u64>) -> Result<Body, Trouble> {
        let seen = Seen::default();
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: self.tag.clone().filter(|tag| is_strong(tag)),
            version: self.version.clone(),
            extensions: with(&seen),
            ..GetOptions::default()
        };
        let answer = self.client.get_opts(&self.key, options).await;
        let answer = answer.map_err(|error| match of_store(&error, &seen) {
            // There were some when it was opened.
            Trouble::Credentials(_) => Trouble::Renewal,
            // So Google answers for a generation that was overwritten.
            Trouble::Status { status: 404, .. } if self.version.is_some() => Trouble::Replaced,
            trouble => trouble,
        })?;
        let differs =
            self.tag.is_some() && answer.meta.e_tag.is_some() && self.tag != answer.meta.e_tag;
        if differs || answer.meta.size != self.length {
            return Err(Trouble::Replaced);
        }
        if answer.range != range {
            let sent = answer.range;
            return Err(Trouble::WrongRange(format!("bytes {}..{}", sent.start, sent.end)));
        }
        let pieces = answer.into_stream();
        Ok(pieces.map(|piece| piece.map_err(|error| of_transport(&error))).boxed())
    }
}

/// A version of an object that the URL names: `?versionId=`, as in the URLs of S3.
fn version_in(address: &Address) -> Result<Option<String>, Trouble> {
    if address.url().fragment().is_some() {
        return Err(Trouble::Address("a # in a key is written %23".into()));
    }
    let Some(query) = address.url().query() else { return Ok(None) };
    match query.strip_prefix("versionId=") {
        Some(version) if !version.contains('&') => Ok(Some(version.to_owned())),
        _ => Err(Trouble::Address("a ? in a key is written %3F".into())),
    }
}

/// The store, with what the environment says, and the key in it. `retries` are those of `object_store`.
pub(crate) fn connect(
    address: &Address,
    net: &Net,
    retries: usize,
) -> Result<(Arc<dyn ObjectStore>, Path), Trouble> {
    let retry = RetryConfig {
        max_retries: retries,
        retry_timeout: Duration::from_secs(60),
        ..RetryConfig::default()
    };
    let key = Path::from_url_path(address.url().path()).map_err(|_| {
        Trouble::Address("a store cannot have this key: empty parts, . or ..".into())
    })?;
    let mut url = address.url().clone();
    url.set_query(None);
    let (url, connector) = (url.to_string(), net.connector());
    let store: object_store::Result<Arc<dyn ObjectStore>> = match address.kind {
        Kind::S3 => {
            let mut builder = AmazonS3Builder::from_env();
            for (name, value) in profile::variables(|name| std::env::var(name).ok()) {
                if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
                    builder = builder.with_config(key, value);
                }
            }
            // Its name in the environment of Amazon's own clients.
            if let Ok(endpoint) = std::env::var("AWS_EC2_METADATA_SERVICE_ENDPOINT") {
                builder = builder.with_metadata_endpoint(endpoint.trim_end_matches('/'));
            }
            let builder = builder.with_url(url).with_retry(retry).with_http_connector(connector);
            builder.build().map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
        }
        Kind::Google => {
            let mut builder = GoogleCloudStorageBuilder::from_env();
            if builder
                .get_config_value(&GoogleConfigKey::SkipSignature)
                .is_some_and(|on| is_true(&on))
            {
                // Otherwise saves would look for credentials all the same.
                builder = builder.with_bearer_token("");
            }
            let builder = builder.with_url(url).with_retry(retry);
            let store = builder.with_http_connector(connector).build();
            store.map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
        }
        Kind::Azure => {
            let builder = MicrosoftAzureBuilder::from_env().with_url(url).with_retry(retry);
            let store = builder.with_http_connector(connector).build();
            store.map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
        }
        Kind::Web => {
            return Err(Trouble::Unsupported("a web server has no list of objects".into()));
        }
    };
    // Its texts may quote what is in the environment.
    let store = store.map_err(|_| {
        Trouble::Credentials("the variables of the store are incomplete or malformed".into())
    })?;
    Ok((store, key))
}

/// Whether a setting of `object_store` is on.
fn is_true(setting: &str) -> bool {
    matches!(&setting.to_ascii_lowercase()[..], "1" | "true" | "on" | "yes" | "y")
}

/// Extensions of a request that tell what became of it.
pub(crate) fn with(seen: &Seen) -> Extensions {
    let mut extensions = Extensions::default();
    extensions.insert(seen.clone());
    extensions
}

/// Why a request of a store failed.
pub(crate) fn of_store(error: &object_store::Error, seen: &Seen) -> Trouble {
    match seen.get() {
        Some(Outcome::Failed(trouble)) => trouble,
        Some(Outcome::Answer { status, after, location }) => match status {
            412 => Trouble::Replaced,
            200 => Trouble::IgnoresRange,
            201..=299 => Trouble::WrongRange("its headers do not name the range asked for".into()),
            300..=399 => Trouble::Redirect(location),
            _ => Trouble::Status { status, code: code_in(&error.to_string()), after },
        },
        None => told(error).unwrap_or_else(|| {
            let places = "the environment, the profile, or the machine's metadata";
            Trouble::Credentials(format!("none could be had from {places}"))
        }),
    }
}
