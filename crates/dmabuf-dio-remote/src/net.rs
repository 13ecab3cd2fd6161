// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads that move the bytes of HTTP, and what stores send their requests by.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use object_store::ClientOptions;
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest,
    HttpResponse, HttpService,
};
use reqwest::{Method, header};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::client::Clients;
use crate::settings::Settings;
use crate::trouble::{Told, Trouble, of_transport, retry_after};

/// How long a service may take that gives credentials.
const CREDENTIALS: Duration = Duration::from_secs(10);

/// Bytes of an error page that are read, and how long that may take: its status is known without.
const LONGEST_PAGE: usize = 16 << 10;
const PAGE: Duration = Duration::from_secs(1);

/// Bytes of the longest answer that is no range: a list has at most 5,000 names.
const LONGEST_LIST: usize = 32 << 20;

/// Clients and their threads.
pub(crate) struct Net {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    pub(crate) clients: Arc<Clients>,
    /// Those for the metadata of the machine.
    direct: Arc<Clients>,
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").finish_non_exhaustive()
    }
}

impl Net {
    pub(crate) fn new(settings: &Settings) -> Result<Self, Trouble> {
        let (clients, direct) = (Clients::new(settings, false), Clients::new(settings, true));
        // They read sockets and decrypt; the bytes are copied by the threads that wait for them.
        let threads = std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(4));
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("dmabuf-dio-net")
            .enable_all()
            .build();
        let runtime = runtime
            .map_err(|error| Trouble::Other(format!("threads cannot be started: {error}")))?;
        Ok(Self { runtime: Some(runtime), clients, direct })
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
        Connector { clients: Arc::clone(&self.clients), direct: Arc::clone(&self.direct) }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // A look-up of a name cannot be stopped, and need not be waited for.
        self.runtime.take().map(Runtime::shutdown_background).unwrap_or_default();
    }
}

/// Gives stores our client, instead of one of their own.
#[derive(Debug)]
pub(crate) struct Connector {
    clients: Arc<Clients>,
    direct: Arc<Clients>,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // Requests to the metadata of the machine are told by their short limit.
        let limit = options.get_config_value(&ClientConfigKey::ConnectTimeout);
        let is_metadata = limit.is_some_and(|limit| limit.starts_with("1s") || limit == "1 second");
        let clients = if is_metadata { &self.direct } else { &self.clients };
        Ok(HttpClient::new(Service(Arc::clone(clients))))
    }
}

#[derive(Debug)]
struct Service(Arc<Clients>);

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
            if !is_for_credentials(&request) {
                return self.ask(request).await;
            }
            // Whatever waits for them waits for more than this one request.
            let answer = tokio::time::timeout(CREDENTIALS, self.ask(request)).await;
            answer.unwrap_or_else(|_| {
                let seconds = CREDENTIALS.as_secs();
                Err(no_credentials(format!("the service that gives them took {seconds} s")))
            })
        })
    }
}

impl Service {
    async fn ask(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let seen = request.extensions().get::<Seen>().cloned().unwrap_or_default();
        let for_credentials = is_for_credentials(&request);
        // All that is asked for without a range is short, and kept in memory whole.
        let is_range = request.headers().contains_key(header::RANGE);
        let client = self.0.of(request.uri().scheme_str()).map_err(|trouble| {
            seen.set(Outcome::Failed(trouble.clone()));
            HttpError::new(HttpErrorKind::Unknown, Told(trouble))
        })?;
        let result = HttpService::call(client, request).await;
        seen.set(match &result {
            Ok(answer) => Outcome::Answer {
                status: answer.status().as_u16(),
                after: retry_after(answer.headers()),
                location: answer
                    .headers()
                    .get(header::LOCATION)
                    .and_then(|location| reqwest::Url::parse(location.to_str().ok()?).ok())
                    .and_then(|url| url.host_str().map(str::to_owned)),
            },
            Err(error) => Outcome::Failed(of_transport(error)),
        });
        match result? {
            answer if for_credentials && answer.status().is_client_error() => {
                let status = answer.status().as_u16();
                Err(no_credentials(format!("the service that gives them answered {status}")))
            }
            answer if !answer.status().is_success() => Ok(refused(answer).await),
            answer if !is_range => limited(answer).await,
            answer => Ok(answer),
        }
    }
}

/// Whether a request is one for credentials: it has none itself, of those that stores sign or name a version by.
fn is_for_credentials(request: &HttpRequest) -> bool {
    let headers = request.headers();
    let is_bearer = |value: &header::HeaderValue| value.as_bytes().starts_with(b"Bearer ");
    request.extensions().get::<Seen>().is_none()
        && !headers.contains_key("x-amz-content-sha256")
        && !headers.contains_key("x-ms-version")
        && !headers.get(header::AUTHORIZATION).is_some_and(is_bearer)
        // Those of uploads and lists that are not signed.
        && !request.uri().query().unwrap_or_default().contains("uploadId=")
        && !request.uri().query().unwrap_or_default().contains("list-type=")
        && request.method() != Method::DELETE
}

fn no_credentials(why: String) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, Told(Trouble::Credentials(why)))
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
