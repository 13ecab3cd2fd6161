// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a campaign says in the end, in words or as a line of JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// The end of a campaign.
pub(crate) struct Report<'a> {
    pub(crate) seed: u64,
    pub(crate) rounds: u64,
    pub(crate) operations: usize,
    pub(crate) time: Duration,
    /// What was done, and how often.
    pub(crate) tally: &'a BTreeMap<&'static str, u64>,
    /// What was found, and in which round.
    pub(crate) found: Option<(u64, String)>,
}

impl Report<'_> {
    pub(crate) fn print(&self, json: bool) {
        print!("{}", if json { self.json() } else { self.words() });
    }

    fn words(&self) -> String {
        let Self { seed, rounds, operations, .. } = self;
        let seconds = self.time.as_secs();
        if let Some((round, what)) = &self.found {
            return format!(
                "FAIL seed={seed} round={round} operations={operations} seconds={seconds} {what}\n"
            );
        }
        let mut text = String::new();
        for (what, count) in self.tally {
            let _ = writeln!(text, "{count:8} {what}");
        }
        text + &format!(
            "ok seed={seed} rounds={rounds} operations={operations} seconds={seconds}\n"
        )
    }

    fn json(&self) -> String {
        let Self { seed, rounds, operations, .. } = self;
        let seconds = self.time.as_secs();
        let tally: Vec<String> =
            self.tally.iter().map(|(what, count)| format!("{}:{count}", quoted(what))).collect();
        let found = match &self.found {
            Some((round, what)) => format!("{{\"round\":{round},\"what\":{}}}", quoted(what)),
            None => "null".into(),
        };
        format!(
            "{{\"seed\":{seed},\"rounds\":{rounds},\"operations\":{operations},\
             \"seconds\":{seconds},\"found\":{found},\"done\":{{{}}}}}\n",
            tally.join(",")
        )
    }
}

pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            char if char < ' ' => {
                let _ = write!(quoted, "\\u{:04x}", char as u32);
            }
            char => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report<'a>(
        tally: &'a BTreeMap<&'static str, u64>,
        found: Option<(u64, String)>,
    ) -> Report<'a> {
        let time = Duration::from_millis(4900);
        Report { seed: 3, rounds: 7, operations: 280, time, tally, found }
    }

    #[test]
    fn success_counts_what_was_done() {
        let tally = BTreeMap::from([("READ", 12)]);
        let report = report(&tally, None);
        assert_eq!(report.words(), "      12 READ\nok seed=3 rounds=7 operations=280 seconds=4\n");
        assert_eq!(
            report.json(),
            "{\"seed\":3,\"rounds\":7,\"operations\":280,\"seconds\":4,\"found\":null,\
             \"done\":{\"READ\":12}}\n"
        );
    }

    #[test]
    fn a_finding_names_its_round() {
        let tally = BTreeMap::new();
        let report = report(&tally, Some((6, "a \"byte\"\n".into())));
        assert_eq!(report.words(), "FAIL seed=3 round=6 operations=280 seconds=4 a \"byte\"\n\n");
        assert!(
            report.json().contains("\"found\":{\"round\":6,\"what\":\"a \\\"byte\\\"\\u000a\"}")
        );
    }
}
