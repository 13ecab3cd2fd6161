// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads from contents that are no files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{assert_same, available, content, folder, page};
use dmabuf_dio::content::{self, Content, Fetched, Fill};
use dmabuf_dio::{Backend, Buffer, CancelToken, Errno, Error, Kind, Loader, Mode, Result, Saver};

/// Bytes in memory, which are given in pieces from the last to the first.
#[derive(Debug)]
struct Store {
    bytes: Vec<u8>,
    fault: Fault,
    reads: AtomicU64,
}

#[derive(Debug)]
enum Fault {
    None,
    /// Fails after the first piece.
    Breaks,
    /// Says that it is done after the first piece.
    Forgets,
    /// Is cancelled after the first piece.
    Cancels(CancelToken),
}

const PIECE: usize = 1_000_003;

impl Store {
    fn new(len: usize, fault: Fault) -> Arc<Self> {
        Arc::new(Self { bytes: content(len, 7), fault, reads: AtomicU64::new(0) })
    }
}

impl Content for Store {
    fn name(&self) -> &Path {
        Path::new("store://of/tests")
    }

    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, offset: u64, fill: &Fill<'_>) -> Result<Fetched> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let wanted = &self.bytes[offset as usize..][..fill.length() as usize];
        let mut fetched = Fetched::default();
        for (number, piece) in
            wanted.chunks(PIECE).enumerate().collect::<Vec<_>>().into_iter().rev()
        {
            fill.check()?;
            let at = (number * PIECE) as u64;
            fill.write(at, piece)?;
            let mut again = vec![0; piece.len()];
            fill.read(at, &mut again)?;
            assert_same("what was written", &again, piece);
            fill.count(piece.len() as u64);
            fetched.requests += 1;
            fetched.bytes += piece.len() as u64;
            match &self.fault {
                Fault::None => {}
                Fault::Forgets => return Ok(fetched),
                Fault::Cancels(token) => token.cancel(),
                Fault::Breaks => {
                    return Err(Error::Content {
                        name: self.name().to_owned(),
                        offset: offset + at,
                        length: piece.len() as u64,
                        what: "the connection was reset".into(),
                        errno: Errno::from_raw(libc::ECONNRESET),
                        remedy: "try again".into(),
                    });
                }
            }
        }
        Ok(fetched)
    }
}

fn data(buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.data_len() as usize];
    buffer.read_at(buffer.range().start, &mut bytes).expect("read");
    bytes
}

#[test]
fn contents_load_into_every_kind_of_buffer() {
    for size in [1, 4095, 4097, 2 << 20, (9 << 20) + 12_345] {
        let store = Store::new(size, Fault::None);
        for kind in Kind::ALL {
            let loaded = match Loader::from_content(store.clone()).kind(kind).load() {
                Err(error @ Error::Unavailable { kind: Some(Kind::DmaBuf), .. }) => {
                    assert!(!error.refusals().is_empty());
                    assert!(!available(Backend::Udmabuf), "{error}");
                    println!("skipped: {error}");
                    continue;
                }
                loaded => loaded.expect("loaded"),
            };
            match kind {
                Kind::Any => assert!(matches!(loaded.kind(), Kind::DmaBuf | Kind::Memfd)),
                _ => assert_eq!(loaded.kind(), kind),
            }
            if matches!(kind, Kind::Memfd | Kind::File) {
                assert_eq!(loaded.len(), size as u64);
            }
            assert_same(&format!("{kind:?}, {size} bytes"), &data(&loaded), &store.bytes);
            let report = loaded.report().expect("a report");
            assert_eq!((report.mode, report.backend), (Mode::Fetched, None));
            assert_eq!((report.bytes, report.copied_bytes), (size as u64, size as u64));
            assert_eq!(report.buffer, Some(loaded.kind()));
            assert_eq!(report.page_cache_grown, None, "there is no file to look at");
            let fetched = report.fetched.expect("what it took");
            assert_eq!((fetched.bytes, fetched.retries), (size as u64, 0));
        }
    }
}

#[test]
fn ranges_of_contents_are_exact_and_surrounded_by_zeros() {
    let store = Store::new(5_000_000, Fault::None);
    for (offset, length) in [(0, 1), (4095, 2), (511, 8193), (1, 4_999_999), (4_999_999, 1)] {
        for kind in [Kind::Any, Kind::Memfd, Kind::File, Kind::Private] {
            let loader = Loader::from_content(store.clone()).kind(kind);
            let loaded = loader.offset(offset as u64).length(length as u64).load().expect("loaded");
            assert_same("the range", &data(&loaded), &store.bytes[offset..offset + length]);
            let start = loaded.range().start as usize;
            assert_eq!(start, if kind == Kind::File { 0 } else { offset % page() });
            let mut all = vec![1; loaded.len() as usize];
            loaded.read_at(0, &mut all).expect("read");
            all.drain(start..start + length);
            assert!(all.iter().all(|byte| *byte == 0), "{kind:?} at {offset}");
        }
    }
}

