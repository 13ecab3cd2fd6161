// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the losses of a stream with `--max-loss`.

use dmabuf_dio_stream::{Gap, Summary};

use crate::args::streams::ReportArgs;
use crate::args::values::MaxLoss;

/// Says how much was lost.
pub(crate) fn lost(summary: &Summary) -> String {
    let unknown = summary.gaps.iter().any(|gap| gap.frames.is_none());
    match summary.gaps.len() {
        0 if summary.loss_known => "nothing".to_owned(),
        0 => "not known: nothing reports it".to_owned(),
        gaps => format!(
            "{}{} frames in {gaps} gaps",
            if unknown { "at least " } else { "" },
            summary.lost_frames
        ),
    }
}

/// Whether a stream of `frames` frames may have these gaps. A gap of unknown length is too long,
/// unless everything may be lost.
fn allows(limit: MaxLoss, gaps: &[Gap], frames: u64) -> bool {
    let lost: Option<u64> = gaps.iter().map(|gap| gap.frames).sum();
    match (limit, lost) {
        (MaxLoss::Frames(most), Some(lost)) => lost <= most,
        (MaxLoss::Part(most), Some(lost)) => lost as f64 <= most * (lost + frames) as f64,
        (MaxLoss::Part(most), None) => most >= 1.0,
        (MaxLoss::Frames(_), None) => false,
    }
}

/// Why a stream of `frames` frames has lost more than it may, and whether that is known; `None` if
/// it has not. Unreported losses are too many only if a limit was given.
pub(super) fn exceeded(
    args: &ReportArgs,
    summary: &Summary,
    frames: u64,
) -> Option<(String, bool)> {
    let limit = args.max_loss.unwrap_or(MaxLoss::Frames(0));
    if !allows(limit, &summary.gaps, frames) {
        let lost = lost(summary);
        return Some((format!("more was lost than --max-loss {limit}: {lost}"), true));
    }
    let any = matches!(limit, MaxLoss::Part(part) if part >= 1.0);
    let unknown = args.max_loss.is_some() && !summary.loss_known && !any;
    let what = || {
        format!("whether more was lost than --max-loss {limit} is not known: nothing reports it")
    };
    unknown.then(|| (what(), false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dmabuf_dio_stream::Loss;

    #[test]
    fn losses_are_allowed_up_to_a_limit() {
        let gap = |frames| Gap { kind: Loss::Lost, at: 0, to: 0, frames };
        let two = [gap(Some(6)), gap(Some(4))];
        let unknown = [gap(Some(1)), gap(None)];
        for (most, of_two, of_unknown) in [
            (MaxLoss::Frames(10), true, false),
            (MaxLoss::Frames(9), false, false),
            (MaxLoss::Part(0.1), true, false),
            (MaxLoss::Part(0.099), false, false),
            (MaxLoss::Part(1.0), true, true),
        ] {
            assert!(allows(most, &[], 90), "{most:?}");
            assert_eq!((allows(most, &two, 90), allows(most, &unknown, 90)), (of_two, of_unknown));
        }
    }

    #[test]
    fn unknown_losses_are_distinguished_from_large_ones() {
        use clap::Parser as _;

        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            report: ReportArgs,
        }
        let zero = Only::try_parse_from(["x", "--max-loss", "0"]).expect("options").report;
        let nothing = Summary::default();
        assert!(
            exceeded(&zero, &nothing, 10).is_some_and(|(_, known)| !known),
            "nothing reports it"
        );
        let gaps = vec![Gap { kind: Loss::Lost, at: 0, to: 0, frames: Some(3) }];
        let three = Summary { gaps, ..nothing };
        assert!(exceeded(&zero, &three, 10).is_some_and(|(_, known)| known));
    }
}
