// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads from a web server of the tests: right bytes, or an error that names the range.

#[path = "../../../dmabuf-dio-tensors/tests/common/bytes.rs"]
mod bytes;
mod folder;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dmabuf_dio::content::{self, Content as _};
use dmabuf_dio::{Buffer, CancelToken, Error, Kind, Loader, Result};
use dmabuf_dio_remote::{Object, Settings, Sums};
use sha2::{Digest as _, Sha256};

use self::server::{Fault, Request, Server};

const MIB: usize = 1 << 20;

fn content(len: usize) -> Vec<u8> {
    bytes::content(len, 1)
}

/// Small ranges, and patience that a test can wait for.
fn settings() -> Settings {
    Settings {
        range_size: 64 << 10,
        stall: Duration::from_secs(60),
        deadline: Duration::from_secs(600),
        ..Settings::default()
    }
}

fn load(server: &Server, settings: &Settings) -> Result<Buffer> {
    let object = Object::open(&server.url("/model"), settings)?;
    Loader::from_content(object).kind(Kind::Private).load()
}

fn assert_loads(server: &Server, settings: &Settings) -> Buffer {
    let buffer = load(server, settings).expect("loaded");
    assert!(buffer.bytes() == Some(server.bytes()), "the bytes differ");
    buffer
}

/// Each fault happens to the first request of every fifth range.
fn sometimes(fault: Fault) -> impl Fn(&Request) -> Fault + Send + Sync + 'static {
    move |request| if request.number % 5 == 1 { fault.clone() } else { Fault::None }
}

#[test]
fn objects_of_all_lengths_load() {
    for len in [1, 4096, 65_536, 65_537, MIB, 3 * MIB + 12_345] {
        let server = Server::new(content(len), |_| Fault::None);
        let buffer = assert_loads(&server, &settings());
        let fetched = buffer.report().and_then(|report| report.fetched).expect("what it took");
        assert_eq!(fetched.requests, len.div_ceil(64 << 10) as u64);
        assert_eq!((fetched.retries, fetched.bytes), (0, len as u64));
        for request in server.requests().iter().filter(|request| request.range != Some(0..1)) {
            assert_eq!(request.headers.get("if-match").map(String::as_str), Some("\"v1\""));
        }
    }
}

#[test]
fn every_kind_and_range_loads() {
    let server = Server::new(content(MIB + 5), |_| Fault::None);
    let object = Object::open(&server.url("/model"), &settings()).expect("opened");
    for kind in [Kind::Any, Kind::Memfd, Kind::File, Kind::Private] {
        for (offset, length) in [(0, MIB + 5), (1, 3), (65_535, 2), (70_001, 900_000)] {
            let loader = Loader::from_content(object.clone()).kind(kind);
            let loaded = loader.offset(offset as u64).length(length as u64).load().expect("loaded");
            let mut bytes = vec![0; length];
            loaded.read_at(loaded.range().start, &mut bytes).expect("read");
            assert!(bytes == server.bytes()[offset..offset + length], "{kind:?} {offset}");
        }
    }
    let token = CancelToken::new();
    let header = content::read(object.as_ref(), 9, 1000, &token).expect("read");
    assert_eq!(header, server.bytes()[9..1009]);
}

#[test]
fn empty_object_is_told() {
    let server = Server::new(Vec::new(), |_| Fault::None);
    let of_nothing = Some(Sha256::digest([]).into());
    for sha256 in [None, of_nothing] {
        let error = load(&server, &Settings { sha256, ..settings() }).expect_err("it is empty");
        assert!(matches!(error, Error::EmptyFile { .. }), "{error}");
    }
    let settings = Settings { sha256: Some([0; 32]), ..settings() };
    let error = load(&server, &settings).expect_err("it differs");
    assert!(error.to_string().contains("the SHA-256 is e3b0c442"), "{error}");
}

#[test]
fn ten_thousand_ranges_are_right() {
    let server = Server::new(content(10_000 * 512), |_| Fault::None);
    let settings = Settings { range_size: 512, ..settings() };
    let buffer = assert_loads(&server, &settings);
    let fetched = buffer.report().and_then(|report| report.fetched).expect("what it took");
    assert_eq!(fetched.requests, 10_000);
}

#[test]
fn broken_connections_go_on_where_they_ended() {
    for fault in [Fault::Close(0), Fault::Close(40_000), Fault::Short] {
        let server = Server::new(content(3 * MIB), sometimes(fault.clone()));
        let buffer = assert_loads(&server, &settings());
        let fetched = buffer.report().and_then(|report| report.fetched).expect("what it took");
        assert!(fetched.retries > 0, "{fault:?}");
        // What had arrived is not asked for again. A close may drop what was on the way.
        assert!(fetched.bytes <= 3 * MIB as u64, "{fault:?}: {}", fetched.bytes);
    }
}

