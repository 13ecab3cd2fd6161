// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of all benchmarks: they are chosen, run in turns, printed and stored.

use std::io::{self, Write as _};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use dmabuf_dio_terminal::exit::{DIFFERENT, FAILED, Failure, UNAVAILABLE, USAGE};
use dmabuf_dio_terminal::progress::Bar;
use dmabuf_dio_terminal::size::show_size;
use indexmap::{IndexMap, IndexSet};
use indicatif::HumanCount;
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::CommonArgs;
use crate::host::facts;
use crate::measure::clock::median;
use crate::outcome::{Result, Status};

/// What a row is about, or facts about a result.
type Members = IndexMap<&'static str, Value>;
/// The figures of a run, the same in all runs of a row.
pub(crate) type Run = Vec<(&'static str, f64)>;

/// Something to measure.
pub(crate) struct Case<'a> {
    about: Members,
    run: Box<dyn FnMut(i32) -> Result<Run> + 'a>,
}

impl<'a> Case<'a> {
    /// `run` is given the number of the run. Runs before number 1 do not count.
    pub(crate) fn new(
        about: impl IntoIterator<Item = (&'static str, Value)>,
        run: impl FnMut(i32) -> Result<Run> + 'a,
    ) -> Self {
        Self { about: about.into_iter().collect(), run: Box::new(run) }
    }

    fn name(&self) -> String {
        let words: Vec<String> = self.about.values().map(text).collect();
        words.join(", ")
    }
}

/// The order of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The first run of each row, then the second of each, so that changes over time affect all of them.
    Turns,
    /// The first run of each row, then all others of the first row, then those of the second.
    Rows,
}

/// A row of a result: what was measured, and the values of all runs for each figure, or why there are none.
#[derive(Debug, Default, Serialize)]
struct Row {
    #[serde(flatten)]
    about: Members,
    #[serde(flatten)]
    figures: IndexMap<&'static str, Vec<f64>>,
    #[serde(flatten)]
    trouble: IndexMap<Status, String>,
}

/// A result: facts, then rows.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    facts: Members,
    rows: Vec<Row>,
    #[serde(skip)]
    only: Vec<String>,
    #[serde(skip)]
    output: Option<PathBuf>,
}

impl Report {
    /// Starts a measurement.
    pub(crate) fn start(bench: &str, args: &CommonArgs) -> Result<Self, Failure> {
        let (only, output) = (args.only.clone(), args.output.clone());
        let mut report = Self { only, output, ..Self::default() };
        report.fact("bench", bench);
        for (name, value) in facts(args)? {
            report.fact(name, value);
        }
        Ok(report)
    }

    /// Adds a fact, if it is known.
    pub(crate) fn fact(&mut self, name: &'static str, value: impl Into<Value>) {
        let value = value.into();
        if !value.is_null() {
            self.facts.insert(name, value);
        }
    }

    /// Runs the chosen cases, which become rows. A row that has failed is not run again.
    pub(crate) fn measure(
        &mut self,
        mut cases: Vec<Case<'_>>,
        runs: RangeInclusive<i32>,
        order: Order,
    ) -> Result<(), Failure> {
        select(&mut cases, &self.only)?;
        let (first, last) = (*runs.start(), *runs.end());
        let mut steps: Vec<(usize, i32)> =
            runs.flat_map(|run| (0..cases.len()).map(move |case| (case, run))).collect();
        if order == Order::Rows {
            steps.sort_by_key(|&(case, run)| (run > first, case, run));
        }
        let about = cases.iter().map(|case| case.about.clone());
        let mut rows: Vec<Row> = about.map(|about| Row { about, ..Row::default() }).collect();
        let bar = Bar::steps();
        for (step, &(case, run)) in (0..).zip(&steps) {
            Failure::if_interrupted().inspect_err(|_| bar.finish())?;
            bar.say(format!("run {run} of {last}: {}", cases[case].name()));
            bar.update(step, steps.len() as u64);
            let row = &mut rows[case];
            if !row.trouble.is_empty() {
                continue;
            }
            match (cases[case].run)(run) {
                Ok(figures) => {
                    for (name, value) in figures.into_iter().filter(|_| run > 0) {
                        row.figures.entry(name).or_default().push(round(value));
                    }
                }
                Err(mut trouble) => {
                    // What worked before is not what the kernel lacks.
                    if !std::mem::take(&mut row.figures).is_empty() {
                        trouble = trouble.grave();
                    }
                    row.trouble.insert(trouble.status, trouble.reason);
                }
            }
        }
        bar.finish();
        // What a signal ended has failed for no other reason.
        Failure::if_interrupted()?;
        self.rows.extend(rows);
        Ok(())
    }

