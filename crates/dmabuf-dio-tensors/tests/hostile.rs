// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hostile files: each gives its error, in bounded time and memory. One test, because it counts the
//! memory of the whole process.

#![allow(clippy::too_many_lines, reason = "lists of cases")]
#![allow(clippy::format_collect, reason = "plain, and fast enough for a test")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{Gguf, Sample, folder, safetensors, string};
use dmabuf_dio_tensors::{Dtype, Error, Malformed, Mistaken, Model};

/// Counts bytes, and the most at any time.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: it passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Memory for other purposes than the header: buffers for reading, paths, messages.
const SMALL: usize = 1 << 20;
/// Memory for each byte of a header, as the documentation of `header` promises.
const PER_BYTE: usize = 8;
/// For the largest headers in an emulated guest; here they take a second.
const LIMIT: Duration = Duration::from_secs(120);

/// A file for one case, and the expected result.
struct Case {
    name: &'static str,
    /// The beginning of the file.
    bytes: Vec<u8>,
    /// Its length, if there is a hole behind the beginning.
    len: Option<u64>,
    /// Bytes of header that have to be read before the error can be seen.
    needed: usize,
    expected: fn(&Malformed) -> bool,
}

fn case(name: &'static str, bytes: impl Into<Vec<u8>>, expected: fn(&Malformed) -> bool) -> Case {
    let bytes = bytes.into();
    Case { name, needed: bytes.len(), bytes, len: None, expected }
}

impl Case {
    /// The file has this length.
    fn long(mut self, len: u64) -> Self {
        self.len = Some(len);
        self
    }

    /// The error needs this much of the header only.
    fn needing(mut self, bytes: usize) -> Self {
        self.needed = bytes;
        self
    }

    fn check(&self, folder: &Path) {
        let path = folder.join(self.name);
        let mut file = File::create(&path).expect("create");
        file.write_all(&self.bytes).expect("write");
        if let Some(len) = self.len {
            file.set_len(len).expect("extend");
        }
        drop(file);
        let error = measured(self.name, self.needed, || Model::open(&path));
        let error = error.expect_err(self.name);
        let Error::Malformed { path: found, reason } = &error else {
            panic!("{}: {error}", self.name)
        };
        assert_eq!(*found, path, "{}", self.name);
        assert!((self.expected)(reason), "{}: {reason:?}", self.name);
        assert!(error.to_string().len() < 1000, "{}: a short message", self.name);
        assert!(!error.hint().to_string().is_empty());
        std::fs::remove_file(path).expect("remove");
    }
}

/// Runs `open`, and fails if it takes too much time, or memory for `bytes` of header.
fn measured<T>(name: &str, bytes: usize, open: impl FnOnce() -> T) -> T {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let began = Instant::now();
    let result = open();
    let took = began.elapsed();
    let memory = PEAK.load(Ordering::Relaxed) - before;
    println!("{name}: {memory} bytes of memory for {bytes}, {:.3} s", took.as_secs_f64());
    assert!(took < LIMIT, "{name} took {took:?}");
    let most = SMALL + PER_BYTE * bytes;
    assert!(memory <= most, "{name} took {memory} bytes of memory, and {most} are the most");
    result
}

/// A safetensors file with this header.
fn header(json: impl AsRef<[u8]>, data: usize) -> Vec<u8> {
    let json = json.as_ref();
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend(json);
    bytes.resize(bytes.len() + data, 7);
    bytes
}

