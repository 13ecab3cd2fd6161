// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fetches one range: asks, places the pieces of the answer, checks chunks, and asks again for what is missing.

use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::{BuildHasher as _, Hasher as _};
use std::ops::Range;
use std::pin::pin;
use std::time::Duration;

use dmabuf_dio::Result;
use dmabuf_dio::content::Fetched;
use futures_util::StreamExt as _;
// Tests stop the clock of tokio.
use tokio::time::Instant;

use crate::job::{Job, TICK};
use crate::settings::Settings;
use crate::sums::Checking;
use crate::trouble::{Trouble, failed};

/// The first pause before a request is made again, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Patience with requests that fail: it ends with too many tries, or too much time, without progress.
struct Patience<'a> {
    settings: &'a Settings,
    tries: u32,
    since: Instant,
}

impl<'a> Patience<'a> {
    fn new(settings: &'a Settings) -> Self {
        Self { settings, tries: 0, since: Instant::now() }
    }

    fn progress(&mut self) {
        (self.tries, self.since) = (0, Instant::now());
    }

    /// How long to wait before the next try; `None` if there is to be none. Each pause is up to twice as long as the
    /// one before. Part of it is random: others may have failed at the same moment.
    fn pause(&mut self, trouble: &Trouble) -> Option<Duration> {
        self.tries += 1;
        if !trouble.passes() || self.tries >= self.settings.tries.max(1) {
            return None;
        }
        let longest = FIRST_PAUSE * 2_u32.saturating_pow(self.tries - 1).min(1000);
        let longest = longest.min(LONGEST_PAUSE);
        let pause = longest / 2 + longest.mul_f64(random() / 2.0);
        // The store knows better.
        let pause = trouble.after().map_or(pause, |after| after.max(pause));
        let end = self.since.elapsed().checked_add(pause)?;
        (end <= self.settings.deadline).then_some(pause)
    }
}

/// A number from 0 to 1.
fn random() -> f64 {
    RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64
}

/// Tries to connect to a host that never answered: more would not correct a name.
const TRIES_TO_CONNECT: u32 = 3;

/// Makes a request again until it succeeds, patience ends, or it is cancelled. Each try may take so long.
pub(crate) async fn patiently<T, F: Future<Output = Result<T, Trouble>>>(
    settings: &Settings,
    longest: Duration,
    mut request: impl FnMut() -> F,
) -> Result<T, Trouble> {
    let is_cancelled = || settings.cancel.is_cancelled();
    let mut patience = Patience::new(settings);
    let mut was_connected = false;
    loop {
        let answer = wait(is_cancelled, longest, request()).await;
        let trouble = match answer.and_then(|answer| answer) {
            Ok(value) => return Ok(value),
            Err(trouble) => trouble,
        };
        was_connected |= !matches!(trouble, Trouble::Connect(_));
        let Some(pause) = patience.pause(&trouble) else { return Err(trouble) };
        if !was_connected && patience.tries >= TRIES_TO_CONNECT {
            return Err(trouble);
        }
        let paused = wait(is_cancelled, pause, std::future::pending::<()>()).await;
        if paused == Err(Trouble::Cancelled) {
            return Err(Trouble::Cancelled);
        }
    }
}

/// Fetches a range of the job's object.
pub(crate) async fn fetch(job: &Job<'_>, range: Range<u64>) -> Result<Fetched> {
    let source = job.source;
    let fail = |trouble: &Trouble| match trouble {
        Trouble::Cancelled => job.cancelled(),
        trouble => failed(&source.name, range.clone(), trouble),
    };
    let mut patience = Patience::new(&source.settings);
    // Chunks are checked whole, also those that begin before the range or end behind it.
    let mut checking = source.settings.sums.as_ref().map(|sums| Checking::new(sums, range.clone()));
    let cover = checking.as_ref().map_or(range.clone(), Checking::cover);
    let mut at = cover.start;
    let mut fetched = Fetched::default();
    while at < cover.end {
        let before = at;
        let answered =
            attempt(job, &mut at, &range, cover.end, &mut checking, &mut fetched).await?;
        let Err(trouble) = answered else { continue };
        if let Some(differing) = checking.as_mut().and_then(Checking::take_differing) {
            // The chunk is fetched once more; it is what the store has if it differs again.
            let chunk = differing.chunk;
            if differing.again {
                return Err(failed(&source.name, chunk, &Trouble::Sum));
            }
            at = chunk.start;
            fetched.retries += 1;
            continue;
        }
        if at > before {
            patience.progress();
        }
        if trouble.is_too_much() {
            job.too_much();
        }
        let Some(pause) = patience.pause(&trouble) else { return Err(fail(&trouble)) };
        fetched.retries += 1;
        let paused = wait(|| job.is_stopped(), pause, std::future::pending::<()>()).await;
        paused.or_else(|trouble| match trouble {
            Trouble::Stalled(_) => Ok(()),
            trouble => Err(fail(&trouble)),
        })?;
    }
    Ok(fetched)
}

