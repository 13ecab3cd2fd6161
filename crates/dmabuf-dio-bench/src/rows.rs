// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of all benchmarks: they are chosen, run in turns, printed and stored.

use std::io::Write as _;
use std::ops::RangeInclusive;
use std::path::Path;

use dmabuf_dio_terminal::exit::{DIFFERENT, FAILED, Failure, UNAVAILABLE, USAGE};
use dmabuf_dio_terminal::progress::Bar;
use dmabuf_dio_terminal::size::show_size;
use serde_json::Value;

use crate::measure::median;
use crate::outcome::{Status, Trouble};

/// What a row is about, or facts about a result.
pub(crate) type Members = Vec<(&'static str, Value)>;
/// The figures of a run, the same in all runs of a row.
pub(crate) type Run = Vec<(&'static str, f64)>;

/// The values of all runs, for each figure.
type Figures = Vec<(&'static str, Vec<f64>)>;

/// Something to measure.
pub(crate) struct Case<'a> {
    about: Members,
    run: Box<dyn FnMut(i32) -> Result<Run, Trouble> + 'a>,
}

impl<'a> Case<'a> {
    /// `run` is given the number of the run. Runs before number 1 do not count.
    pub(crate) fn new(about: Members, run: impl FnMut(i32) -> Result<Run, Trouble> + 'a) -> Self {
        Self { about, run: Box::new(run) }
    }

    fn name(&self) -> String {
        let words: Vec<String> = self.about.iter().map(|(_, value)| text(value)).collect();
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

/// Runs the chosen cases. A row that has failed is not run again.
pub(crate) fn measure(
    mut cases: Vec<Case<'_>>,
    only: &[String],
    runs: RangeInclusive<i32>,
    order: Order,
) -> Result<Vec<Row>, Failure> {
    select(&mut cases, only)?;
    let (first, last) = (*runs.start(), *runs.end());
    let mut steps: Vec<(usize, i32)> =
        runs.flat_map(|run| (0..cases.len()).map(move |case| (case, run))).collect();
    if order == Order::Rows {
        steps.sort_by_key(|&(case, run)| (run > first, case, run));
    }
    let mut results: Vec<Result<Figures, Trouble>> = vec![Ok(Vec::new()); cases.len()];
    let bar = Bar::steps();
    for (step, &(case, run)) in (0..).zip(&steps) {
        Failure::if_interrupted().inspect_err(|_| bar.finish())?;
        bar.say(format!("run {run} of {last}: {}", cases[case].name()));
        bar.update(step, steps.len() as u64);
        let Ok(found) = &mut results[case] else { continue };
        match (cases[case].run)(run) {
            Ok(figures) if run > 0 => add(found, figures),
            Ok(_) => {}
            // What worked before is not what the kernel lacks.
            Err(trouble) if !found.is_empty() => results[case] = Err(trouble.grave()),
            Err(trouble) => results[case] = Err(trouble),
        }
    }
    bar.finish();
    // What a signal ended has failed for no other reason.
    Failure::if_interrupted()?;
    let rows = cases.into_iter().zip(results);
    Ok(rows.map(|(case, result)| Row { about: case.about, result }).collect())
}

/// Adds the figures of a run.
fn add(all: &mut Figures, run: Run) {
    for (name, value) in run {
        match all.iter_mut().find(|(other, _)| *other == name) {
            Some((_, values)) => values.push(value),
            None => all.push((name, vec![value])),
        }
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

/// A row of a result: what was measured, and the figures, or why there are none.
#[derive(Debug)]
pub(crate) struct Row {
    about: Members,
    result: Result<Figures, Trouble>,
}

impl Row {
    fn members(&self) -> Members {
        let mut members = self.about.clone();
        match &self.result {
            Err(trouble) => members.push((trouble.status.name(), trouble.reason.clone().into())),
            Ok(figures) => members.extend(figures.iter().map(|(name, values)| {
                (*name, values.iter().copied().map(round).collect::<Vec<_>>().into())
            })),
        }
        members
    }

    fn status(&self) -> Option<Status> {
        self.result.as_ref().err().map(|trouble| trouble.status)
    }
}

/// Without noise of floating point.
fn round(value: f64) -> f64 {
    format!("{value:.11e}").parse().unwrap_or(value)
}

/// A whole result.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) bench: &'static str,
    pub(crate) facts: Members,
    pub(crate) rows: Vec<Row>,
}

impl Report {
    /// Prints the result, and stores it if there is a file for it.
    pub(crate) fn publish(&self, output: Option<&Path>) -> Result<(), Failure> {
        std::io::stdout().write_all(self.text().as_bytes())?;
        let Some(path) = output else { return Ok(()) };
        std::fs::write(path, self.json()).map_err(|error| {
            let what = format!("{}: cannot be written: {error}", path.display());
            Failure::new(FAILED, what, "choose another --output FILE")
        })
    }

    /// The facts, then the rows.
    fn json(&self) -> String {
        let facts = [("bench", self.bench.into())].into_iter().chain(self.facts.iter().cloned());
        let facts = object(facts.filter(|(_, value)| !value.is_null()));
        let rows: Vec<String> = self.rows.iter().map(|row| object(row.members())).collect();
        format!("{},\"rows\":[{}]}}\n", facts.trim_end_matches('}'), rows.join(",\n"))
    }

    /// The facts, then a table with the median of each figure, and the range of several runs.
    fn text(&self) -> String {
        let facts = self.facts.iter().filter(|(_, value)| !value.is_null());
        let facts: Vec<String> =
            facts.map(|(name, value)| format!("{name} {}", member(name, value))).collect();
        let mut lines = format!("{}: {}\n\n", self.bench, facts.join(", "));
        let mut figures: Vec<&str> = Vec::new();
        for (name, _) in self.rows.iter().filter_map(|row| row.result.as_ref().ok()).flatten() {
            if !figures.contains(name) {
                figures.push(name);
            }
        }
        let about = self.rows.first().map_or(&[][..], |row| &row.about);
        let head = about.iter().map(|(name, _)| *name).chain(figures.iter().copied());
        let mut grid = vec![(head.map(str::to_owned).collect::<Vec<_>>(), String::new())];
        for row in &self.rows {
            let mut cells: Vec<_> =
                row.about.iter().map(|(name, value)| member(name, value)).collect();
            let mut reason = String::new();
            match &row.result {
                Ok(found) => cells.extend(figures.iter().map(|name| {
                    let figure = found.iter().find(|(other, _)| other == name);
                    figure.map_or_else(String::new, |(_, values)| range(values))
                })),
                Err(trouble) => reason = format!("{}: {}", trouble.status.name(), trouble.reason),
            }
            grid.push((cells, reason));
        }
        let wide = |column: usize| {
            grid.iter().filter_map(|(cells, _)| Some(cells.get(column)?.chars().count())).max()
        };
        let widths: Vec<usize> = (0..).map_while(wide).collect();
        for (cells, reason) in &grid {
            let mut line = String::new();
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                line += &if column < about.len() {
                    format!("{cell:<width$}  ")
                } else {
                    format!("{cell:>width$}  ")
                };
            }
            lines += (line + reason).trim_end();
            lines.push('\n');
        }
        lines
    }

    /// Fails as the worst row does.
    pub(crate) fn conclude(&self) -> Result<(), Failure> {
        let measured = self.rows.iter().any(|row| row.status().is_none());
        let (code, what, hint) = match self.rows.iter().filter_map(Row::status).max() {
            Some(Status::Different) => (
                DIFFERENT,
                "a byte was wrong",
                "the row says which; report it with the output of dmabuf-dio doctor",
            ),
            Some(Status::Failed) => (
                FAILED,
                "a supported row failed",
                "the row gives the reason; see dmesg for details",
            ),
            _ if measured => return Ok(()),
            _ => (
                UNAVAILABLE,
                "no row could be measured",
                "each row gives the reason; dmabuf-dio doctor says how to change it",
            ),
        };
        Err(Failure::new(code, what, hint))
    }
}

/// A JSON object whose members stay in order.
fn object(members: impl IntoIterator<Item = (&'static str, Value)>) -> String {
    let members = members.into_iter().map(|(name, value)| format!("{}:{value}", Value::from(name)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
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
    if values.len() == 1 {
        return middle;
    }
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{middle} ({} - {})", show(least), show(most))
}

/// A number with three digits, or a whole one with commas.
fn show(value: f64) -> String {
    let size = value.abs();
    if size < 999.5 {
        let digits = if size < 1e-6 { 2.0 } else { 2.0 - size.log10().floor() };
        return format!("{value:.0$}", digits.clamp(0.0, 6.0) as usize);
    }
    let digits = format!("{size:.0}");
    let mut text = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(name: &str) -> Members {
        vec![("size", 4096.into()), ("way", name.into())]
    }

    /// Each row fails in the run that is its number; run 0 does not count.
    fn fails_in(run: i32) -> Case<'static> {
        Case::new(way(&format!("row {run}")), move |now| match now {
            _ if now == run => Err(Trouble::new(Status::Unavailable, "no")),
            _ => Ok(vec![("z", f64::from(now)), ("b", 0.1 + 0.2)]),
        })
    }

    fn measured(order: Order, only: &[&str]) -> Result<Vec<Row>, Failure> {
        let only: Vec<String> = only.iter().map(ToString::to_string).collect();
        measure([0, 1, 2, 9].map(fails_in).into(), &only, 0..=2, order)
    }

    #[test]
    fn uncounted_runs_and_failures_are_told_apart() {
        for order in [Order::Turns, Order::Rows] {
            let rows = measured(order, &[]).expect("no signal");
            let statuses: Vec<_> = rows.iter().map(Row::status).collect();
            // A way with a sample is never unavailable.
            let wanted =
                [Some(Status::Unavailable), Some(Status::Unavailable), Some(Status::Failed), None];
            assert_eq!(statuses, wanted);
            let figures = rows[3].result.as_ref().expect("figures");
            assert_eq!(figures[0], ("z", vec![1.0, 2.0]));
        }
    }

    #[test]
    fn rows_are_chosen_by_parts_of_their_names_and_run_in_order() {
        for (order, wanted) in
            [(Order::Turns, "a0 b0 a1 b1 a2 b2 "), (Order::Rows, "a0 b0 a1 a2 b1 b2 ")]
        {
            let said = std::cell::RefCell::new(String::new());
            let case = |name: &'static str| {
                let said = &said;
                Case::new(way(name), move |run| {
                    *said.borrow_mut() += &format!("{name}{run} ");
                    Ok(Vec::new())
                })
            };
            let only = ["a".into(), "4096, b".into()];
            measure(vec![case("a"), case("c"), case("b")], &only, 0..=2, order).expect("no signal");
            assert_eq!(*said.borrow(), wanted);
        }
        let failure = measured(Order::Turns, &["row 1", "no such"]).expect_err("unknown");
        assert!(failure.what().contains("no such") && failure.hint().contains("4096, row 9"));
    }

    #[test]
    fn result_has_ordered_members_and_reasons() {
        let rows = measured(Order::Turns, &["row 0", "row 9"]).expect("rows");
        let report = Report {
            bench: "x",
            facts: vec![("kernel", "7.3".into()), ("fio", Value::Null)],
            rows,
        };
        assert_eq!(
            report.json(),
            "{\"bench\":\"x\",\"kernel\":\"7.3\",\"rows\":[\
             {\"size\":4096,\"way\":\"row 0\",\"unavailable\":\"no\"},\n\
             {\"size\":4096,\"way\":\"row 9\",\"z\":[1.0,2.0],\"b\":[0.3,0.3]}]}\n"
        );
        assert_eq!(
            report.text(),
            "x: kernel 7.3\n\n\
             size   way                     z                      b\n\
             4 KiB  row 0  unavailable: no\n\
             4 KiB  row 9  1.50 (1.00 - 2.00)  0.300 (0.300 - 0.300)\n"
        );
    }

    #[test]
    fn worst_row_gives_the_exit_code() {
        let code = |statuses: &[Option<Status>]| {
            let row = |status: &Option<Status>| Row {
                about: Vec::new(),
                result: status.map_or(Ok(Vec::new()), |status| Err(Trouble::new(status, ""))),
            };
            let rows = statuses.iter().map(row).collect();
            let failure = Report { bench: "x", facts: Vec::new(), rows }.conclude();
            failure.err().map(|failure| failure.what().to_owned())
        };
        assert_eq!(code(&[None, Some(Status::Unavailable)]), None);
        let failed = code(&[None, Some(Status::Failed)]).expect("a failure");
        assert!(failed.contains("failed"));
        let different = code(&[Some(Status::Different), Some(Status::Failed)]).expect("a failure");
        assert!(different.contains("wrong"));
        assert!(code(&[Some(Status::Unavailable)]).is_some() && code(&[]).is_some());
    }

    #[test]
    fn numbers_have_three_digits_or_commas() {
        let shown = [0.0, 0.126, 9.994, 99.94, 999.6, 0.001_187_06, 312_662.0, -3.2].map(show);
        assert_eq!(
            shown,
            ["0.00", "0.126", "9.99", "99.9", "1,000", "0.00119", "312,662", "-3.20"]
        );
        assert_eq!(range(&[3.0, 1.0]), "2.00 (1.00 - 3.00)");
        assert_eq!(range(&[9.0, 1.0, 2.0]), "2.00 (1.00 - 9.00)");
    }
}