fn entry(name: &str, shape: &str, from: u64, to: u64) -> String {
    format!(r#""{name}":{{"dtype":"U8","shape":{shape},"data_offsets":[{from},{to}]}}"#)
}

fn object(entries: &[String]) -> String {
    format!("{{{}}}", entries.join(","))
}

fn safetensors_cases() -> Vec<Case> {
    use Malformed as M;
    let good =
        safetensors(&[Sample::new("a", Dtype::F32, &[4]), Sample::new("b", Dtype::U8, &[9])]);
    let many = |count: u64| {
        let mut json = String::from("{");
        for number in 0..count {
            json += &format!(
                r#""{number}":{{"dtype":"U8","shape":[],"data_offsets":[{number},{}]}},"#,
                number + 1
            );
        }
        json.pop();
        json + "}"
    };
    let mut cases = vec![
        case("empty", [], |why| matches!(why, M::NotAModel { found: Mistaken::Empty })),
        case("seven-bytes", [0; 7], |why| matches!(why, M::Truncated { .. })),
        case("length-0", [0; 8], |why| matches!(why, M::NotAModel { found: Mistaken::Zeros })),
        case("length-2-63", (1u64 << 63).to_le_bytes(), |why| {
            matches!(why, M::NotAModel { found: Mistaken::Unknown })
        }),
        case("length-max", u64::MAX.to_le_bytes(), |why| {
            matches!(why, M::NotAModel { found: Mistaken::Unknown })
        }),
        case("length-beyond-file", 90_000_000u64.to_le_bytes(), |why| {
            matches!(why, M::Truncated { len: 8, needed: 90_000_008 })
        }),
        case("json-truncated", header(r#"{"a":{"dtype":"#, 0), |why| matches!(why, M::Json { .. })),
        case("json-trailing", header("{} x", 0), |why| matches!(why, M::Json { .. })),
        case("not-an-object", header("[1]", 0), |why| matches!(why, M::Json { .. })),
        case("bad-utf-8", header(b"{\"a\xff\":1}", 0), |why| matches!(why, M::Utf8 { at: 11 })),
        case("lone-surrogate", header(r#"{"\ud800":1}"#, 0), |why| matches!(why, M::Json { .. })),
        case(
            "unknown-type",
            header(entry_of("Q9", "[1]", 0, 1), 1),
            |why| matches!(why, M::Json { message } if message.contains("Q9")),
        ),
        case("no-offsets", header(r#"{"a":{"dtype":"U8","shape":[1]}}"#, 1), |why| {
            matches!(why, M::Json { .. })
        }),
        case(
            "negative",
            header(r#"{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}"#, 1),
            |why| matches!(why, M::Json { .. }),
        ),
        case(
            "overlap",
            header(object(&[entry("a", "[4]", 0, 4), entry("b", "[4]", 2, 6)]), 6),
            |why| matches!(why, M::Place { name, found: 2, expected: 4 } if name == "b"),
        ),
        case(
            "same-bytes",
            header(object(&[entry("a", "[4]", 0, 4), entry("b", "[4]", 0, 4)]), 4),
            |why| matches!(why, M::Place { found: 0, expected: 4, .. }),
        ),
        case(
            "hole",
            header(object(&[entry("a", "[4]", 0, 4), entry("b", "[4]", 5, 9)]), 9),
            |why| matches!(why, M::Place { name, found: 5, expected: 4 } if name == "b"),
        ),
        case("hole-at-start", header(object(&[entry("a", "[4]", 1, 5)]), 5), |why| {
            matches!(why, M::Place { found: 1, expected: 0, .. })
        }),
        case("rest", header(object(&[entry("a", "[4]", 0, 4)]), 5), |why| {
            matches!(why, M::Rest { .. })
        }),
        case("rest-without-tensors", header("{}", 5), |why| matches!(why, M::Rest { .. })),
        case(
            "out-of-file",
            header(object(&[entry("a", "[4]", 0, 4)]), 3),
            |why| matches!(why, M::OutOfFile { name, .. } if name == "a"),
        ),
        case(
            "far-out-of-file",
            header(object(&[entry("a", &format!("[{}]", u64::MAX), 0, u64::MAX)]), 3),
            |why| matches!(why, M::OutOfFile { .. }),
        ),
        case("backwards", header(object(&[entry("a", "[4]", 4, 0)]), 4), |why| {
            matches!(why, M::Length { .. })
        }),
        case("wrong-length", header(object(&[entry("a", "[5]", 0, 4)]), 4), |why| {
            matches!(why, M::Length { found: 4, .. })
        }),
        case(
            "overflowing-shape",
            header(object(&[entry("a", "[4294967296,4294967296]", 0, 0)]), 0),
            |why| matches!(why, M::Shape { .. }),
        ),
        case(
            "half-a-byte",
            header(r#"{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}"#, 2),
            |why| matches!(why, M::Shape { .. }),
        ),
        case(
            "duplicate",
            header(object(&[entry("a", "[4]", 0, 4), entry("a", "[4]", 4, 8)]), 8),
            |why| matches!(why, M::Duplicate { what: "tensor", name } if name == "a"),
        ),
        case(
            "duplicate-of-the-same-bytes",
            header(object(&[entry("a", "[4]", 0, 4), entry("a", "[4]", 0, 4)]), 4),
            |why| matches!(why, M::Duplicate { what: "tensor", name } if name == "a"),
        ),
        case(
            "duplicate-escaped",
            header(object(&[entry("a", "[4]", 0, 4), entry("\\u0061", "[4]", 4, 8)]), 8),
            |why| matches!(why, M::Duplicate { what: "tensor", .. }),
        ),
        case(
            "duplicate-empty",
            header(object(&[entry("a", "[0]", 0, 0), entry("a", "[0]", 0, 0)]), 0),
            |why| matches!(why, M::Duplicate { what: "tensor", .. }),
        ),
        case(
            "duplicate-key",
            header(r#"{"__metadata__":{"k":"1","k":"2"}}"#, 0),
            |why| matches!(why, M::Duplicate { what: "key", name } if name == "k"),
        ),
        case(
            "two-metadata",
            header(r#"{"__metadata__":{},"__metadata__":{}}"#, 0),
            |why| matches!(why, M::Duplicate { what: "key", name } if name == "__metadata__"),
        ),
        case("metadata-of-numbers", header(r#"{"__metadata__":{"k":1}}"#, 0), |why| {
            matches!(why, M::Json { .. })
        }),
        case("nested-json", header(format!(r#"{{"a":{}"#, "[".repeat(10_000_000)), 0), |why| {
            matches!(why, M::Json { .. })
        }),
        case(
            "nested-unknown-field",
            header(format!(r#"{{"a":{{"x":{}"#, r#"{"x":"#.repeat(2_000_000)), 0),
            |why| matches!(why, M::Json { .. }),
        ),
        case(
            "many-dimensions",
            header(object(&[entry("a", &format!("[{}1]", "1,".repeat(5_000_000)), 0, 1)]), 1),
            |why| matches!(why, M::Json { message } if message.contains("at most 64 dimensions")),
        ),
        case(
            "long-name",
            header(object(&[entry(&"n".repeat(20_000_000), "[5]", 0, 4)]), 4),
            |why| matches!(why, M::Length { name, .. } if name.len() < 200),
        ),
        case("long-type", header(entry_of(&"T".repeat(20_000_000), "[5]", 0, 4), 4), |why| {
            matches!(why, M::Json { .. })
        }),
        case(
            "many-keys",
            header(format!(r#"{{"__metadata__":{{{}"z":""}}}}"#, keys(100_000)), 0),
            |why| matches!(why, M::TooLarge { what: "keys:", .. }),
        ),
        case("over-a-million", header(many((1 << 20) + 1), (1 << 20) + 1), |why| {
            matches!(why, M::TooLarge { what: "tensors:", value: 1_048_577, .. })
        }),
        // The largest number that is read, and then the error is in the last
        case("a-million", header(many(1 << 20), (1 << 20) - 1), |why| {
            matches!(why, M::OutOfFile { .. })
        }),
        // The most memory for the bytes of a header
        case("dimensions", header(object(&dimensions(100_000)), 99_999), |why| {
            matches!(why, M::OutOfFile { .. })
        }),
        // A header of ten million tensors has 600 MB.
        case("ten-million", 600_000_000u64.to_le_bytes(), |why| matches!(why, M::TooLarge { .. }))
            .long(610_000_008)
            .needing(0),
    ];
    // Every beginning of a good file
    for end in 0..good.len() {
        cases.push(case("beginning", &good[..end], |why| {
            matches!(
                why,
                M::Truncated { .. } | M::OutOfFile { .. } | M::NotAModel { found: Mistaken::Empty }
            )
        }));
    }
    cases
}

/// Tensors of 64 dimensions and one byte.
fn dimensions(count: u64) -> Vec<String> {
    let shape = format!("[{}1]", "1,".repeat(63));
    (0..count).map(|number| entry(&number.to_string(), &shape, number, number + 1)).collect()
}

fn entry_of(dtype: &str, shape: &str, from: u64, to: u64) -> String {
    format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{from},{to}]}}}}"#)
}

fn keys(count: u32) -> String {
    (0..count).map(|key| format!(r#""{key}":"","#)).collect()
}

/// The first 24 bytes of a GGUF file.
fn counts(version: u32, tensors: u64, keys: u64) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend(tensors.to_le_bytes());
    bytes.extend(keys.to_le_bytes());
    bytes
}

/// A key with an array of `kind` as its value. The array claims `count` elements and has `rest`.
fn array(kind: u32, count: u64, rest: &[u8]) -> Vec<u8> {
    let value = [&kind.to_le_bytes()[..], &count.to_le_bytes(), rest].concat();
    [counts(3, 0, 1), string("k"), 9u32.to_le_bytes().to_vec(), value].concat()
}

fn gguf_cases() -> Vec<Case> {
    use Malformed as M;
    let gguf = Gguf::default;
    let aligned = |value: u32| gguf().key("general.alignment", 4, &value.to_le_bytes()).bytes();
    let good = gguf()
        .key("k", 8, &string("value"))
        .tensor(&Sample::new("a", Dtype::F32, &[3, 5]))
        .tensor(&Sample::new("b", Dtype::F32, &[7]));
    let two = |offset| gguf().raw_tensor("a", &[8], 0, 0).raw_tensor("b", &[8], 0, offset);
    let data = |gguf: Gguf| Gguf { data: vec![1; 96], ..gguf }.bytes();
    // Empty strings; the last says that it is long.
    let strings = |count: usize| {
        let mut rest = vec![0; 8 * (count - 1)];
        rest.extend([255; 8]);
        array(8, count as u64, &rest)
    };
    let tensors = |count: u64| {
        let one = gguf().raw_tensor("12345678", &[0], 0, 0).tensors.remove(0);
        let mut bytes = counts(3, count, 0);
        for number in 0..count {
            bytes.extend(&one[..8]);
            bytes.extend(format!("{number:08}").bytes());
            bytes.extend(&one[16..]);
        }
        bytes
    };
    let mut cases = vec![
        case("version-1", counts(1, 0, 0), |why| matches!(why, M::Version { version: 1 })),
        case("version-4", counts(4, 0, 0), |why| matches!(why, M::Version { version: 4 })),
        case("big-endian", counts(4 << 24, 0, 0), |why| matches!(why, M::Version { version: 4 })),
        case("big-endian-counts", counts(3 << 24, 1, 0), |why| {
            matches!(why, M::TooLarge { what: "tensors:", value: 0x100_0000_0000_0000, .. })
        }),
        case("tensors-max", counts(3, u64::MAX, 0), |why| {
            matches!(why, M::TooLarge { what: "tensors:", .. })
        }),
        case("keys-max", counts(3, 0, u64::MAX), |why| {
            matches!(why, M::TooLarge { what: "keys:", .. })
        }),
        case("tensors-2-63", counts(3, 1 << 63, 0), |why| matches!(why, M::TooLarge { .. })),
        case("ten-million-tensors", counts(3, 10_000_000, 0), |why| {
            matches!(why, M::TooLarge { .. })
        })
        .long(400_000_000),
        case("a-million-missing", counts(3, 1 << 20, 0), |why| matches!(why, M::Truncated { .. })),
        case("keys-missing", counts(3, 0, 60_000), |why| matches!(why, M::Truncated { .. })),
        // A million of them, and the last has its bytes outside the file.
        case(
            "a-million-tensors",
            {
                let mut bytes = tensors(1 << 20);
                let end = bytes.len();
                bytes[end - 20..end - 12].copy_from_slice(&8u64.to_le_bytes());
                bytes
            },
            |why| matches!(why, M::OutOfFile { .. }),
        ),
        case("strings", strings(8 << 20), |why| matches!(why, M::TooLarge { value: u64::MAX, .. })),
        case("array-2-60", array(6, 1 << 60, &[]), |why| matches!(why, M::Truncated { .. })),
        case("array-max", array(0, u64::MAX, &[]), |why| matches!(why, M::Truncated { .. })),
        case("strings-max", array(8, u64::MAX / 8, &[]), |why| matches!(why, M::Truncated { .. })),
        // The file is long enough, the header is too long: nothing is read.
        case("array-in-long-file", array(12, 1 << 34, &[]), |why| {
            matches!(why, M::TooLarge { .. })
        })
        .long(1 << 38),
        case("string-in-long-file", array(8, 1, &(1u64 << 37).to_le_bytes()), |why| {
            matches!(why, M::TooLarge { .. })
        })
        .long(1 << 38),
        case("string-max", array(8, 1, &u64::MAX.to_le_bytes()), |why| {
            matches!(why, M::TooLarge { .. })
        }),
        case(
            "key-too-long",
            [counts(3, 0, 1), string("k".repeat(65_536)), vec![0; 5]].concat(),
            |why| matches!(why, M::TooLarge { value: 65_536, limit: 65_535, .. }),
        ),
        case(
            "array-of-arrays",
            array(9, 1, &[0; 64]),
            |why| matches!(why, M::Nested { name } if name == "k"),
        ),
        case(
            "nested-deep",
            array(9, 1, &[9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0].repeat(100_000)),
            |why| matches!(why, M::Nested { .. }),
        ),
        case(
            "value-type",
            gguf().key("k", 13, &[0; 8]).bytes(),
            |why| matches!(why, M::Unknown { what: "value type", value: 13, name } if name == "k"),
        ),
        case("element-type", array(99, 1, &[0; 8]), |why| {
            matches!(why, M::Unknown { value: 99, .. })
        }),
        case("bool-2", gguf().key("k", 7, &[2]).bytes(), |why| {
            matches!(why, M::Unknown { what: "bool", .. })
        }),
        case("bools-2", array(7, 2, &[1, 2]), |why| matches!(why, M::Unknown { what: "bool", .. })),
        case(
            "bad-key",
            [counts(3, 0, 1), string(b"ab\xff"), vec![0; 4], vec![1]].concat(),
            |why| matches!(why, M::Utf8 { at: 34 }),
        ),
        case("bad-name", [counts(3, 1, 0), string(b"\xc0\x80"), vec![0; 16]].concat(), |why| {
            matches!(why, M::Utf8 { at: 32 })
        }),
        case(
            "duplicate-key",
            gguf().key("k", 0, &[1]).key("k", 0, &[1]).bytes(),
            |why| matches!(why, M::Duplicate { what: "key", name } if name == "k"),
        ),
        case("alignment-0", aligned(0), |why| matches!(why, M::Alignment)),
        case("alignment-3", aligned(3), |why| matches!(why, M::Alignment)),
        case(
            "alignment-u64",
            gguf().key("general.alignment", 10, &[32, 0, 0, 0, 0, 0, 0, 0]).bytes(),
            |why| matches!(why, M::Alignment),
        ),
        case(
            "alignment-2-31",
            {
                let bytes = gguf().key("general.alignment", 4, &(1u32 << 31).to_le_bytes());
                bytes.raw_tensor("a", &[8], 0, 0).bytes()
            },
            |why| matches!(why, M::OutOfFile { .. }),
        ),
        case("dimensions-5", data(gguf().raw_tensor("a", &[1; 5], 0, 0)), |why| {
            matches!(why, M::Unknown { what: "number of dimensions", value: 5, .. })
        }),
        case("tensor-type", data(gguf().raw_tensor("a", &[1], 4, 0)), |why| {
            matches!(why, M::Unknown { what: "tensor type", value: 4, .. })
        }),
        case("partial-block", data(gguf().raw_tensor("a", &[33], 2, 0)), |why| {
            matches!(why, M::Shape { .. })
        }),
        case("block-over-rows", data(gguf().raw_tensor("a", &[2, 16], 2, 0)), |why| {
            matches!(why, M::Shape { .. })
        }),
        case("overflowing-shape", data(gguf().raw_tensor("a", &[1 << 32, 1 << 32], 0, 0)), |why| {
            matches!(why, M::Shape { .. })
        }),
        case("overflowing-bytes", data(gguf().raw_tensor("a", &[1 << 62], 0, 0)), |why| {
            matches!(why, M::Shape { .. })
        }),
        case("overflowing-offset", data(gguf().raw_tensor("a", &[8], 0, u64::MAX - 7)), |why| {
            matches!(why, M::OutOfFile { .. })
        }),
        case("offset-beyond", data(two(1 << 40)), |why| matches!(why, M::Place { .. })),
        case("overlap", data(two(16)), |why| {
            matches!(why, M::Place { found: 16, expected: 32, .. })
        }),
        case("same-offset", data(two(0)), |why| {
            matches!(why, M::Place { found: 0, expected: 32, .. })
        }),
        case("hole", data(two(64)), |why| matches!(why, M::Place { found: 64, expected: 32, .. })),
        case("unaligned", data(two(33)), |why| matches!(why, M::Place { found: 33, .. })),
        case(
            "duplicate",
            data(gguf().raw_tensor("a", &[8], 0, 0).raw_tensor("a", &[8], 0, 32)),
            |why| matches!(why, M::Duplicate { what: "tensor", name } if name == "a"),
        ),
        case("out-of-file", data(gguf().raw_tensor("a", &[25], 0, 0)), |why| {
            matches!(why, M::OutOfFile { .. })
        }),
        case(
            "split-name",
            gguf().key("split.count", 2, &[2, 0]).key("split.no", 2, &[0, 0]).bytes(),
            |why| matches!(why, M::Split(_)),
        ),
    ];
    let whole = good.bytes();
    // The last tensor has 28 bytes and 4 of padding.
    for end in 4..whole.len() - 4 {
        cases.push(case("beginning", &whole[..end], |why| {
            matches!(why, M::Truncated { .. } | M::OutOfFile { .. })
        }));
    }
    cases
}

fn index_cases() -> Vec<Case> {
    use Malformed as M;
    let map = |entries: &str| format!(r#"{{"weight_map":{{{entries}}}}}"#);
    let outside = |why: &Malformed| matches!(why, M::Outside { .. });
    let mut cases = vec![
        case("no-map.json", "{}", |why| matches!(why, M::NoWeightMap)),
        case("not-json.json", "GGUF", |why| {
            matches!(why, M::NotAModel { found: Mistaken::Text { .. } })
        }),
        case("empty.json", "", |why| matches!(why, M::NotAModel { found: Mistaken::Empty })),
        case("list.json", r#"{"weight_map":[]}"#, |why| matches!(why, M::Json { .. })),
        case("numbers.json", map(r#""a":1"#), |why| matches!(why, M::Json { .. })),
        case("bad-utf-8.json", b"{\"\xff\":1}", |why| matches!(why, M::Utf8 { at: 2 })),
        case("two-maps.json", r#"{"weight_map":{},"weight_map":{}}"#, |why| {
            matches!(why, M::Duplicate { .. })
        }),
        case("duplicate.json", map(r#""a":"good.safetensors","a":"good.safetensors""#), |why| {
            matches!(why, M::Duplicate { what: "tensor", .. })
        }),
        case(
            "missing-tensor.json",
            map(r#""a":"good.safetensors","z":"good.safetensors""#),
            |why| matches!(why, M::NotThere { name, file } if name == "z" && file == "good.safetensors"),
        ),
        case("bomb.json", format!(r#"{{"metadata":{}"#, r#"{"a":["#.repeat(5_000_000)), |why| {
            matches!(why, M::Json { .. })
        }),
        case(
            "million.json",
            {
                let entries: String =
                    (0..=1 << 20).map(|n| format!(r#""{n}":"good.safetensors","#)).collect();
                map(entries.trim_end_matches(','))
            },
            |why| matches!(why, M::TooLarge { what: "tensors:", .. }),
        ),
        case(
            "files.json",
            {
                let entries: String = (0..100_000).map(|n| format!(r#""{n}":"{n}","#)).collect();
                map(entries.trim_end_matches(','))
            },
            |why| matches!(why, M::TooLarge { what: "files:", limit: 4096, .. }),
        ),
        // It is read up to the limit.
        case("long.json", "{", |why| matches!(why, M::TooLarge { .. }))
            .long(1 << 40)
            .needing(100_000_000),
    ];
    for name in ["../good.safetensors", "/etc/passwd", "a/../../b", "..", "", "./..", "a/.."] {
        cases.push(case("outside.json", map(&format!(r#""a":"{name}""#)), outside));
    }
    cases
}

/// Objects that are not files, and links.
fn other_files(folder: &Path) {
    let open = |index: &str| {
        let path = folder.join("i.json");
        std::fs::write(&path, index).expect("write");
        measured("other", index.len(), || Model::open(&path))
    };
    let of = |name: &str| open(&format!(r#"{{"weight_map":{{"a":"{name}"}}}}"#));

    let fifo = folder.join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).expect("a FIFO");
    for path in [&fifo, Path::new("/dev/zero")] {
        let error = measured("fifo", 0, || Model::open(path)).expect_err("not a file");
        assert!(matches!(error, Error::NotAFile { .. }), "{error}");
    }
    let error = of("fifo").expect_err("a FIFO");
    assert!(matches!(&error, Error::NotAFile { path } if *path == fifo), "{error}");
    let error = of("gone").expect_err("nothing");
    assert!(matches!(error, Error::MissingFiles { .. }), "{error}");
    let error = open(r#"{"weight_map":{"a":"fifo","b":"gone"}}"#).expect_err("the first");
    assert!(matches!(error, Error::NotAFile { .. }), "{error}");

    // The policy: links are followed, also out of the folder, as in Hugging Face's cache.
    let elsewhere = common::folder();
    let target: PathBuf = elsewhere.path().join("blob");
    std::fs::write(&target, safetensors(&[Sample::new("a", Dtype::U8, &[3])])).expect("write");
    std::os::unix::fs::symlink(&target, folder.join("link")).expect("a link");
    assert!(of("link").expect("followed").tensor("a").is_some());
    std::os::unix::fs::symlink("loop", folder.join("loop")).expect("a link");
    let error = of("loop").expect_err("a loop");
    assert!(matches!(error, Error::Open { .. }), "{error}");

    // A GGUF file in an index of safetensors
    let gguf = Gguf::default().tensor(&Sample::new("a", Dtype::F32, &[3]));
    std::fs::write(folder.join("gguf"), gguf.bytes()).expect("write");
    let error = of("gguf").expect_err("another format");
    assert!(matches!(error, Error::Malformed { reason: Malformed::Split(_), .. }), "{error}");
}

#[test]
fn hostile_files_give_errors_in_bounded_time_and_memory() {
    let folder = folder();
    for case in safetensors_cases() {
        case.check(folder.path());
    }
    for case in gguf_cases() {
        case.check(folder.path());
    }
    let good = safetensors(&[Sample::new("a", Dtype::U8, &[3])]);
    std::fs::write(folder.path().join("good.safetensors"), good).expect("write");
    for case in index_cases() {
        case.check(folder.path());
    }
    other_files(folder.path());
}
