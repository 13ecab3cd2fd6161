// SPDX-License-Identifier: MIT OR Apache-2.0
//! A progress bar for operations that take over a second.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use dmabuf_dio::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const PATIENCE: Duration = Duration::from_secs(1);

/// A bar on standard error, if that is a terminal.
#[derive(Clone, Debug)]
pub struct Bar {
    bar: ProgressBar,
    start: Instant,
}

impl Bar {
    /// A bar that counts bytes.
    pub fn new(what: &'static str) -> Self {
        let bar = Self::of(
            "{msg} {wide_bar} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left",
        );
        bar.say(what);
        bar
    }

    /// A bar that counts steps.
    pub fn steps() -> Self {
        Self::of("{msg} {wide_bar} {pos} of {len} done, {elapsed}")
    }

    fn of(template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar, start: Instant::now() }
    }

    /// Sets the message.
    pub fn say(&self, what: impl Into<Cow<'static, str>>) {
        self.bar.set_message(what);
    }

    /// Updates the bar, which appears after a second.
    pub fn update(&self, done: u64, total: u64) {
        if self.bar.is_hidden() && self.start.elapsed() > PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    /// A callback for the library that updates the bar.
    pub fn callback(&self) -> impl Fn(Progress) + Send + Sync + 'static {
        let bar = self.clone();
        move |progress| bar.update(progress.done, progress.total)
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
