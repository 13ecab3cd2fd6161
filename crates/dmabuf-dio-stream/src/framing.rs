// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples with an account of what is missing, in a stream of bytes: docs/streams.md, "Framing".
//!
//! All numbers are little-endian. A prelude, then records with a header of 16 bytes: type and a
//! number (32 bits each), and the length of what follows (64 bits).

use dmabuf_dio::Errno;

use crate::error::{Error, Result};
use crate::failed;
use crate::gaps::{Gap, Loss};

/// The last byte is the version.
const MAGIC: [u8; 8] = *b"dbufdio1";
/// The magic, bytes of a frame, bytes of the description.
pub(super) const PRELUDE: usize = 16;
/// Most bytes of a description.
const DESCRIPTION: u32 = 1 << 20;

pub(super) const HEADER: usize = 16;
const DATA: u32 = 1;
const GAPS: u32 = 2;
const END: u32 = 3;

/// Flags of the end.
const COMPLETE: u32 = 1;
const LOSS_KNOWN: u32 = 2;

/// A gap: `at`, `to`, frames, kind.
const GAP: usize = 32;
const UNKNOWN: u64 = u64::MAX;
/// Most gaps in a stream, and most bytes of the reason for its end.
const MOST_GAPS: u64 = 1 << 20;
const REASON: u64 = 64 << 10;

/// How a stream ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// Whether it is everything that was requested: see [`Summary::complete`](crate::Summary).
    pub complete: bool,
    /// Whether source and sink can detect lost frames.
    pub loss_known: bool,
    /// Why it ended early.
    pub error: Option<String>,
}

/// What a sender still must send, apart from samples.
#[derive(Debug)]
pub(super) struct Outbound {
    pending: Vec<u8>,
    /// Bytes of them that are sent.
    sent: usize,
    /// The gaps that are known, and those that were sent to the receiver.
    gaps: Vec<Gap>,
    told: Vec<Gap>,
    /// The header of the samples that come next is sent, or pending.
    begun: bool,
}

impl Outbound {
    /// `description` describes the samples, in JSON.
    pub(super) fn new(frame: u64, description: &str) -> Self {
        let mut pending = MAGIC.to_vec();
        pending.extend((frame as u32).to_le_bytes());
        let description = &description.as_bytes()[..description.len().min(DESCRIPTION as usize)];
        pending.extend((description.len() as u32).to_le_bytes());
        pending.extend(description);
        Self { pending, sent: 0, gaps: Vec::new(), told: Vec::new(), begun: false }
    }

    pub(super) fn set_gaps(&mut self, gaps: &[Gap]) {
        let gaps = &gaps[..gaps.len().min(MOST_GAPS as usize)];
        if self.gaps != gaps {
            self.gaps = gaps.to_vec();
        }
    }

    /// Announces `bytes` bytes of samples, once, and the gaps that have become known.
    pub(super) fn begin(&mut self, bytes: u64) {
        if !self.begun {
            self.tell_gaps();
            self.record(DATA, 0, bytes);
            self.begun = true;
        }
    }

    /// The announced samples have been sent.
    pub(super) fn all_sent(&mut self) {
        self.begun = false;
    }

    /// Announces the end, unless some of the announced samples have not been sent.
    pub(super) fn end(&mut self, ending: &Ending) {
        if self.begun {
            return;
        }
        self.tell_gaps();
        let flags =
            (u32::from(ending.complete) * COMPLETE) | (u32::from(ending.loss_known) * LOSS_KNOWN);
        let reason = ending.error.as_deref().unwrap_or_default().as_bytes();
        let reason = &reason[..reason.len().min(REASON as usize)];
        self.record(END, flags, reason.len() as u64);
        self.pending.extend(reason);
    }

    /// What is to be sent next, before any samples.
    pub(super) fn pending(&self) -> &[u8] {
        &self.pending[self.sent..]
    }

    pub(super) fn advance(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.pending.len() {
            self.pending.clear();
            self.sent = 0;
        }
    }

    /// The gaps from the first that has changed: a later loss can change earlier ones.
    fn tell_gaps(&mut self) {
        let same = self.gaps.iter().zip(&self.told).take_while(|(new, old)| new == old).count();
        if same == self.gaps.len() && same == self.told.len() {
            return;
        }
        let changed = &self.gaps[same..];
        let mut payload = Vec::with_capacity(changed.len() * GAP);
        for gap in changed {
            let kind = u64::from(gap.kind == Loss::Underrun);
            for number in [gap.at, gap.to, gap.frames.unwrap_or(UNKNOWN), kind] {
                payload.extend(number.to_le_bytes());
            }
        }
        self.record(GAPS, same as u32, payload.len() as u64);
        self.pending.extend(payload);
        self.told.clone_from(&self.gaps);
    }