/// Makes one request for what is missing, and places what it brings. The outer error ends the load.
async fn attempt(
    job: &Job<'_>,
    at: &mut u64,
    range: &Range<u64>,
    end: u64,
    checking: &mut Option<Checking>,
    fetched: &mut Fetched,
) -> Result<Result<(), Trouble>> {
    let (source, stall) = (job.source, job.source.settings.stall);
    let is_stopped = || job.is_stopped();
    let asked = wait(is_stopped, stall, source.origin.get(*at..end)).await;
    let mut body = match asked.and_then(|answer| answer) {
        Ok(body) => body,
        Err(trouble) => return Ok(Err(trouble)),
    };
    fetched.requests += 1;
    let mut got = 0;
    loop {
        let piece = match wait(is_stopped, stall, body.next()).await {
            Err(trouble) | Ok(Some(Err(trouble))) => return Ok(Err(trouble)),
            Ok(Some(Ok(piece))) => piece,
            Ok(None) if *at < end => return Ok(Err(Trouble::Short { got })),
            Ok(None) => return Ok(Ok(())),
        };
        let length = piece.len() as u64;
        got += length;
        fetched.bytes += length;
        if *at + length > end {
            return Ok(Err(Trouble::Long));
        }
        // What is wanted of this piece.
        let from = range.start.clamp(*at, *at + length);
        let to = range.end.clamp(*at, *at + length);
        if from < to {
            let wanted = &piece[(from - *at) as usize..(to - *at) as usize];
            job.fill.write(from - job.offset, wanted)?;
        }
        match checking {
            None => {
                job.fill.count(to - from);
                *at += length;
            }
            Some(checking) => {
                let good = checking.add(*at, &piece);
                *at += length;
                job.fill.count(good);
                if checking.has_differing() {
                    return Ok(Err(Trouble::Sum));
                }
            }
        }
    }
}

/// Waits at most so long. Ends early if it is stopped: the load was cancelled or has failed.
async fn wait<T>(
    is_stopped: impl Fn() -> bool,
    longest: Duration,
    future: impl Future<Output = T>,
) -> Result<T, Trouble> {
    let mut future = pin!(future);
    let start = Instant::now();
    loop {
        let left = longest.saturating_sub(start.elapsed());
        if let Ok(value) = tokio::time::timeout(TICK.min(left), &mut future).await {
            return if is_stopped() { Err(Trouble::Cancelled) } else { Ok(value) };
        }
        if is_stopped() {
            return Err(Trouble::Cancelled);
        }
        if start.elapsed() >= longest {
            return Err(Trouble::Stalled(longest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let settings = Settings { tries: 5, ..Settings::default() };
        let mut patience = Patience::new(&settings);
        let broken = Trouble::Broken(String::new());
        for longest in [100, 200, 400, 800] {
            let pause = patience.pause(&broken).expect("another try");
            let longest = Duration::from_millis(longest);
            assert!(pause >= longest / 2 && pause <= longest, "{pause:?}");
        }
        assert_eq!(patience.pause(&broken), None, "five tries");
        patience.progress();
        assert!(patience.pause(&broken).is_some());
        assert_eq!(patience.pause(&Trouble::Long), None, "it would be the same again");
    }

    #[test]
    fn host_that_never_answers_is_not_tried_for_long() {
        let settings = Settings { tries: 5, ..Settings::default() };
        let tries = |trouble: Trouble| {
            let mut count = 0;
            let request = || {
                count += 1;
                std::future::ready(Err::<(), _>(trouble.clone()))
            };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let result = patiently(&settings, Duration::MAX, request);
            assert_eq!(runtime.expect("a runtime").block_on(result), Err(trouble.clone()));
            count
        };
        assert_eq!(tries(Trouble::Connect(String::new())), TRIES_TO_CONNECT);
        assert_eq!(tries(Trouble::Broken(String::new())), 5);
        assert_eq!(tries(Trouble::Long), 1);
        settings.cancel.cancel();
        let request = || std::future::pending::<Result<(), Trouble>>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let result = patiently(&settings, Duration::MAX, request);
        assert_eq!(runtime.expect("a runtime").block_on(result), Err(Trouble::Cancelled));
    }

    #[test]
    fn store_decides_how_long_it_is_left_alone() {
        let settings = Settings { deadline: Duration::from_secs(20), ..Settings::default() };
        let busy = |seconds| {
            let after = Some(Duration::from_secs(seconds));
            Patience::new(&settings).pause(&Trouble::Status { status: 503, code: None, after })
        };
        assert_eq!(busy(7), Some(Duration::from_secs(7)));
        assert!(busy(0).is_some_and(|pause| pause >= FIRST_PAUSE / 2));
        assert_eq!(busy(21), None, "that is more than the deadline");
        assert_eq!(busy(u64::MAX), None, "no time is that long");
    }
}
