// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses rows by `--only TEXT`, and runs them alternately, so that changes over time affect all of them.

use std::ops::RangeInclusive;

use dmabuf_dio_terminal::exit::{Failure, USAGE};
use dmabuf_dio_terminal::progress::Bar;

use crate::measure::outcome::Trouble;

/// The samples of a row, or why there are none.
pub(crate) type Samples<S> = Result<Vec<S>, Trouble>;

/// Makes the first run of each row, then the second of each, and so on. Run 0, if there is one, is not
/// counted: it warms up, or compares. A row that has failed is not run again.
pub(crate) fn take_turns<R, S>(
    rows: &[R],
    runs: RangeInclusive<u32>,
    name: impl Fn(&R) -> String,
    mut attempt: impl FnMut(&R, u32) -> Result<Option<S>, Trouble>,
) -> Result<Vec<Samples<S>>, Failure> {
    let mut results: Vec<Samples<S>> = rows.iter().map(|_| Ok(Vec::new())).collect();
    let (bar, last) = (Bar::steps(), *runs.end());
    let steps = runs.clone().count() as u64 * rows.len() as u64;
    let mut step = 0;
    for run in runs {
        for (row, result) in rows.iter().zip(&mut results) {
            Failure::if_interrupted().inspect_err(|_| bar.finish())?;
            bar.say(format!("run {run} of {last}: {}", name(row)));
            bar.update(step, steps);
            step += 1;
            let Ok(samples) = result else { continue };
            match attempt(row, run) {
                Ok(_) if run == 0 => {}
                Ok(sample) => samples.extend(sample),
                // What worked before is not what the kernel lacks.
                Err(trouble) if !samples.is_empty() => *result = Err(trouble.grave()),
                Err(trouble) => *result = Err(trouble),
            }
        }
    }
    bar.finish();
    // What a signal ended has failed for no other reason.
    Failure::if_interrupted()?;
    Ok(results)
}

/// Keeps the rows whose name contains one of the texts, or all rows without a text. A text that no
/// name contains is a usage error with the message `lacks`.
pub(crate) fn select<T>(
    mut rows: Vec<T>,
    only: &[String],
    name: impl Fn(&T) -> String,
    lacks: &str,
) -> Result<Vec<T>, Failure> {
    let mut names: Vec<String> = Vec::new();
    for name in rows.iter().map(&name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if let Some(text) = only.iter().find(|text| !names.iter().any(|name| name.contains(*text))) {
        let hint = format!("the names are: {}", names.join("; "));
        return Err(Failure::new(USAGE, format!("--only {text:?}: {lacks}"), hint));
    }
    rows.retain(|row| only.is_empty() || only.iter().any(|text| name(row).contains(text)));
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno as Os;

    use super::*;
    use crate::measure::outcome::Status;

    /// Each row fails in the run that is its number.
    fn results(runs: RangeInclusive<u32>, rows: &[u32]) -> Vec<Result<Vec<u32>, Status>> {
        let attempt = |row: &u32, run| {
            let lacks = Trouble::unavailable("it", Os::NOSYS, "no");
            if run == *row { Err(lacks) } else { Ok(Some(run)) }
        };
        let results = take_turns(rows, runs, u32::to_string, attempt).expect("no signal");
        results.into_iter().map(|result| result.map_err(|trouble| trouble.status)).collect()
    }

    #[test]
    fn warm_up_run_is_not_counted() {
        assert_eq!(results(0..=2, &[9, 9]), [Ok(vec![1, 2]), Ok(vec![1, 2])]);
        assert_eq!(results(1..=2, &[9]), [Ok(vec![1, 2])]);
    }

    #[test]
    fn way_with_a_sample_is_never_unavailable() {
        let wanted = [Err(Status::Unavailable), Err(Status::Unavailable), Err(Status::Failed)];
        assert_eq!(results(0..=3, &[0, 1, 2]), wanted);
    }
}