    fn record(&mut self, kind: u32, number: u32, length: u64) {
        self.pending.extend(kind.to_le_bytes());
        self.pending.extend(number.to_le_bytes());
        self.pending.extend(length.to_le_bytes());
    }
}

/// The prelude's frame size and length of the description, in bytes.
pub(super) fn prelude(name: &str, bytes: &[u8; PRELUDE]) -> Result<(u64, usize)> {
    let (magic, rest) = bytes.split_at(MAGIC.len());
    let (frame, length) = (number32(&rest[..4]), number32(&rest[4..]));
    if magic != MAGIC || frame == 0 || length > DESCRIPTION {
        return Err(Error::NotFramed { name: name.into() });
    }
    Ok((u64::from(frame), length as usize))
}

/// What comes next for a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// A header of [`HEADER`] bytes.
    Header,
    /// So many bytes of samples.
    Data(u64),
    /// So many bytes of gaps, of which the first has this index.
    Gaps(usize, usize),
    /// So many bytes of text, with flags.
    End(u32, usize),
    Nothing,
}

/// What a receiver knows of a stream.
#[derive(Debug)]
pub(super) struct Inbound {
    name: String,
    frame: u64,
    pub(super) expected: Expected,
    pub(super) gaps: Vec<Gap>,
    pub(super) ending: Option<Ending>,
}

impl Inbound {
    pub(super) fn new(name: &str, frame: u64) -> Self {
        let (expected, gaps) = (Expected::Header, Vec::new());
        Self { name: name.into(), frame, expected, gaps, ending: None }
    }

    /// Number of bytes that are to be collected for [`collected`](Self::collected).
    pub(super) fn wanted(&self) -> usize {
        match self.expected {
            Expected::Header => HEADER,
            Expected::Gaps(_, bytes) | Expected::End(_, bytes) => bytes,
            Expected::Data(_) | Expected::Nothing => 0,
        }
    }

    /// Takes samples out of the account.
    pub(super) fn moved(&mut self, bytes: u64) {
        if let Expected::Data(left) = &mut self.expected {
            *left -= bytes;
            if *left == 0 {
                self.expected = Expected::Header;
            }
        }
    }

    /// Takes the [`wanted`](Self::wanted) bytes.
    pub(super) fn collected(&mut self, bytes: &[u8]) -> Result<()> {
        self.expected = match self.expected {
            Expected::Header => self.header(bytes)?,
            Expected::Gaps(first, _) => {
                self.gaps.truncate(first);
                for gap in bytes.chunks_exact(GAP) {
                    let at = |place: usize| number64(&gap[8 * place..8 * place + 8]);
                    let (start, to, frames) = (at(0), at(1), at(2));
                    if start > to {
                        return Err(self.garbled());
                    }
                    let kind = if at(3) == 0 { Loss::Lost } else { Loss::Underrun };
                    let frames = (frames != UNKNOWN).then_some(frames);
                    self.gaps.push(Gap { kind, at: start, to, frames });
                }
                Expected::Header
            }
            Expected::End(flags, _) => {
                let reason = String::from_utf8_lossy(bytes).into_owned();
                self.ending = Some(Ending {
                    complete: flags & COMPLETE != 0,
                    loss_known: flags & LOSS_KNOWN != 0,
                    error: (!reason.is_empty()).then_some(reason),
                });
                Expected::Nothing
            }
            other => other,
        };
        if self.wanted() == 0 && matches!(self.expected, Expected::Gaps(..) | Expected::End(..)) {
            return self.collected(&[]);
        }
        Ok(())
    }

    fn header(&self, bytes: &[u8]) -> Result<Expected> {
        let (kind, number) = (number32(&bytes[..4]), number32(&bytes[4..8]));
        let length = number64(&bytes[8..HEADER]);
        let count = length / GAP as u64;
        match kind {
            DATA if length > 0 && length % self.frame == 0 => Ok(Expected::Data(length)),
            GAPS if length % GAP as u64 == 0
                && number as usize <= self.gaps.len()
                && u64::from(number) + count <= MOST_GAPS =>
            {
                Ok(Expected::Gaps(number as usize, length as usize))
            }
            END if length <= REASON => Ok(Expected::End(number, length as usize)),
            _ => Err(self.garbled()),
        }
    }