    /// Prints the result, and stores it if there is a file for it. Fails if a row failed.
    pub(crate) fn publish(&self) -> Result<(), Failure> {
        io::stdout().write_all(self.text().as_bytes())?;
        if let Some(path) = &self.output {
            let text = serde_json::to_string(self).map_err(io::Error::from);
            text.and_then(|text| std::fs::write(path, text + "\n")).map_err(|error| {
                let what = format!("{}: cannot be written: {error}", path.display());
                Failure::new(FAILED, what, "choose another --output FILE")
            })?;
        }
        self.conclude()
    }

    /// The facts, then a table with the median of each figure, and the range of several runs.
    fn text(&self) -> String {
        let facts =
            self.facts.iter().map(|(name, value)| format!("{name} {}", member(name, value)));
        let about = self.rows.first().map_or(0, |row| row.about.len());
        let figures: IndexSet<&str> =
            self.rows.iter().flat_map(|row| row.figures.keys().copied()).collect();
        let head = self.rows.iter().take(1).flat_map(|row| row.about.keys()).chain(&figures);
        let mut grid = vec![(head.map(ToString::to_string).collect::<Vec<_>>(), String::new())];
        grid.extend(self.rows.iter().map(|row| {
            let about = row.about.iter().map(|(name, value)| member(name, value));
            let shown = figures.iter().filter(|_| row.trouble.is_empty());
            let found = shown.map(|name| row.figures.get(name));
            let found = found.map(|values| values.map_or_else(String::new, |values| range(values)));
            let reason =
                row.trouble.iter().map(|(status, why)| format!("{}: {why}", text(&json!(status))));
            (about.chain(found).collect(), reason.collect())
        }));
        let wide = |column: usize| {
            grid.iter().filter_map(|(cells, _)| Some(cells.get(column)?.len())).max()
        };
        let widths: Vec<usize> = (0..).map_while(wide).collect();
        let mut lines = format!("{}\n", facts.collect::<Vec<_>>().join(", "));
        for (cells, reason) in &grid {
            let mut line = String::new();
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                let (left, right) = if column < about { (*width, 0) } else { (0, *width) };
                line += &format!("{cell:>right$}  ", cell = format!("{cell:<left$}"));
            }
            lines += &format!("\n{}", (line + reason).trim_end());
        }
        lines + "\n"
    }

    /// Fails as the worst row does.
    fn conclude(&self) -> Result<(), Failure> {
        let worst = self.rows.iter().flat_map(|row| row.trouble.keys()).max();
        let measured = self.rows.iter().any(|row| row.trouble.is_empty());
        let (code, what, hint) = match worst {
            Some(Status::Different) => {
                (DIFFERENT, "a byte was wrong", "report it with the output of dmabuf-dio doctor")
            }
            Some(Status::Failed) => (FAILED, "a supported row failed", "see dmesg for details"),
            _ if measured => return Ok(()),
            _ => {
                (UNAVAILABLE, "no row could be measured", "dmabuf-dio doctor says what is missing")
            }
        };
        Err(Failure::new(code, what, format!("the row says why; {hint}")))
    }
}

/// Keeps the cases whose name contains one of the texts, or all without a text.
fn select(cases: &mut Vec<Case<'_>>, only: &[String]) -> Result<(), Failure> {
    let names: Vec<String> = cases.iter().map(Case::name).collect();
    if let Some(text) = only.iter().find(|text| !names.iter().any(|name| name.contains(*text))) {
        let hint = format!("the rows are: {}", names.join("; "));
        return Err(Failure::new(USAGE, format!("--only {text:?}: no row has this name"), hint));
    }
    cases.retain(|case| only.is_empty() || only.iter().any(|text| case.name().contains(text)));
    Ok(())
}

