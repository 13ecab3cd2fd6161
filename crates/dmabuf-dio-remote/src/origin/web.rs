// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects of web servers: plain GET requests. A URL that is signed for GET allows nothing else, so not even HEAD is
//! used.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt as _;
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_RANGE, ETAG, HeaderName, IF_MATCH,
    IF_UNMODIFIED_SINCE, LAST_MODIFIED, LOCATION, RANGE,
};
use reqwest::{Response, Url};

use super::answer::{Body, is_strong};
use crate::client::Clients;
use crate::net::start_of;
use crate::trouble::{Trouble, code_in, of_transport, retry_after};

/// How often a server may send us elsewhere before the first answer.
const MOST_REDIRECTS: usize = 10;

/// One version of an object of a web server.
pub(crate) struct Web {
    clients: Arc<Clients>,
    /// The URL that was asked for, and where the server has sent us from there.
    first: Url,
    url: Mutex<Url>,
    pub(crate) length: u64,
    pub(crate) tag: Option<String>,
    /// When it was modified: pins what has no tag.
    pub(crate) modified: Option<String>,
}

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web").field("length", &self.length).finish_non_exhaustive()
    }
}

impl Web {
    /// Asks for the first byte, and follows redirects.
    pub(crate) async fn open(clients: Arc<Clients>, first: &Url) -> Result<Self, Trouble> {
        let mut url = first.clone();
        for _ in 0..=MOST_REDIRECTS {
            let asked = clients.get(url.clone())?.header(RANGE, "bytes=0-0");
            let answer = asked.header(ACCEPT_ENCODING, "identity").send().await;
            let answer = answer.map_err(|error| of_transport(&error))?;
            let status = answer.status().as_u16();
            if answer.status().is_redirection() {
                let next = target(&answer, &url).ok_or(Trouble::Redirect(None))?;
                if url.scheme() == "https" && next.scheme() != "https" {
                    return Err(Trouble::Redirect(next.host_str().map(str::to_owned)));
                }
                url = next;
                continue;
            }
            let length = match status {
                206 => {
                    refuse_encoded(&answer)?;
                    content_range(&answer)?.1
                }
                200 if answer.content_length() == Some(0) => 0,
                200 => return Err(Trouble::IgnoresRange),
                416 if text(&answer, &CONTENT_RANGE).as_deref() == Some("bytes */0") => 0,
                _ => return Err(refused(answer).await),
            };
            let (tag, modified) = (text(&answer, &ETAG), text(&answer, &LAST_MODIFIED));
            let (first, url) = (first.clone(), Mutex::new(url));
            return Ok(Self { clients, first, url, length, tag, modified });
        }
        Err(Trouble::Redirect(url.host_str().map(str::to_owned)))
    }

    /// Asks for a range. Where we were sent to may have been signed for some time only: the server is asked once more.
    pub(crate) async fn get(&self, range: Range<u64>) -> Result<Body, Trouble> {
        let url = self.url().clone();
        match self.get_at(&url, range.clone()).await {
            Err(Trouble::Status { status: 401 | 403, .. }) if url != self.first => {}
            answer => return answer,
        }
        let again = Self::open(Arc::clone(&self.clients), &self.first).await?;
        let date = |web: &Self| web.modified.clone().filter(|_| web.tag.is_none());
        let pins = |web: &Self| (web.length, web.tag.clone(), date(web));
        if pins(&again) != pins(self) {
            return Err(Trouble::Replaced);
        }
        let url = again.url().clone();
        *self.url() = url.clone();
        self.get_at(&url, range).await
    }

