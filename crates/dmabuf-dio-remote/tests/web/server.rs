// SPDX-License-Identifier: MIT OR Apache-2.0
//! A web server with one object, and faults.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Objects of a store are below; they have a date.
const BUCKET: &str = "/bucket/";

/// What is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The connection is closed after so many bytes of the body.
    Close(usize),
    /// Nothing more comes after so many bytes of the body.
    Stall(usize),
    /// Another status, with further headers and a body.
    Status(u16, &'static str, &'static str),
    /// The whole object, as if no range had been asked for.
    IgnoreRange,
    /// The range one byte further on.
    OtherRange,
    /// No range is named.
    NoRange,
    /// More bytes than the range has.
    Long,
    /// Fewer bytes than the range has, and a length that fits them.
    Short,
    /// The byte at this offset of the object is another one.
    Flip(u64),
    /// Another tag.
    Tag(&'static str),
    /// It is elsewhere.
    Redirect(String),
    /// It is compressed.
    Gzip,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// How many came before, without the first, by which the object is opened.
    pub(crate) number: u64,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) range: Option<Range<u64>>,
}

impl Request {
    fn is_first(&self) -> bool {
        self.range == Some(0..1)
    }
}

type Faults = dyn Fn(&Request) -> Fault + Send + Sync;

struct Shared {
    bytes: Vec<u8>,
    tag: Option<&'static str>,
    faults: Box<Faults>,
    requests: Mutex<Vec<Request>>,
    count: AtomicU64,
    ends: AtomicBool,
}

pub(crate) struct Server {
    shared: Arc<Shared>,
    address: std::net::SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves these bytes; `faults` says what is wrong with each answer but the first.
    pub(crate) fn new(
        bytes: Vec<u8>,
        faults: impl Fn(&Request) -> Fault + Send + Sync + 'static,
    ) -> Self {
        Self::tagged(bytes, Some("\"v1\""), faults)
    }

    pub(crate) fn tagged(
        bytes: Vec<u8>,
        tag: Option<&'static str>,
        faults: impl Fn(&Request) -> Fault + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            bytes,
            tag,
            faults: Box::new(faults),
            requests: Mutex::default(),
            count: AtomicU64::new(0),
            ends: AtomicBool::new(false),
        });
        let ours = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ours.ends.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), shared) = (stream, Arc::clone(&ours)) else { continue };
                std::thread::spawn(move || shared.serve(&stream));
            }
        });
        Self { shared, address, thread: Some(thread) }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.shared.bytes
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().expect("no panic").clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        self.thread.take().map(JoinHandle::join).expect("once").expect("it ended");
    }
}

impl Shared {
    /// Answers the requests of a connection.
    fn serve(&self, stream: &TcpStream) {
        // Head and body are two writes: the second would wait for the client's delayed acknowledgement.
        stream.set_nodelay(true).expect("an option of TCP");
        let mut reader = BufReader::new(stream);
        while let Some(mut request) = parse(&mut reader) {
            let fault = if request.is_first() && self.count.load(Ordering::Relaxed) == 0 {
                // The tests choose faults of the answers that are loaded.
                match (self.faults)(&Request { number: u64::MAX, ..request.clone() }) {
                    fault @ (Fault::Redirect(_) | Fault::IgnoreRange | Fault::Status(..)) => fault,
                    _ => Fault::None,
                }
            } else {
                request.number = self.count.fetch_add(1, Ordering::Relaxed);
                (self.faults)(&request)
            };
            self.requests.lock().expect("no panic").push(request.clone());
            if self.answer(stream, &request, &fault).is_none() {
                return;
            }
        }
    }

    /// `None` if the connection is to end.
    fn answer(&self, mut stream: &TcpStream, request: &Request, fault: &Fault) -> Option<()> {
        let all = self.bytes.len() as u64;
        let mut send = |bytes: &[u8]| stream.write_all(bytes).ok();
        match fault {
            Fault::Status(status, headers, body) => {
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status} No\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
                );
                return send(head.as_bytes());
            }
            Fault::Redirect(url) => {
                let head =
                    format!("HTTP/1.1 302 Go\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n");
                return send(head.as_bytes());
            }
            _ => {}
        }
        let tag = match fault {
            Fault::Tag(tag) => Some(*tag),
            _ => self.tag,
        };
        let mut tag = tag.map_or_else(String::new, |tag| format!("ETag: {tag}\r\n"));
        if request.path.starts_with(BUCKET) {
            tag += "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n";
        }
        let wanted = request.headers.get("if-match");
        if wanted.is_some_and(|wanted| self.tag != Some(wanted.as_str())) {
            return send(b"HTTP/1.1 412 No\r\nContent-Length: 0\r\n\r\n");
        }
        let range = request.range.clone().filter(|_| *fault != Fault::IgnoreRange);
        let Some(range) = range else {
            send(format!("HTTP/1.1 200 OK\r\nContent-Length: {all}\r\n{tag}\r\n").as_bytes())?;
            return if request.method == "HEAD" { Some(()) } else { send(&self.bytes) };
        };
        if range.start >= all {
            let head = format!(
                "HTTP/1.1 416 No\r\nContent-Range: bytes */{all}\r\nContent-Length: 0\r\n\r\n"
            );
            return send(head.as_bytes());
        }
        let range = range.start..range.end.min(all);
        let mut body = self.bytes[range.start as usize..range.end as usize].to_vec();
        match fault {
            Fault::Flip(at) if range.contains(at) => body[(at - range.start) as usize] ^= 1,
            Fault::Long => body.extend_from_slice(b"more"),
            Fault::Short => body.truncate(body.len() / 2),
            _ => {}
        }
        let first = range.start + u64::from(*fault == Fault::OtherRange);
        let last = range.end - 1 + u64::from(*fault == Fault::OtherRange);
        let mut head = format!("HTTP/1.1 206 Part\r\nContent-Length: {}\r\n{tag}", body.len());
        if *fault != Fault::NoRange {
            head += &format!("Content-Range: bytes {first}-{last}/{all}\r\n");
        }
        if *fault == Fault::Gzip {
            head += "Content-Encoding: gzip\r\n";
        }
        send(format!("{head}\r\n").as_bytes())?;
        match fault {
            Fault::Close(after) => {
                send(&body[..body.len().min(*after)]);
                let _ = stream.shutdown(std::net::Shutdown::Both);
                None
            }
            Fault::Stall(after) => {
                send(&body[..body.len().min(*after)])?;
                // Until the client gives up.
                let _ = stream.read(&mut [0]);
                None
            }
            _ => send(&body),
        }
    }
}

fn parse(reader: &mut BufReader<&TcpStream>) -> Option<Request> {
    let mut first = String::new();
    if reader.read_line(&mut first).ok()? == 0 {
        return None;
    }
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let range = headers.get("range").and_then(|range| {
        let (start, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some(start.parse().ok()?..last.parse::<u64>().ok()? + 1)
    });
    Some(Request { number: 0, method, path, headers, range })
}