#[test]
fn contents_load_into_existing_buffers() {
    let store = Store::new(3_000_000, Fault::None);
    let buffer = Buffer::alloc(4 << 20).expect("a buffer");
    let loader = Loader::from_content(store.clone()).offset(11).length(2_999_000);
    let report = loader.load_into(&buffer, 1_000_001).expect("loaded");
    assert_eq!(report.fetched.map(|fetched| fetched.bytes), Some(2_999_000));
    let mut all = vec![1; buffer.len() as usize];
    buffer.read_at(0, &mut all).expect("read");
    assert_same("the range", &all[1_000_001..][..2_999_000], &store.bytes[11..][..2_999_000]);
    all.drain(1_000_001..1_000_001 + 2_999_000);
    assert!(all.iter().all(|byte| *byte == 0), "beside it");
    let error = loader.load_into(&buffer, 2 << 20).expect_err("it does not fit");
    assert!(matches!(error, Error::RangeBeyondBuffer { .. }), "{error}");

    let mut private = Buffer::zeroed(4 << 20).expect("memory");
    loader.load_over(&mut private).expect("loaded");
    assert_eq!(private.range(), 11..11 + 2_999_000);
    assert_same("the range", private.bytes().expect("own"), &store.bytes[11..][..2_999_000]);
}

#[test]
fn nothing_is_handed_out_when_a_content_fails() {
    for kind in [Kind::Any, Kind::File, Kind::Private] {
        let load = |fault| {
            let loader = Loader::from_content(Store::new(9_000_000, fault)).kind(kind);
            loader.load().map(drop).expect_err("it fails")
        };
        let error = load(Fault::Breaks);
        assert!(
            matches!(&error, Error::Content { offset: 8_000_024, length: 999_976, .. }),
            "{error:?}"
        );
        assert_eq!(error.number().raw(), libc::ECONNRESET);
        assert_eq!(error.hint().to_string(), "try again");
        let said = error.to_string();
        assert_eq!(
            said,
            "store://of/tests: bytes 8000024..9000000 cannot be read: the connection was reset"
        );
        let error = load(Fault::Forgets);
        assert!(error.to_string().contains("counted 999976 bytes"), "{error}");
    }
}

#[test]
fn cancelled_content_ends_with_what_was_counted() {
    let token = CancelToken::new();
    let loader = Loader::from_content(Store::new(9_000_000, Fault::Cancels(token.clone())));
    let error = loader.clone().cancel(token.clone()).load().expect_err("cancelled");
    let is_said = matches!(error, Error::Cancelled { done: 999_976, length: 9_000_000, .. });
    assert!(is_said, "{error:?}");
    let store = Store::new(100, Fault::None);
    let error = Loader::from_content(store.clone()).cancel(token).load().expect_err("cancelled");
    assert!(matches!(error, Error::Cancelled { done: 0, .. }), "{error:?}");
    assert_eq!(store.reads.load(Ordering::Relaxed), 0, "it was not asked");
}

#[test]
fn ranges_beyond_a_content_are_refused_before_it_is_read() {
    let store = Store::new(1000, Fault::None);
    let load = |offset, length: Option<u64>| {
        let loader = Loader::from_content(store.clone()).offset(offset).length(length);
        loader.load().map(drop).expect_err("it is not there")
    };
    assert!(matches!(load(1000, None), Error::ShortFile { end: 1000, .. }));
    assert!(matches!(load(999, Some(2)), Error::ShortFile { end: 1000, .. }));
    assert!(matches!(load(0, Some(0)), Error::EmptyRange { .. }));
    assert!(matches!(load(u64::MAX, Some(1)), Error::RangeOverflow { .. }));
    let empty = Loader::from_content(Store::new(0, Fault::None)).load().expect_err("empty");
    assert!(matches!(empty, Error::EmptyFile { .. }), "{empty}");
    let token = CancelToken::new();
    let error = content::read(store.as_ref(), 999, 2, &token).expect_err("it is not there");
    assert!(matches!(error, Error::ShortFile { .. }), "{error}");
    assert_eq!(store.reads.load(Ordering::Relaxed), 0);
    let some = content::read(store.as_ref(), 10, 20, &token).expect("read");
    assert_same("a header", &some, &store.bytes[10..30]);
}

#[test]
fn backends_are_refused_for_contents() {
    let store = Store::new(1000, Fault::None);
    for backend in Backend::ALL {
        let loader = Loader::from_content(store.clone()).backend(backend);
        for error in [
            loader.load().map(drop).expect_err("no backend"),
            loader.load_into(&Buffer::memfd(4096).expect("memfd"), 0).map(drop).expect_err("none"),
        ] {
            assert_eq!(error.hint().to_string(), "leave the backend out");
        }
    }
}

#[test]
fn progress_of_a_content_only_grows() {
    let seen = Arc::new(AtomicU64::new(0));
    let told = seen.clone();
    let loader =
        Loader::from_content(Store::new(9_000_000, Fault::None)).progress(move |progress| {
            assert_eq!(progress.total, 9_000_000);
            assert!(told.swap(progress.done, Ordering::Relaxed) <= progress.done);
        });
    let loaded = loader.load().expect("loaded");
    assert_eq!(seen.load(Ordering::Relaxed), 9_000_000);
    // What was fetched can be saved like any buffer.
    let path = folder();
    let copy = path.path().join("copy");
    Saver::new(&copy).save(&loaded, loaded.range()).expect("saved");
    assert_same("the copy", &std::fs::read(copy).expect("read"), &data(&loaded));
}