#[test]
fn stalled_requests_are_made_again() {
    let server = Server::new(content(MIB), |request| match request.number {
        3 => Fault::Stall(1000),
        _ => Fault::None,
    });
    let settings = Settings { stall: Duration::from_secs(2), ..settings() };
    assert_loads(&server, &settings);
    let server = Server::new(content(MIB), |_| Fault::Stall(0));
    let settings = Settings { tries: 2, ..settings };
    let error = load(&server, &settings).expect_err("it stalls");
    let Error::Content { errno, what, length: 1.., .. } = &error else { panic!("{error:?}") };
    assert_eq!((errno.raw(), what.as_str()), (libc::ETIMEDOUT, "nothing arrived for 2000 ms"));
}

#[test]
fn busy_store_is_left_alone_for_a_while() {
    let busy = Fault::Status(503, "Retry-After: 0\r\n", "<Error><Code>SlowDown</Code></Error>");
    let server = Server::new(content(MIB), sometimes(busy.clone()));
    assert_loads(&server, &settings());
    let server = Server::new(content(MIB), move |request| match request.number {
        u64::MAX => Fault::None,
        _ => busy.clone(),
    });
    let error = load(&server, &Settings { tries: 3, ..settings() }).expect_err("always busy");
    assert!(error.to_string().ends_with("the server answered 503, SlowDown"), "{error}");
    assert_eq!(error.number().raw(), libc::EBUSY);
}

#[test]
fn store_that_wants_no_request_any_more_is_an_error() {
    let never = Fault::Status(503, "Retry-After: 18446744073709551615\r\n", "");
    let server = Server::new(content(MIB), move |request| match request.number {
        u64::MAX => Fault::None,
        _ => never.clone(),
    });
    for sha256 in [None, Some([0; 32])] {
        let error = load(&server, &Settings { sha256, ..settings() }).expect_err("always busy");
        assert_eq!(error.number().raw(), libc::EBUSY, "{error}");
    }
}

#[test]
fn thread_that_panics_is_not_waited_for() {
    let server = Server::new(content(MIB), |_| Fault::None);
    let settings = Settings { sha256: Some([0; 32]), ..settings() };
    let object = Object::open(&server.url("/model"), &settings).expect("opened");
    let loader = Loader::from_content(object).kind(Kind::Private);
    let loader = loader.progress(|progress| assert_eq!(progress.done, 0, "this panic is wanted"));
    let load = std::panic::AssertUnwindSafe(|| loader.load().map(drop));
    assert!(!matches!(std::panic::catch_unwind(load), Ok(Ok(()))));
}

/// The error of a load in which the answer to one request has this fault, and the range of that request.
fn fails(fault: Fault) -> (Error, std::ops::Range<u64>) {
    let server = Server::new(content(MIB), move |request| match request.number {
        7 => fault.clone(),
        _ => Fault::None,
    });
    let error = load(&server, &settings()).expect_err("it fails");
    let of_seven = |request: &Request| request.number == 7 && request.range != Some(0..1);
    let request = server.requests().into_iter().find(of_seven).expect("it was asked");
    (error, request.range.expect("a range"))
}

#[test]
fn wrong_answers_are_errors_that_name_the_range() {
    for (fault, number, what) in [
        (Fault::Tag("\"v2\""), libc::ESTALE, "the object was replaced"),
        (Fault::Status(412, "", ""), libc::ESTALE, "the object was replaced"),
        (Fault::IgnoreRange, libc::EOPNOTSUPP, "the server ignores Range"),
        (Fault::OtherRange, libc::EPROTO, "another range"),
        (Fault::NoRange, libc::EPROTO, "another range"),
        (Fault::Long, libc::EPROTO, "longer than the range"),
        (Fault::Gzip, libc::EPROTO, "encoded: gzip"),
        (Fault::Redirect("http://elsewhere.test/x?secret".into()), libc::EPROTO, "elsewhere.test"),
        (Fault::Status(403, "", "<Code>Expired</Code>"), libc::EACCES, "403, Expired"),
        (Fault::Status(404, "", ""), libc::ENOENT, "answered 404"),
    ] {
        let (error, range) = fails(fault.clone());
        let said = error.to_string();
        assert!(said.contains(what) && !said.contains("secret"), "{fault:?}: {said}");
        assert!(!error.hint().to_string().is_empty());
        assert_eq!(error.number().raw(), number, "{fault:?}: {said}");
        let Error::Content { offset, length, .. } = error else { panic!("{said}") };
        assert_eq!(offset..offset + length, range, "{fault:?}");
    }
}

