// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges of objects and their sums, from a simulated server that breaks off, is busy, or sends wrong bytes.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use dmabuf_dio::content::{Content, Fetched, Fill};
use dmabuf_dio::{Kind, Loader, Options, Result};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::drawn::{holds, maybe, one_of};
use crate::job::Job;
use crate::net::Net;
use crate::origin::Origin;
use crate::origin::simulated::{Answer, Simulated};
use crate::range::fetch;
use crate::settings::Settings;
use crate::source::Source;
use crate::sums::Sums;

fn byte(at: usize) -> u8 {
    ((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// A part of an object that is loaded, and how the server answers.
#[derive(Clone, Debug)]
struct Draw {
    length: usize,
    /// The part, in 256ths.
    part: (u8, u8),
    chunk_size: Option<u64>,
    /// Bytes of a request, and of a piece of an answer.
    range_size: u64,
    piece: usize,
    answers: Vec<Answer>,
    /// Where the object is not what it was when it was summed.
    wrong: Option<usize>,
}

fn draws() -> impl Strategy<Value = Draw> {
    let answer = one_of![
        4 => Just(Answer::Whole),
        2 => any::<u8>().prop_map(Answer::Short),
        2 => any::<u8>().prop_map(Answer::Broken),
        2 => any::<u8>().prop_map(Answer::Wrong),
        1 => Just(Answer::Busy),
    ];
    // One that is too long ends all, so it is rare.
    let answer = one_of![30 => answer, 1 => Just(Answer::Long)];
    let sizes = (1_usize..5000, any::<(u8, u8)>(), maybe(5, 1_u64..700), 1_u64..3000);
    let wrong = maybe(1, 0_usize..5000);
    (sizes, 1_usize..2000, vec(answer, 0..20), wrong).prop_map(
        |((length, part, chunk_size, range_size), piece, answers, wrong)| Draw {
            length,
            part,
            chunk_size,
            range_size,
            piece,
            // Nothing tells wrong bytes without sums.
            answers: answers
                .into_iter()
                .filter(|answer| chunk_size.is_some() || !matches!(answer, Answer::Wrong(_)))
                .collect(),
            wrong: wrong.filter(|wrong| chunk_size.is_some() && *wrong < length),
        },
    )
}

/// The object as a content: its ranges are fetched one after the other, while no time passes.
#[derive(Debug)]
struct Object {
    source: Source,
    length: u64,
}

impl Content for Object {
    fn name(&self) -> &Path {
        &self.source.name
    }

    fn length(&self) -> u64 {
        self.length
    }

    fn read(&self, offset: u64, fill: &Fill<'_>) -> Result<Fetched> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let job = Job::new(&self.source, offset, fill);
        let mut fetched = Fetched::default();
        let mut next = offset;
        runtime.expect("a runtime").block_on(async {
            loop {
                let range = job.take(&mut job.state());
                let Some(range) = range else { break };
                assert!(range.start == next && range.end > next, "{range:?} behind {next}");
                next = range.end;
                fetched = fetched.and(fetch(&job, range).await?);
            }
            assert_eq!(next, offset + fill.length());
            Ok(fetched)
        })
    }
}

impl Draw {
    fn run(&self, net: &Arc<Net>) {
        let bytes: Vec<u8> = (0..self.length).map(byte).collect();
        let sums = self.chunk_size.map(|size| Sums::of(&bytes[..], size).expect("sums"));
        let settings = Settings {
            ranges: 1,
            range_size: self.range_size,
            tries: 1000,
            deadline: Duration::from_secs(1 << 30),
            sums: sums.map(Arc::new),
            ..Settings::default()
        };
        let at = |part: u8| self.length * usize::from(part) / 256;
        let part = at(self.part.0.min(self.part.1))..at(self.part.0.max(self.part.1)) + 1;
        let (answers, wrong) = (Mutex::new(self.answers.clone()), self.wrong);
        let origin = Simulated { bytes: bytes.clone(), piece: self.piece, wrong, answers };
        let source = Source {
            name: "s3://b/k".into(),
            origin: Origin::Simulated(origin),
            settings,
            net: Arc::clone(net),
        };
        let object = Arc::new(Object { source, length: self.length as u64 });
        let options = Options { kind: Kind::Private, ..Options::default() };
        let loader = Loader::from_content(object.clone()).options(options);
        let loader = loader.offset(part.start as u64).length(part.len() as u64);
        let loaded = loader.load();
        // Chunks are checked whole.
        let size = self.chunk_size.unwrap_or(1) as usize;
        let covered = part.start / size * size..part.end.div_ceil(size) * size;
        let is_wrong = wrong.is_some_and(|wrong| covered.contains(&wrong));
        let made = self.answers.len() - left(&object.source).len();
        let is_long =
            self.answers.iter().rev().take(made).any(|answer| matches!(answer, Answer::Long));
        match loaded {
            Ok(buffer) => {
                assert!(!is_wrong && !is_long, "wrong bytes are taken");
                let found = buffer.bytes().expect("private memory");
                assert!(found == &bytes[part], "the buffer has other bytes");
            }
            Err(error) => {
                let said = error.to_string();
                // A chunk that was wrong twice is what the server has, also if it was by chance.
                let twice = self.answers.iter().rev().take(made);
                let twice = twice.filter(|answer| matches!(answer, Answer::Wrong(_))).count() > 1;
                let is_sum = said.contains("the sum of the chunk differs");
                let is_one = is_long && said.contains("longer") || is_sum && (is_wrong || twice);
                assert!(is_one, "{said}, {made} answers");
            }
        }
    }
}

/// The answers that were not given.
fn left(source: &Source) -> Vec<Answer> {
    match &source.origin {
        Origin::Simulated(server) => server.answers.lock().expect("answers").clone(),
        _ => Vec::new(),
    }
}

#[cfg_attr(test, test)]
pub(crate) fn every_byte_of_a_range_is_the_objects_or_an_error_says_why() {
    // Its threads are not used.
    static NET: OnceLock<Arc<Net>> = OnceLock::new();
    let new = || Arc::new(Net::new(&Settings::default()).expect("threads"));
    let net = NET.get_or_init(new);
    holds(&draws(), |draw| draw.run(net));
}

#[cfg_attr(test, test)]
pub(crate) fn sums_are_of_chunks_that_cover_everything() {
    holds(&(vec(any::<u8>(), 0..3000), 1_u64..900, any::<prop::sample::Index>()), |drawn| {
        let (bytes, chunk_size, changed) = drawn;
        let sums = Sums::of(&bytes[..], chunk_size).expect("sums");
        assert_eq!((sums.length(), sums.chunk_size()), (bytes.len() as u64, chunk_size));
        assert_eq!(Sums::parse(&sums.to_json()).expect("sums"), sums);
        // In pieces of any size they are the same; one other byte changes them.
        let halves = bytes.split_at(bytes.len() / 2);
        let chained = std::io::Read::chain(halves.0, halves.1);
        assert_eq!(Sums::of(chained, chunk_size).expect("sums"), sums);
        if !bytes.is_empty() {
            let mut other = bytes.clone();
            other[changed.index(bytes.len())] ^= 4;
            assert_ne!(Sums::of(&other[..], chunk_size).expect("sums"), sums);
        }
    });
}
