// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server of tests: it answers as it is told to.

use std::ops::Range;
use std::sync::Mutex;

use futures_util::StreamExt as _;
use futures_util::stream;

use super::answer::Body;
use crate::trouble::Trouble;

/// How a request is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Whole,
    /// The answer ends after so many 256ths.
    Short(u8),
    /// The connection breaks after so many.
    Broken(u8),
    /// The byte there is another one.
    Wrong(u8),
    /// The server is too busy.
    Busy,
    /// A byte more than was asked for.
    Long,
}

/// The object, and what becomes of requests; those behind the last one are answered.
#[derive(Debug)]
pub(crate) struct Simulated {
    pub(crate) bytes: Vec<u8>,
    /// Bytes of a piece of an answer.
    pub(crate) piece: usize,
    /// This byte is always another one.
    pub(crate) wrong: Option<usize>,
    pub(crate) answers: Mutex<Vec<Answer>>,
}

impl Simulated {
    pub(crate) fn get(&self, range: Range<u64>) -> Result<Body, Trouble> {
        let places = range.start as usize..range.end as usize;
        assert!(!places.is_empty() && places.end <= self.bytes.len(), "{range:?} was asked for");
        let mut bytes = self.bytes[places.clone()].to_vec();
        if let Some(wrong) = self.wrong.filter(|wrong| places.contains(wrong)) {
            bytes[wrong - places.start] ^= 1;
        }
        let answer = self.answers.lock().expect("answers").pop().unwrap_or(Answer::Whole);
        let part = |part: u8| bytes.len() * usize::from(part) / 256;
        let mut end = None;
        match answer {
            Answer::Whole => {}
            Answer::Short(most) => bytes.truncate(part(most)),
            Answer::Broken(most) => {
                bytes.truncate(part(most));
                end = Some(Err(Trouble::Broken("reset".into())));
            }
            Answer::Wrong(at) => {
                let at = part(at);
                bytes[at] ^= 2;
            }
            Answer::Busy => return Err(Trouble::Status { status: 503, code: None, after: None }),
            Answer::Long => bytes.push(0),
        }
        let pieces: Vec<_> = bytes.chunks(self.piece.max(1)).map(<[u8]>::to_vec).collect();
        let pieces = pieces.into_iter().map(|piece| Ok(piece.into()));
        Ok(stream::iter(pieces.chain(end).collect::<Vec<_>>()).boxed())
    }
}