#[test]
fn version_is_compared_where_the_server_does_not() {
    // A weak tag matches nothing, and servers without tags have nothing to match.
    for tag in [Some("W/\"v1\""), None] {
        let server = Server::tagged(content(MIB), tag, |_| Fault::None);
        assert_loads(&server, &settings());
        assert!(server.requests().iter().all(|request| !request.headers.contains_key("if-match")));
    }
    let server = Server::tagged(content(MIB), Some("W/\"v1\""), |request| match request.number {
        9 => Fault::Tag("W/\"v2\""),
        _ => Fault::None,
    });
    let error = load(&server, &settings()).expect_err("replaced");
    assert_eq!(error.number().raw(), libc::ESTALE, "{error}");
}

#[test]
fn first_answer_may_send_us_elsewhere() {
    let there = Server::new(content(MIB), |_| Fault::None);
    let url = there.url("/signed?secret=1");
    let here = Server::new(Vec::new(), move |_| Fault::Redirect(url.clone()));
    let object = Object::open(&here.url("/model"), &settings()).expect("opened");
    assert_eq!(object.name().to_str(), Some(here.url("/model").as_str()), "it keeps its name");
    let buffer = Loader::from_content(object).kind(Kind::Private).load().expect("loaded");
    assert!(buffer.bytes() == Some(there.bytes()));
    assert_eq!(here.requests().len(), 1);
    assert!(there.requests().iter().all(|request| request.path == "/signed?secret=1"));
    let own = Arc::new(std::sync::OnceLock::new());
    let itself = Arc::clone(&own);
    let circle = Server::new(Vec::new(), move |_| {
        Fault::Redirect(itself.get().cloned().unwrap_or_default())
    });
    own.set(circle.url("/again")).expect("once");
    let error = Object::open(&circle.url("/"), &settings()).expect_err("it never ends");
    assert!(error.to_string().contains("redirects to 127.0.0.1"), "{error}");
}

#[test]
fn address_that_has_expired_is_asked_for_again() {
    // What is behind the first redirect is allowed for a few ranges.
    let there = Server::new(content(MIB), |request| {
        let has_expired = request.number != u64::MAX && request.number > 3;
        if has_expired && request.path.ends_with("=1") {
            return Fault::Status(403, "", "");
        }
        Fault::None
    });
    let urls = [there.url("/signed?secret=1"), there.url("/signed?secret=2")];
    let asked = AtomicU64::new(0);
    let here = Server::new(Vec::new(), move |_| {
        let time = asked.fetch_add(1, Ordering::Relaxed).min(1);
        Fault::Redirect(urls[time as usize].clone())
    });
    let object = Object::open(&here.url("/model"), &settings()).expect("opened");
    let buffer = Loader::from_content(object).kind(Kind::Private).load().expect("loaded");
    assert!(buffer.bytes() == Some(there.bytes()));
}

#[test]
fn password_is_kept_on_the_same_server() {
    let own = Arc::new(std::sync::OnceLock::<String>::new());
    let itself = Arc::clone(&own);
    let server = Server::new(content(MIB), move |request| match request.path.as_str() {
        "/model" => Fault::Redirect(itself.get().cloned().unwrap_or_default()),
        _ => Fault::None,
    });
    own.set(server.url("/there")).expect("once");
    let url = server.url("/model").replace("//", "//user:password@");
    let object = Object::open(&url, &settings()).expect("opened");
    let loaded = Loader::from_content(object).kind(Kind::Private).load().expect("loaded");
    assert!(loaded.bytes() == Some(server.bytes()));
    let asked = server.requests();
    assert!(asked.iter().all(|request| request.headers.contains_key("authorization")));
    let other = Server::new(content(MIB), |_| Fault::None);
    let there = other.url("/there");
    let here = Server::new(Vec::new(), move |_| Fault::Redirect(there.clone()));
    let url = here.url("/model").replace("//", "//user:password@");
    Object::open(&url, &settings()).expect("opened");
    assert!(!other.requests()[0].headers.contains_key("authorization"), "it is another server");
}

