// SPDX-License-Identifier: MIT OR Apache-2.0
//! The HTTP client and the threads that move its bytes.

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use object_store::ClientOptions;
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest,
    HttpResponse, HttpService,
};
use reqwest::Client;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::settings::Settings;
use crate::trouble::{Trouble, of_transport, retry_after};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// The same for the metadata of the machine, which is near or not there at all.
const CONNECT_METADATA: Duration = Duration::from_secs(1);

/// Bytes of an error page that are read, and how long that may take: its status is known without.
const LONGEST_PAGE: usize = 16 << 10;
const PAGE: Duration = Duration::from_secs(1);

/// Bytes of the longest answer that is no range: a list has at most 5,000 names.
const LONGEST_LIST: usize = 32 << 20;

/// A client and its threads.
pub(crate) struct Net {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    pub(crate) client: Client,
    /// Without a proxy.
    direct: Client,
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").finish_non_exhaustive()
    }
}

impl Net {
    pub(crate) fn new(settings: &Settings) -> Result<Self, Trouble> {
        let tls = tls(settings.ca.clone().or_else(|| {
            // What other clients of S3 read, too.
            std::env::var_os("AWS_CA_BUNDLE").map(PathBuf::from)
        }))?;
        let builder = |connect| {
            Client::builder()
                .user_agent(concat!("dmabuf-dio/", env!("CARGO_PKG_VERSION")))
                .tls_backend_preconfigured(tls.clone())
                // Several connections bring more than streams of one.
                .http1_only()
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(connect)
                .pool_max_idle_per_host(settings.most_ranges as usize)
        };
        let other = |error: reqwest::Error| Trouble::Setting(format!("no HTTP client: {error}"));
        let client = builder(CONNECT).build().map_err(other)?;
        let direct = builder(CONNECT_METADATA).no_proxy().build().map_err(other)?;
        // They read sockets and decrypt; the bytes are copied by the threads that wait for them.
        let threads = std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(4));
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("dmabuf-dio-net")
            .enable_all()
            .build();
        let runtime = runtime
            .map_err(|error| Trouble::Other(format!("threads cannot be started: {error}")))?;
        Ok(Self { runtime: Some(runtime), client, direct })
    }

    /// Waits for a future, also in a thread of a runtime of the caller's, which may not block as it is.
    pub(crate) fn run<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        let handle = self.handle();
        if Handle::try_current().is_err() {
            return handle.block_on(future);
        }
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| handle.block_on(future));
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn handle(&self) -> &Handle {
        self.runtime.as_ref().map(Runtime::handle).expect("it is there until it is dropped")
    }

    /// What makes the clients of stores: all with this one's connections.
    pub(crate) fn connector(&self) -> Connector {
        Connector { client: self.client.clone(), direct: self.direct.clone() }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // A look-up of a name cannot be stopped, and need not be waited for.
        self.runtime.take().map(Runtime::shutdown_background).unwrap_or_default();
    }
}

/// TLS with the CAs of the system, and those of the file.
fn tls(ca: Option<PathBuf>) -> Result<rustls::ClientConfig, Trouble> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca {
        add(&mut roots, &path)
            .map_err(|why| Trouble::Setting(format!("the CAs of {}: {why}", path.display())))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Trouble::Setting(format!("TLS: {error}")))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
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

/// Gives stores our client, instead of one of their own.
#[derive(Debug)]
pub(crate) struct Connector {
    client: Client,
    direct: Client,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // Requests to the metadata of the machine are told by their short limit.
        let limit = options.get_config_value(&ClientConfigKey::ConnectTimeout);
        let is_metadata = limit.is_some_and(|limit| limit.starts_with("1s") || limit == "1 second");
        let client = if is_metadata { &self.direct } else { &self.client };
        Ok(HttpClient::new(Service(client.clone())))
    }
}

#[derive(Debug)]
struct Service(Client);

/// What became of a request: its errors alone do not tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(Arc<Mutex<Option<Outcome>>>);

#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Answer { status: u16, after: Option<Duration>, location: Option<String> },
    Failed(Trouble),
}

impl Seen {
    pub(crate) fn get(&self) -> Option<Outcome> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, outcome: Outcome) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }
}

impl HttpService for Service {
    fn call<'life0, 'async_trait>(
        &'life0 self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let seen = request.extensions().get::<Seen>().cloned().unwrap_or_default();
            // All that is asked for without a range is short, and kept in memory whole.
            let is_range = request.headers().contains_key(reqwest::header::RANGE);
            let result = HttpService::call(&self.0, request).await;
            seen.set(match &result {
                Ok(answer) => Outcome::Answer {
                    status: answer.status().as_u16(),
                    after: retry_after(answer.headers()),
                    location: answer
                        .headers()
                        .get(reqwest::header::LOCATION)
                        .and_then(|location| reqwest::Url::parse(location.to_str().ok()?).ok())
                        .and_then(|url| url.host_str().map(str::to_owned)),
                },
                Err(error) => Outcome::Failed(of_transport(error)),
            });
            match result? {
                answer if !answer.status().is_success() => Ok(refused(answer).await),
                answer if !is_range => limited(answer).await,
                answer => Ok(answer),
            }
        })
    }
}

/// An answer that is no success, with what its page may tell.
async fn refused(answer: HttpResponse) -> HttpResponse {
    let (head, page) = answer.into_parts();
    HttpResponse::from_parts(head, start_of(page.bytes_stream()).await.into())
}

/// The start of an error page: a little, and soon.
pub(crate) async fn start_of<B: AsRef<[u8]>, E>(page: impl Stream<Item = Result<B, E>>) -> Vec<u8> {
    let mut page = pin!(page);
    let mut bytes = Vec::new();
    let read = async {
        while let Some(Ok(piece)) = page.next().await {
            bytes.extend_from_slice(piece.as_ref());
            if bytes.len() > LONGEST_PAGE {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(PAGE, read).await;
    bytes.truncate(LONGEST_PAGE);
    bytes
}

/// An answer whose body is not longer than a list may be.
async fn limited(answer: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (head, body) = answer.into_parts();
    let mut pieces = body.bytes_stream();
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.next().await {
        bytes.extend_from_slice(&piece?);
        if bytes.len() > LONGEST_LIST {
            let error = std::io::Error::other("the answer is too long");
            return Err(HttpError::new(HttpErrorKind::Decode, error));
        }
    }
    Ok(HttpResponse::from_parts(head, bytes.into()))
}