    fn garbled(&self) -> Error {
        failed(&self.name, "parse the framing", Errno::PROTO)
    }
}

fn number32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn number64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(at: u64, frames: impl Into<Option<u64>>) -> Gap {
        Gap { kind: Loss::Lost, at, to: at + 8, frames: frames.into() }
    }

    fn sent(outbound: &mut Outbound) -> Vec<u8> {
        let bytes = outbound.pending().to_vec();
        outbound.advance(bytes.len());
        bytes
    }

    /// Gives records to a receiver, with samples that are not there.
    fn receive(inbound: &mut Inbound, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (record, rest) = bytes.split_at(inbound.wanted());
            inbound.collected(record)?;
            bytes = rest;
            if let Expected::Data(left) = inbound.expected {
                inbound.moved(left);
            }
        }
        Ok(())
    }

    #[test]
    fn a_receiver_knows_what_the_sender_knows() {
        let mut outbound = Outbound::new(8, "{}");
        let begin = sent(&mut outbound);
        let start: [u8; PRELUDE] = begin[..PRELUDE].try_into().expect("a prelude");
        assert_eq!(prelude("peer", &start).expect("framed"), (8, 2));
        assert_eq!(&begin[PRELUDE..], b"{}");
        let mut inbound = Inbound::new("peer", 8);
        outbound.begin(80);
        outbound.begin(80);
        let header = sent(&mut outbound);
        assert_eq!(header.len(), HEADER, "once, and no gaps");
        inbound.collected(&header).expect("a header");
        assert_eq!(inbound.expected, Expected::Data(80));
        inbound.moved(30);
        assert_eq!(inbound.expected, Expected::Data(50));
        inbound.moved(50);
        outbound.all_sent();
        for gaps in [
            &[gap(80, 5)][..],
            &[gap(80, 5), gap(160, None)],
            &[gap(80, 7), gap(240, 1)],
            &[gap(80, 8)],
        ] {
            outbound.set_gaps(gaps);
            outbound.begin(80);
            receive(&mut inbound, &sent(&mut outbound)).expect("records");
            assert_eq!(inbound.gaps, gaps);
            outbound.all_sent();
        }
        let ending = Ending { complete: false, loss_known: true, error: Some("gone".into()) };
        outbound.end(&ending);
        receive(&mut inbound, &sent(&mut outbound)).expect("an end");
        assert_eq!((inbound.ending, inbound.expected), (Some(ending), Expected::Nothing));
    }

    #[test]
    fn an_end_needs_no_reason() {
        let mut outbound = Outbound::new(8, "");
        sent(&mut outbound);
        outbound.begin(8);
        sent(&mut outbound);
        outbound.end(&Ending::default());
        assert!(outbound.pending().is_empty(), "within the samples");
        outbound.all_sent();
        let ending = Ending { complete: true, ..Ending::default() };
        outbound.end(&ending);
        let mut inbound = Inbound::new("peer", 8);
        inbound.collected(&sent(&mut outbound)).expect("an end");
        assert_eq!(inbound.ending, Some(ending));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(matches!(prelude("peer", &[7; PRELUDE]), Err(Error::NotFramed { .. })));
        for (kind, number, length) in [
            (0, 0, 8),
            (4, 0, 8),
            (DATA, 0, 0),
            (DATA, 0, 12),
            (GAPS, 1, 32),
            (GAPS, 0, 33),
            (GAPS, 0, 32 * (MOST_GAPS + 1)),
            (END, 0, REASON + 1),
            (END, 0, u64::MAX),
        ] {
            let mut outbound = Outbound::new(8, "");
            sent(&mut outbound);
            outbound.record(kind, number, length);
            let refused = Inbound::new("peer", 8).collected(&sent(&mut outbound));
            let errno = refused.expect_err("nonsense").errno();
            assert_eq!(errno.map(Errno::raw), Some(libc::EPROTO), "{kind} {number} {length}");
        }
        // A gap that ends before it begins.
        let mut outbound = Outbound::new(8, "");
        sent(&mut outbound);
        outbound.set_gaps(&[Gap { kind: Loss::Lost, at: 8, to: 0, frames: None }]);
        outbound.begin(8);
        assert!(receive(&mut Inbound::new("peer", 8), &sent(&mut outbound)).is_err());
    }
}
