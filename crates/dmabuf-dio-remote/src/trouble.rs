// SPDX-License-Identifier: MIT OR Apache-2.0
//! What goes wrong with requests, and what to do about it. No text here has a URL, a header or a body: those may have
//! secrets.

use std::error::Error as StdError;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use dmabuf_dio::{Direction, Errno, Error};

/// Why a request failed, or its answer is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It is no URL of an object.
    Address(String),
    /// Names of objects are no names of files.
    Names(String),
    /// A setting cannot be used.
    Setting(String),
    /// The request could not be signed.
    Credentials(String),
    /// The store has answered before, and new credentials could not be had.
    Renewal,
    /// The answer's status is no success. `code` is the store's own word for it.
    Status { status: u16, code: Option<String>, after: Option<Duration> },
    /// No connection.
    Connect(String),
    /// The server's certificate is not trusted.
    Certificate(String),
    /// The connection ended before the answer did.
    Broken(String),
    /// Nothing arrived for so long.
    Stalled(Duration),
    /// The answer has less than was asked for.
    Short { got: u64 },
    /// The answer has more.
    Long,
    /// The server sent the whole object.
    IgnoresRange,
    /// The server sent other bytes.
    WrongRange(String),
    /// The object is another one than before.
    Replaced,
    /// The answer is compressed.
    Encoded(String),
    /// The object is elsewhere: on that host, if the server says so.
    Redirect(Option<String>),
    /// A sum differs, also after the chunk was fetched again.
    Sum,
    /// The SHA-256 of the whole differs.
    Whole { found: String },
    /// A part was asked for where the whole is to be checked.
    Part,
    /// The sums are of something else.
    OtherSums { length: u64 },
    /// The store cannot do that.
    Unsupported(String),
    /// The load was cancelled.
    Cancelled,
    /// Something else.
    Other(String),
}

