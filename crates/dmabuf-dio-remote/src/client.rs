// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP clients: one of them has the CAs, which are read when something is first asked for by https.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::{Client, RequestBuilder, Url};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::settings::Settings;
use crate::trouble::Trouble;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// The same for the metadata of the machine, which is near or not there at all.
const CONNECT_METADATA: Duration = Duration::from_secs(1);

/// What tells a proxy, which may be one of https: then it has a certificate, whatever is asked for.
const PROXIES: [&str; 4] = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];

/// Clients of one kind, made when they are needed.
#[derive(Debug)]
pub(crate) struct Clients {
    ca: Option<PathBuf>,
    connections: usize,
    /// Of the machine itself: without a proxy.
    is_direct: bool,
    plain: OnceLock<Result<Client, Trouble>>,
    secure: OnceLock<Result<Client, Trouble>>,
}

impl Clients {
    pub(crate) fn new(settings: &Settings, is_direct: bool) -> Arc<Self> {
        // What other clients of S3 read, too.
        let ca = settings.ca.clone();
        let ca = ca.or_else(|| std::env::var_os("AWS_CA_BUNDLE").map(PathBuf::from));
        let connections = settings.most_ranges as usize;
        let (plain, secure) = (OnceLock::new(), OnceLock::new());
        Arc::new(Self { ca, connections, is_direct, plain, secure })
    }

    /// The client for URLs of that scheme.
    pub(crate) fn of(&self, scheme: Option<&str>) -> Result<&Client, Trouble> {
        let is_plain = scheme == Some("http") && (self.is_direct || !has_secure_proxy());
        let client = if is_plain {
            self.plain.get_or_init(|| self.make(rustls::RootCertStore::empty()))
        } else {
            self.secure.get_or_init(|| self.make(roots(self.ca.as_deref())?))
        };
        client.as_ref().map_err(Clone::clone)
    }

    /// A request for what is at a URL.
    pub(crate) fn get(&self, url: Url) -> Result<RequestBuilder, Trouble> {
        Ok(self.of(Some(url.scheme()))?.get(url))
    }

    fn make(&self, roots: rustls::RootCertStore) -> Result<Client, Trouble> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Trouble::Setting(format!("TLS: {error}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let builder = Client::builder()
            .user_agent(concat!("dmabuf-dio/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(tls)
            // Several connections bring more than streams of one.
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(if self.is_direct { CONNECT_METADATA } else { CONNECT })
            .pool_max_idle_per_host(self.connections);
        let builder = if self.is_direct { builder.no_proxy() } else { builder };
        builder.build().map_err(|error| Trouble::Setting(format!("no HTTP client: {error}")))
    }
}

fn has_secure_proxy() -> bool {
    let is_secure = |name: &str| std::env::var(name).is_ok_and(|url| url.starts_with("https:"));
    PROXIES.into_iter().any(is_secure)
}

/// The CAs of the system, and those of the file.
fn roots(ca: Option<&Path>) -> Result<rustls::RootCertStore, Trouble> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca {
        add(&mut roots, path)
            .map_err(|why| Trouble::Setting(format!("the CAs of {}: {why}", path.display())))?;
    }
    Ok(roots)
}

fn add(roots: &mut rustls::RootCertStore, path: &Path) -> Result<(), String> {
    let found = CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())?;
    let mut count = 0;
    for certificate in found {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
        count += 1;
    }
    if count == 0 { Err("there is no certificate in it".into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cas_are_read_when_https_is_met() {
        let ca = Some(PathBuf::from("/none"));
        let clients = Clients::new(&Settings { ca, ..Settings::default() }, true);
        assert!(clients.of(Some("http")).is_ok());
        assert!(clients.secure.get().is_none());
        for scheme in [Some("https"), None] {
            let trouble = clients.of(scheme).expect_err("there is no such file");
            assert!(matches!(&trouble, Trouble::Setting(what) if what.contains("/none")));
        }
    }
}