/// Without noise of floating point.
fn round(value: f64) -> f64 {
    format!("{value:.11e}").parse().unwrap_or(value)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A value as people write it.
fn member(name: &str, value: &Value) -> String {
    match value.as_u64() {
        Some(bytes) if matches!(name, "size" | "block" | "total" | "memory_bytes") => {
            show_size(bytes)
        }
        _ => text(value),
    }
}

/// The median, and the range of several values.
fn range(values: &[f64]) -> String {
    let middle = show(median(values.to_vec()));
    let of = |best: fn(f64, f64) -> f64| {
        values.iter().copied().reduce(best).map_or_else(String::new, show)
    };
    if values.len() == 1 {
        middle
    } else {
        format!("{middle} ({} - {})", of(f64::min), of(f64::max))
    }
}

/// A number with three digits, or a whole one with commas.
fn show(value: f64) -> String {
    let size = value.abs();
    if size < 999.5 {
        let digits = if size < 1e-6 { 2.0 } else { 2.0 - size.log10().floor() };
        return format!("{value:.0$}", digits.clamp(0.0, 6.0) as usize);
    }
    format!("{}{}", if value < 0.0 { "-" } else { "" }, HumanCount(size.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Trouble;

    /// Runs cases, and says which runs there were. A case fails in the run that is its name.
    fn measured(names: &[&str], order: Order, only: &[&str]) -> Result<(Report, String), Failure> {
        let only = only.iter().map(ToString::to_string).collect();
        let mut report = Report { only, ..Report::default() };
        let said = std::cell::RefCell::new(String::new());
        let cases = names.iter().map(|name| {
            let about = [("size", 4096.into()), ("way", format!("row {name}").into())];
            let said = &said;
            Case::new(about, move |run| {
                *said.borrow_mut() += &format!("{name}{run} ");
                match run {
                    _ if *name == run.to_string() => Err(Trouble::new(Status::Unavailable, "no")),
                    _ => Ok(vec![("z", f64::from(run)), ("b", 0.1 + 0.2)]),
                }
            })
        });
        report.measure(cases.collect(), 0..=2, order)?;
        Ok((report, said.take()))
    }

    #[test]
    fn uncounted_runs_and_failures_are_told_apart() {
        for order in [Order::Turns, Order::Rows] {
            let rows = measured(&["0", "1", "2", "9"], order, &[]).expect("no signal").0.rows;
            let statuses = rows.iter().map(|row| row.trouble.keys().next().copied());
            // A way with a sample is never unavailable.
            let wanted =
                [Some(Status::Unavailable), Some(Status::Unavailable), Some(Status::Failed), None];
            assert_eq!(statuses.collect::<Vec<_>>(), wanted);
            assert_eq!(rows[3].figures["z"], [1.0, 2.0]);
        }
    }

    #[test]
    fn rows_are_chosen_by_parts_of_their_names_and_run_in_order() {
        for (order, wanted) in
            [(Order::Turns, "a0 b0 a1 b1 a2 b2 "), (Order::Rows, "a0 b0 a1 a2 b1 b2 ")]
        {
            let chosen = measured(&["a", "c", "b"], order, &["row a", "4096, row b"]);
            assert_eq!(chosen.expect("no signal").1, wanted);
        }
        let failure = measured(&["a"], Order::Turns, &["row", "no such"]).expect_err("unknown");
        assert!(failure.what().contains("no such") && failure.hint().contains("4096, row a"));
    }

    #[test]
    fn result_has_ordered_members_and_reasons() {
        let mut report = measured(&["0", "9"], Order::Turns, &[]).expect("rows").0;
        report.fact("kernel", "7.3");
        report.fact("fio", Value::Null);
        assert_eq!(
            serde_json::to_string(&report).expect("JSON"),
            "{\"kernel\":\"7.3\",\"rows\":[\
             {\"size\":4096,\"way\":\"row 0\",\"unavailable\":\"no\"},\
             {\"size\":4096,\"way\":\"row 9\",\"z\":[1.0,2.0],\"b\":[0.3,0.3]}]}"
        );
        assert_eq!(
            report.text(),
            "kernel 7.3\n\n\
             size   way                     z                      b\n\
             4 KiB  row 0  unavailable: no\n\
             4 KiB  row 9  1.50 (1.00 - 2.00)  0.300 (0.300 - 0.300)\n"
        );
    }

    #[test]
    fn worst_row_gives_the_exit_code() {
        use Status::{Different, Failed, Unavailable};
        for (statuses, wanted) in [
            (&[None, Some(Unavailable)][..], None),
            (&[None, Some(Failed)], Some("a supported row failed")),
            (&[Some(Different), Some(Failed)], Some("a byte was wrong")),
            (&[Some(Unavailable)], Some("no row could be measured")),
            (&[], Some("no row could be measured")),
        ] {
            let row = |status: &Option<Status>| Row {
                trouble: status.iter().map(|status| (*status, String::new())).collect(),
                ..Row::default()
            };
            let report = Report { rows: statuses.iter().map(row).collect(), ..Report::default() };
            assert_eq!(report.conclude().err().as_ref().map(Failure::what), wanted);
        }
    }

    #[test]
    fn numbers_have_three_digits_or_commas() {
        let shown = [0.0, 0.126, 9.994, 99.94, 999.6, 0.001_187_06, 312_662.0, -3.2].map(show);
        let wanted = ["0.00", "0.126", "9.99", "99.9", "1,000", "0.00119", "312,662", "-3.20"];
        assert_eq!(shown, wanted);
        assert_eq!(range(&[9.0, 1.0, 2.0]), "2.00 (1.00 - 9.00)");
    }
}