impl Trouble {
    /// Whether the same request may succeed later.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500 | 502..=504),
            Self::Connect(_)
            | Self::Broken(_)
            | Self::Stalled(_)
            | Self::Short { .. }
            | Self::Renewal => true,
            _ => false,
        }
    }

    /// Whether the store wants fewer requests.
    pub(crate) fn is_too_much(&self) -> bool {
        matches!(self, Self::Status { status: 429 | 503, .. } | Self::Stalled(_))
    }

    /// How long the store wants to be left alone.
    pub(crate) fn after(&self) -> Option<Duration> {
        match self {
            Self::Status { after, .. } => *after,
            _ => None,
        }
    }

    /// What failed, for a sentence.
    fn what(&self) -> String {
        match self {
            Self::Address(what) => format!("it is no URL of an object: {what}"),
            Self::Names(what)
            | Self::Setting(what)
            | Self::Unsupported(what)
            | Self::Other(what) => what.clone(),
            Self::Credentials(what) => format!("no credentials: {what}"),
            Self::Renewal => "the credentials could not be renewed".into(),
            Self::Status { status, code, .. } => {
                let code = code.as_ref().map_or_else(String::new, |code| format!(", {code}"));
                format!("the server answered {status}{code}")
            }
            Self::Connect(what) => format!("cannot connect: {what}"),
            Self::Certificate(what) => format!("the server's certificate is not trusted: {what}"),
            Self::Broken(what) => format!("the connection broke: {what}"),
            Self::Stalled(time) => format!("nothing arrived for {} ms", time.as_millis()),
            Self::Short { got } => format!("the answer ended after {got} bytes"),
            Self::Long => "the answer is longer than the range".into(),
            Self::IgnoresRange => "the server ignores Range: it sent the whole object".into(),
            Self::WrongRange(found) => format!("the server sent another range: {found}"),
            Self::Replaced => "the object was replaced since it was opened".into(),
            Self::Encoded(how) => format!("the server sent it encoded: {how}"),
            Self::Redirect(Some(host)) => format!("the server redirects to {host}"),
            Self::Redirect(None) => "the server redirects elsewhere".into(),
            Self::Sum => "the sum of the chunk differs, also after it was fetched again".into(),
            Self::Whole { found } => format!("the SHA-256 is {found}"),
            Self::Part => "the SHA-256 of the whole cannot be checked of a part".into(),
            Self::OtherSums { length } => format!("the sums are of {length} bytes"),
            Self::Cancelled => "it was cancelled".into(),
        }
    }

    fn number(&self) -> i32 {
        match self {
            Self::Status { status, .. } => match status {
                401 | 403 => libc::EACCES,
                404 | 410 => libc::ENOENT,
                412 | 416 => libc::ESTALE,
                429 | 503 => libc::EBUSY,
                408 | 504 => libc::ETIMEDOUT,
                _ => libc::EIO,
            },
            Self::Address(_)
            | Self::Names(_)
            | Self::Setting(_)
            | Self::Part
            | Self::OtherSums { .. } => libc::EINVAL,
            Self::Credentials(_) | Self::Renewal => libc::EACCES,
            Self::Connect(_) => libc::EHOSTUNREACH,
            Self::Certificate(_) => libc::EKEYREJECTED,
            Self::Broken(_) | Self::Short { .. } => libc::ECONNRESET,
            Self::Stalled(_) => libc::ETIMEDOUT,
            Self::Replaced => libc::ESTALE,
            Self::Sum | Self::Whole { .. } => libc::EBADMSG,
            Self::IgnoresRange | Self::Unsupported(_) => libc::EOPNOTSUPP,
            Self::Long | Self::WrongRange(_) | Self::Encoded(_) | Self::Redirect(_) => libc::EPROTO,
            Self::Cancelled => libc::ECANCELED,
            Self::Other(_) => libc::EIO,
        }
    }

    fn remedy(&self) -> &'static str {
        match self {
            Self::Address(_) => {
                "write s3://BUCKET/KEY, gs://BUCKET/KEY, az://CONTAINER/KEY or https://HOST/PATH"
            }
            Self::Names(_) => "rename the object, or load the others by a longer prefix",
            Self::Setting(_) => "correct the setting",
            Self::Credentials(_) => {
                "set the store's variables, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
                 AWS_SKIP_SIGNATURE=true for a public object (docs/remote.md)"
            }
            Self::Renewal => {
                "look at where the credentials come from: the machine's metadata, or the server of tokens"
            }
            Self::Status { status, .. } => match status {
                401 | 403 => {
                    "check the credentials and what they allow, or for a public object set AWS_SKIP_SIGNATURE=true; a \
                     signed URL may have expired"
                }
                404 | 410 => "check the name: the bucket, and the key or path",
                412 | 416 => "load it again: it was replaced meanwhile",
                429 | 503 => "load it later, or from a cache near this machine",
                400 => {
                    "check the region and the endpoint: AWS_REGION, AWS_ENDPOINT_URL, GOOGLE_BASE_URL, \
                     AZURE_STORAGE_ENDPOINT"
                }
                _ => "load it later; look at the server if it goes on",
            },
            Self::Connect(_) => {
                "check the host, the network, and the proxy: HTTPS_PROXY, NO_PROXY; the endpoint: AWS_ENDPOINT_URL, \
                 GOOGLE_BASE_URL, AZURE_STORAGE_ENDPOINT"
            }
            Self::Certificate(_) => {
                "name a file with the CA (--ca, SSL_CERT_FILE), if the server is to be trusted; check the clock, too"
            }
            Self::Broken(_) | Self::Stalled(_) | Self::Short { .. } => {
                "load it again; look at the network and at proxies if it goes on"
            }
            Self::Long | Self::WrongRange(_) => {
                "look at the server or a proxy before it: it answers wrongly"
            }
            Self::IgnoresRange => {
                "serve it from a server that answers Range requests, or download it first"
            }
            Self::Replaced | Self::Other(_) => "load it again",
            Self::Encoded(_) => "have it served as it is, without a Content-Encoding",
            Self::Redirect(_) => {
                "name the object where it is; for a bucket of another region set AWS_REGION"
            }
            Self::Sum | Self::Whole { .. } => {
                "compare the object with its source, and make sums of that"
            }
            Self::Part => "leave out the offset and the length, or check the chunks by --sums",
            Self::OtherSums { .. } => "make the sums of this version: dmabuf-dio sum",
            Self::Unsupported(_) => "use another store, or a file",
            Self::Cancelled => "start again",
        }
    }
}

/// The error of a range of an object; of none if that is empty.
pub(crate) fn failed(name: &Path, range: Range<u64>, trouble: &Trouble) -> Error {
    if *trouble == Trouble::Cancelled {
        let (path, length) = (name.to_owned(), range.end - range.start);
        return Error::Cancelled { path, direction: Direction::Load, done: 0, length };
    }
    Error::Content {
        name: name.to_owned(),
        offset: range.start,
        length: range.end - range.start,
        what: trouble.what(),
        errno: Errno::from_raw(trouble.number()),
        remedy: trouble.remedy().into(),
    }
}

/// An error below those of a store, of which we know more than the store does.
#[derive(Debug)]
pub(crate) struct Told(pub(crate) Trouble);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.what())
    }
}

impl StdError for Told {}

/// What such an error below another one tells.
pub(crate) fn told(error: &(dyn StdError + 'static)) -> Option<Trouble> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(Told(trouble)) = error.downcast_ref::<Told>() {
            return Some(trouble.clone());
        }
        next = error.source();
    }
    None
}