    fn url(&self) -> MutexGuard<'_, Url> {
        self.url.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn get_at(&self, url: &Url, range: Range<u64>) -> Result<Body, Trouble> {
        let last = range.end - 1;
        let mut asked = self.clients.get(url.clone())?;
        asked = asked.header(RANGE, format!("bytes={}-{last}", range.start));
        asked = asked.header(ACCEPT_ENCODING, "identity");
        match (&self.tag, &self.modified) {
            (Some(tag), _) if is_strong(tag) => asked = asked.header(IF_MATCH, tag),
            (None, Some(date)) => asked = asked.header(IF_UNMODIFIED_SINCE, date),
            _ => {}
        }
        let answer = asked.send().await.map_err(|error| of_transport(&error))?;
        let differs = |ours: &Option<String>, name| {
            let theirs = text(&answer, name);
            ours.is_some() && theirs.is_some() && *ours != theirs
        };
        match answer.status().as_u16() {
            206 | 200 if differs(&self.tag, &ETAG) => return Err(Trouble::Replaced),
            206 | 200 if self.tag.is_none() && differs(&self.modified, &LAST_MODIFIED) => {
                return Err(Trouble::Replaced);
            }
            206 => {}
            200 => return Err(Trouble::IgnoresRange),
            412 => return Err(Trouble::Replaced),
            _ if answer.status().is_redirection() => {
                let host = target(&answer, url).and_then(|url| url.host_str().map(str::to_owned));
                return Err(Trouble::Redirect(host));
            }
            _ => return Err(refused(answer).await),
        }
        refuse_encoded(&answer)?;
        let (sent, length) = content_range(&answer)?;
        if length != self.length {
            return Err(Trouble::Replaced);
        }
        if sent != range {
            return Err(Trouble::WrongRange(format!("bytes {}..{}", sent.start, sent.end)));
        }
        let pieces = answer.bytes_stream();
        Ok(pieces.map(|piece| piece.map_err(|error| of_transport(&error))).boxed())
    }
}

/// Where a server sends us.
fn target(answer: &Response, url: &Url) -> Option<Url> {
    let mut next = url.join(&text(answer, &LOCATION)?).ok()?;
    if next.origin() == url.origin() && next.username().is_empty() && next.password().is_none() {
        // It is the same server: the user and the password are for it.
        next.set_username(url.username()).ok()?;
        next.set_password(url.password()).ok()?;
    }
    matches!(next.scheme(), "http" | "https").then_some(next)
}

/// The trouble of an answer that is no success.
async fn refused(answer: Response) -> Trouble {
    let (status, after) = (answer.status().as_u16(), retry_after(answer.headers()));
    let body = start_of(answer.bytes_stream()).await;
    Trouble::Status { status, code: code_in(&String::from_utf8_lossy(&body)), after }
}

fn refuse_encoded(answer: &Response) -> Result<(), Trouble> {
    match text(answer, &CONTENT_ENCODING) {
        Some(how) if how != "identity" => Err(Trouble::Encoded(how.chars().take(20).collect())),
        _ => Ok(()),
    }
}

/// The range in an answer, and the length of the whole.
fn content_range(answer: &Response) -> Result<(Range<u64>, u64), Trouble> {
    let found = text(answer, &CONTENT_RANGE);
    let wrong = || {
        let found = found.clone().unwrap_or_else(|| "none is named".into());
        Trouble::WrongRange(found.chars().take(60).collect())
    };
    parse_content_range(found.as_deref().unwrap_or_default()).ok_or_else(wrong)
}

pub(crate) fn parse_content_range(text: &str) -> Option<(Range<u64>, u64)> {
    let (range, length) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, length) =
        (first.parse().ok()?, last.parse::<u64>().ok()?, length.parse().ok()?);
    let end = last.checked_add(1)?;
    (first < end && end <= length).then_some((first..end, length))
}

fn text(answer: &Response, name: &HeaderName) -> Option<String> {
    Some(answer.headers().get(name)?.to_str().ok()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges_are_parsed() {
        assert_eq!(parse_content_range("bytes 0-0/10"), Some((0..1, 10)));
        assert_eq!(parse_content_range(" bytes 5-9/10 "), Some((5..10, 10)));
        for wrong in [
            "",
            "bytes */10",
            "bytes 0-0/*",
            "bytes 5-4/10",
            "bytes 5-10/10",
            "0-0/10",
            "bytes 1/2",
            "bytes 0-18446744073709551615/1",
        ] {
            assert_eq!(parse_content_range(wrong), None, "{wrong}");
        }
    }
}