#[test]
fn opening_fails_with_a_reason() {
    let open = |fault: Fault| {
        let server = Server::new(content(10), move |_| fault.clone());
        Object::open(&server.url("/m?token=secret"), &settings()).expect_err("it fails")
    };
    let error = open(Fault::IgnoreRange);
    assert!(error.to_string().ends_with("the server ignores Range: it sent the whole object"));
    let error = open(Fault::Status(404, "", ""));
    assert!(
        error.to_string().ends_with("/m: it cannot be read: the server answered 404"),
        "{error}"
    );
    assert!(!format!("{error:?}").contains("secret"));
    // Nobody listens there.
    let gone = Server::new(Vec::new(), |_| Fault::None).url("/x");
    let error = Object::open(&gone, &Settings { tries: 1, ..settings() }).expect_err("gone");
    assert!(error.to_string().contains("cannot connect: Connection refused"), "{error}");
    assert_eq!(error.number().raw(), libc::EHOSTUNREACH);
}

#[test]
fn flipped_byte_is_found_by_the_sums_and_fetched_again() {
    let bytes = content(3 * MIB + 77);
    let sums = Sums::of(&bytes[..], 100_000).expect("summed");
    let settings = Settings { sums: Some(Arc::new(sums)), ..settings() };
    let flips = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&flips);
    let once = Server::new(bytes.clone(), move |request| {
        let hit = request.range.as_ref().is_some_and(|range| range.contains(&1_234_567));
        if hit && count.fetch_add(1, Ordering::Relaxed) == 0 {
            return Fault::Flip(1_234_567);
        }
        Fault::None
    });
    let buffer = assert_loads(&once, &settings);
    assert_eq!(flips.load(Ordering::Relaxed), 2, "the chunk was asked for twice");
    let fetched = buffer.report().and_then(|report| report.fetched).expect("what it took");
    assert_eq!(fetched.retries, 1);
    // A part is checked, too: whole chunks are fetched for that.
    let object = Object::open(&once.url("/model"), &settings).expect("opened");
    let part = Loader::from_content(object).kind(Kind::Private).offset(150_001).length(60_000);
    let part = part.load().expect("loaded");
    assert!(part.bytes() == Some(&bytes[150_001..210_001]));

    let always = Server::new(bytes, |_| Fault::Flip(1_234_567));
    let error = load(&always, &settings).expect_err("it differs");
    let Error::Content { offset, length, errno, .. } = &error else { panic!("{error}") };
    assert_eq!((*offset, *length, errno.raw()), (1_200_000, 100_000, libc::EBADMSG));
}

#[test]
fn sum_of_the_whole_is_checked() {
    let bytes = content(3 * MIB + 77);
    let sha256: [u8; 32] = Sha256::digest(&bytes).into();
    let settings = Settings { sha256: Some(sha256), ..settings() };
    let server = Server::new(bytes.clone(), |_| Fault::None);
    assert_loads(&server, &settings);
    let object = Object::open(&server.url("/model"), &settings).expect("opened");
    let part = Loader::from_content(object).length(100).load().expect_err("not the whole");
    assert!(part.to_string().contains("of the whole cannot be checked of a part"), "{part}");

    let server = Server::new(bytes, |_| Fault::Flip(99));
    let error = load(&server, &settings).expect_err("it differs");
    assert_eq!(error.number().raw(), libc::EBADMSG, "{error}");
    assert!(error.to_string().contains("the SHA-256 is "), "{error}");
}

#[test]
fn sums_of_something_else_are_refused() {
    let sums = Sums::of(&content(100)[..], 10).expect("summed");
    let settings = Settings { sums: Some(Arc::new(sums)), ..settings() };
    let server = Server::new(content(101), |_| Fault::None);
    let error = load(&server, &settings).expect_err("another length");
    assert!(error.to_string().contains("the sums are of 100 bytes"), "{error}");
}

#[test]
fn cancelled_load_ends() {
    // The server never answers more: only the token ends it.
    let server = Server::new(content(MIB), |request| match request.number {
        5.. => Fault::Stall(10),
        _ => Fault::None,
    });
    let object = Object::open(&server.url("/model"), &settings()).expect("opened");
    let token = CancelToken::new();
    let other = token.clone();
    let loader = Loader::from_content(object).cancel(token).progress(move |progress| {
        if progress.done > 0 {
            other.cancel();
        }
    });
    let error = loader.load().expect_err("cancelled");
    assert!(matches!(error, Error::Cancelled { length: 0x10_0000, .. }), "{error}");
}

#[test]
fn nothing_secret_is_in_debug_output() {
    let server = Server::new(content(10), |_| Fault::None);
    let url = server.url("/m?X-Amz-Signature=secret").replace("//", "//user:password@");
    let object = Object::open(&url, &settings()).expect("opened");
    let said = format!("{object:?} {}", object.name().display());
    assert!(!said.contains("secret") && !said.contains("password"), "{said}");
    let asked = server.requests();
    assert!(asked[0].path.ends_with("secret") && asked[0].headers.contains_key("authorization"));
}