/// Why a connection or a body failed, from the errors below an error of the client. Their own texts name no URL.
pub(crate) fn of_transport(error: &(dyn StdError + 'static)) -> Trouble {
    let mut connecting = false;
    let mut timed_out = false;
    let mut last = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<reqwest::Error>() {
            connecting |= error.is_connect();
            timed_out |= error.is_timeout();
        } else if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return of_tls(error);
        } else if let Some(error) = error.downcast_ref::<std::io::Error>() {
            let mut inner = error.get_ref();
            while let Some(error) = inner {
                if let Some(error) = error.downcast_ref::<rustls::Error>() {
                    return of_tls(error);
                }
                inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
            }
            timed_out |= error.kind() == std::io::ErrorKind::TimedOut;
            last = error.to_string();
        } else if error.source().is_none() {
            last = error.to_string();
        }
        next = error.source();
    }
    if last.is_empty() || last.contains("://") {
        last = if timed_out { "it took too long".into() } else { "the request failed".into() };
    }
    // Some layers keep only the text of the error below.
    if let Some(why) = last.strip_prefix("invalid peer certificate: ") {
        return Trouble::Certificate(why.to_owned());
    }
    if connecting { Trouble::Connect(last) } else { Trouble::Broken(last) }
}

fn of_tls(error: &rustls::Error) -> Trouble {
    match error {
        rustls::Error::InvalidCertificate(why) => Trouble::Certificate(why.to_string()),
        rustls::Error::NoCertificatesPresented => Trouble::Certificate("it has none".into()),
        error => Trouble::Connect(error.to_string()),
    }
}

/// The store's word for an error, from the XML or JSON of its answer.
pub(crate) fn code_in(body: &str) -> Option<String> {
    let after = |mark: &str| body.split_once(mark).map(|(_, rest)| rest.trim_start());
    let rest = after("<Code>").or_else(|| after("\"code\":\""))?;
    let is_word = |letter: char| letter.is_ascii_alphanumeric();
    let code: String = rest.chars().take_while(|letter| is_word(*letter)).take(60).collect();
    (!code.is_empty()).then_some(code)
}

/// The status in the text of an error of a store.
pub(crate) fn status_in(text: &str) -> Option<u16> {
    text.split_once("status code: ")?.1.get(..3)?.parse().ok()
}

/// More than this is as much as for ever.
pub(crate) const LONGEST_AFTER: Duration = Duration::from_secs(60 * 60);

/// The time in `Retry-After`: seconds. Stores send no date there, which would need their clock.
pub(crate) fn retry_after(headers: &reqwest::header::HeaderMap) -> Option<Duration> {
    let text = headers.get(reqwest::header::RETRY_AFTER)?.to_str().ok()?;
    let seconds = text.trim().parse().ok().map(Duration::from_secs);
    seconds.map(|after| after.min(LONGEST_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_code_of_an_answer_is_told() {
        let xml = "<?xml?><Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>AKIA1</AWSAccessKeyId></Error>";
        assert_eq!(code_in(xml).as_deref(), Some("SignatureDoesNotMatch"));
        assert_eq!(code_in("<Code>a b</Code>").as_deref(), Some("a"));
        assert_eq!(status_in("returned non-2xx status code: 403 Forbidden: x"), Some(403));
        assert_eq!((status_in("status code: x"), status_in("")), (None, None));
        assert_eq!(code_in("no"), None);
        assert_eq!(code_in("<Code></Code>"), None);
    }

    #[test]
    fn certificate_is_told_from_other_reasons() {
        use rustls::CertificateError::UnknownIssuer;
        let io = |error: Box<dyn StdError + Send + Sync>| {
            std::io::Error::new(std::io::ErrorKind::InvalidData, error)
        };
        let tls = rustls::Error::InvalidCertificate(UnknownIssuer);
        let nested = io(io(tls.clone().into()).into());
        for error in [nested, io(tls.to_string().into())] {
            assert!(matches!(of_transport(&error), Trouble::Certificate(_)), "{error:?}");
        }
        let other = std::io::Error::from_raw_os_error(libc::ECONNRESET);
        assert!(matches!(of_transport(&other), Trouble::Broken(_)));
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        let status = |status| Trouble::Status { status, code: None, after: None };
        for (trouble, passes) in [
            (status(503), true),
            (status(500), true),
            (status(429), true),
            (status(501), false),
            (status(403), false),
            (status(404), false),
            (status(412), false),
            (Trouble::Broken(String::new()), true),
            (Trouble::Short { got: 1 }, true),
            (Trouble::Renewal, true),
            (Trouble::Credentials(String::new()), false),
            (Trouble::Long, false),
            (Trouble::IgnoresRange, false),
            (Trouble::Certificate(String::new()), false),
            (Trouble::Redirect(None), false),
        ] {
            assert_eq!(trouble.passes(), passes, "{trouble:?}");
            let error = failed(Path::new("s3://b/k"), 5..9, &trouble);
            assert!(
                error.to_string().starts_with("s3://b/k: bytes 5..9 cannot be read: "),
                "{error}"
            );
            assert!(!error.hint().to_string().is_empty() && error.errno().is_some());
        }
    }
}
