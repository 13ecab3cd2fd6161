// SPDX-License-Identifier: MIT OR Apache-2.0
//! A status line for a stream, on standard error if that is a terminal.

use std::time::Duration;

use dmabuf_dio_stream::State;
use dmabuf_dio_terminal::size::show_size;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Period over which the rate is averaged.
const WINDOW: Duration = Duration::from_secs(1);

/// The status line.
#[derive(Debug)]
pub(crate) struct Meter {
    bar: ProgressBar,
    what: &'static str,
    before: State,
    rate: f64,
    cpu: f64,
}

impl Meter {
    pub(crate) fn new(what: &'static str, quiet: bool) -> Self {
        let target =
            if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        Self { bar, what, before: State::default(), rate: 0.0, cpu: 0.0 }
    }

    /// Updates the line.
    pub(crate) fn update(&mut self, now: State) {
        let elapsed = now.elapsed.saturating_sub(self.before.elapsed);
        if elapsed >= WINDOW || self.rate == 0.0 && !elapsed.is_zero() {
            let seconds = elapsed.as_secs_f64();
            self.rate = now.bytes.saturating_sub(self.before.bytes) as f64 / seconds;
            self.cpu = now.cpu.saturating_sub(self.before.cpu).as_secs_f64() / seconds;
            self.before = now;
        }
        self.bar.set_message(self.line(now));
        self.bar.tick();
    }

    fn line(&self, now: State) -> String {
        let lost = match (now.gaps, now.lost_frames) {
            (0, _) => "nothing lost".to_owned(),
            (gaps, frames) => format!("{frames} frames lost in {gaps} gaps"),
        };
        format!(
            "{} {}, {}/s, {} of {} blocks full, {lost}, CPU {:.1} %",
            self.what,
            show_size(now.bytes),
            show_size(self.rate as u64),
            now.full,
            now.blocks,
            self.cpu * 100.0
        )
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
