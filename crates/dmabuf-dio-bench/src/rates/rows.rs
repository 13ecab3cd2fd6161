// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows: a rate, a load, a way.

use dmabuf_dio_cli::exit::Failure;
use serde::Serialize;

use super::args::RatesArgs;
use crate::measure::select::select;

/// What else the machine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Load {
    Idle,
    /// A thread for each CPU that never waits.
    Busy,
}

/// How the samples get into the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum RateWay {
    #[serde(rename = "dmabuf-dio")]
    Ours,
    #[serde(rename = "read()")]
    Read,
    #[serde(rename = "iio_rwdev")]
    Rwdev,
    /// With larger blocks than its own.
    #[serde(rename = "iio_rwdev -b")]
    RwdevBlocks,
}

impl RateWay {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "dmabuf-dio",
            Self::Read => "read()",
            Self::Rwdev => "iio_rwdev",
            Self::RwdevBlocks => "iio_rwdev -b",
        }
    }
}

/// A cell of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateRow {
    /// Frames per second.
    pub(crate) rate: f64,
    pub(crate) load: Load,
    pub(crate) way: RateWay,
}

impl RateRow {
    pub(crate) fn name(&self) -> String {
        let load = match self.load {
            Load::Idle => "idle",
            Load::Busy => "busy",
        };
        format!("{load}, {}, {} frames/s", self.way.name(), self.rate)
    }
}

/// The requested rows.
pub(crate) fn selected(args: &RatesArgs) -> Result<Vec<RateRow>, Failure> {
    let mut ways = vec![RateWay::Ours, RateWay::Read];
    if args.peer_iio_rwdev.is_some() {
        ways.extend([RateWay::Rwdev, RateWay::RwdevBlocks]);
    }
    let mut rows = Vec::new();
    for load in [Load::Idle, Load::Busy] {
        for rate in &args.rates {
            rows.extend(ways.iter().map(|way| RateRow { rate: *rate, load, way: *way }));
        }
    }
    select(rows, &args.only, RateRow::name, "no row has that name")
}
