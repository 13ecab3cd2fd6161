// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reports of a stream, while it runs and at its end.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::error::Error;
use crate::gaps::Gap;
use crate::ring::RingUse;
use crate::v4l2::log::FrameLog;

/// The result of a stream.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Summary {
    /// How data got from the source into the blocks.
    pub source: String,
    /// How data got from the blocks to the sink.
    pub sink: String,
    /// The blocks.
    pub ring: RingUse,
    /// Bytes delivered to the sink.
    pub bytes: u64,
    /// Whether that is everything requested: `false` if the stream ended before its limit, its time
    /// or the end of the source, or before its first block.
    pub complete: bool,
    /// Number of frames that the source lost, and that the sink could not output because it had
    /// none (underruns), as far as known.
    pub lost_frames: u64,
    /// The positions of these gaps, and which end lost the frames.
    pub gaps: Vec<Gap>,
    /// Whether source and sink can detect lost frames. If not, there may be further gaps.
    pub loss_known: bool,
    /// When the samples began; `None` if there are none.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub begin: Option<Begin>,
    /// Seconds from the start of the source to the end.
    pub seconds: f64,
    /// CPU time of all threads of this process during that time, in seconds; `None` if the source
    /// was not started.
    pub cpu_seconds: Option<f64>,
}

/// When the samples of a stream began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// When the source was started.
    pub started: SystemTime,
    /// When its first block was full.
    pub arrived: SystemTime,
    /// The length of that block in bytes.
    pub bytes: u64,
}

impl Begin {
    /// When the first sample came, for a device of so many bytes per second. Without a rate only the
    /// arrival of the first block is known, which is later.
    pub fn first_sample(&self, bytes_per_second: Option<f64>) -> SystemTime {
        let seconds = bytes_per_second.map_or(0.0, |rate| self.bytes as f64 / rate);
        let length = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let first = self.arrived.checked_sub(length).unwrap_or(self.arrived);
        first.max(self.started)
    }
}

/// The known facts about the data of a running stream.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Known<'s> {
    /// Bytes delivered to the sink. `gaps` has the known losses in them.
    pub bytes: u64,
    /// Like [`Summary::gaps`], for these bytes.
    pub gaps: Vec<Gap>,
    /// Like [`Summary::loss_known`].
    pub loss_known: bool,
    /// When the samples began.
    pub begin: Option<Begin>,
    /// The frames of a video device.
    pub frames: Option<&'s FrameLog>,
}

/// The progress of a stream.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct State {
    /// Bytes delivered to the sink.
    pub bytes: u64,
    /// Number of lost frames, underruns included, as far as known.
    pub lost_frames: u64,
    /// Number of gaps.
    pub gaps: usize,
    /// Full blocks: the sink works on them, or they wait for it.
    pub full: usize,
    /// Number of blocks in the ring.
    pub blocks: usize,
    /// Time since the start of the source.
    pub elapsed: Duration,
    /// CPU time of all threads of this process since then.
    pub cpu: Duration,
}

/// Why a stream ended early, and its result up to then.
#[derive(Debug)]
pub struct Interrupted {
    /// The error.
    pub error: Error,
    /// The result up to the error.
    pub summary: Summary,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, after {} bytes", self.error, self.summary.bytes)
    }
}

impl std::error::Error for Interrupted {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
