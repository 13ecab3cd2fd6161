// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a campaign says in the end.

use std::fmt::Write as _;
use std::time::Duration;

use dmabuf_dio_sys::Errno;

use super::call::KINDS;
use super::shared::Shared;
use crate::report::quoted;

pub(crate) struct Report<'a> {
    pub(crate) seed: u64,
    pub(crate) executions: u64,
    /// Inputs that reached something new
    pub(crate) corpus: usize,
    /// Basic blocks that were reached, if the module says
    pub(crate) blocks: Option<u64>,
    pub(crate) time: Duration,
    pub(crate) shared: &'a Shared,
    pub(crate) found: Option<&'a str>,
}

fn errno(number: usize) -> String {
    match number {
        0 => "ok".into(),
        number => {
            Errno::from_raw(number as i32).name().map_or_else(|| number.to_string(), str::to_owned)
        }
    }
}

impl Report<'_> {
    pub(crate) fn words(&self) -> String {
        let mut text = String::new();
        for (number, kind) in KINDS.iter().enumerate() {
            let results = self.shared.results(number);
            let all: u32 = results.iter().map(|(_, count)| count).sum();
            let _ = write!(text, "{all:8} {:12}", kind.name);
            for (number, count) in results {
                let _ = write!(text, " {} {count}", errno(number));
            }
            text.push('\n');
        }
        let Self { seed, executions, corpus, .. } = self;
        let milliseconds = self.time.as_millis().max(1);
        let rate = u128::from(*executions) * 1000 / milliseconds;
        let blocks = self.blocks.map_or("unknown".into(), |blocks| blocks.to_string());
        let (start, what) =
            self.found.map_or(("ok", String::new()), |what| ("FAIL", format!(" {what}")));
        let _ = writeln!(
            text,
            "{start} seed={seed} executions={executions} corpus={corpus} blocks={blocks} \
             seconds={} rate={rate}{what}",
            self.time.as_secs()
        );
        text
    }

    pub(crate) fn json(&self) -> String {
        let calls = KINDS.iter().enumerate().map(|(number, kind)| {
            let results = self.shared.results(number);
            let results = results.iter().map(|(number, n)| format!("\"{}\":{n}", errno(*number)));
            format!("\"{}\":{{{}}}", kind.name, results.collect::<Vec<_>>().join(","))
        });
        let calls = calls.collect::<Vec<_>>().join(",");
        let Self { seed, executions, corpus, .. } = self;
        let blocks = self.blocks.map_or("null".into(), |blocks| blocks.to_string());
        let found = self.found.map_or("null".into(), quoted);
        let seconds = self.time.as_secs();
        format!(
            "{{\"seed\":{seed},\"executions\":{executions},\"corpus\":{corpus},\"blocks\":{blocks},\
             \"seconds\":{seconds},\"found\":{found},\"calls\":{{{calls}}}}}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_error() {
        let shared = Shared::create().unwrap();
        shared.count(0, Ok(3));
        shared.count(0, Err(libc::EINVAL));
        shared.count(0, Err(libc::EINVAL));
        let time = Duration::from_secs(2);
        let (seed, executions, corpus) = (1, 10, 4);
        let report =
            Report { seed, executions, corpus, blocks: None, time, shared, found: Some("a \"b\"") };
        let words = report.words();
        assert!(words.starts_with("       3 open         ok 1 EINVAL 2\n"), "{words}");
        let end = "FAIL seed=1 executions=10 corpus=4 blocks=unknown seconds=2 rate=5 a \"b\"\n";
        assert!(words.ends_with(end), "{words}");
        let json = report.json();
        assert!(json.contains("\"open\":{\"ok\":1,\"EINVAL\":2}"), "{json}");
        assert!(json.contains("\"found\":\"a \\\"b\\\"\""), "{json}");
    }
}
