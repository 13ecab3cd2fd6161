// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of results: what was measured, how it ended, its figures.

use crate::measure::outcome::{Outcome, Status};
use crate::measure::time::{Summary, show_range};
use crate::measure::turns::Samples;
use crate::report::grid::Grid;
use crate::report::json::Object;

/// The figures of a run.
pub(crate) type Run = Vec<(&'static str, f64)>;

/// All runs of one way.
#[derive(Debug)]
pub(crate) struct Row {
    /// What a row with the same reason calls this one.
    pub(crate) label: String,
    /// The first cells of the table.
    pub(crate) names: Vec<String>,
    facts: Object,
    outcome: Outcome,
    figures: Vec<(&'static str, Summary)>,
    /// Derived from all runs.
    numbers: Run,
    /// Further members of the JSON object.
    pub(crate) more: Object,
    pub(crate) notes: Vec<String>,
    /// Further cells, of columns made by `Column::cell`.
    pub(crate) cells: Vec<String>,
}

impl Row {
    /// `facts` are its first members; `run` gives the figures of a sample, the same for all.
    pub(crate) fn of<S>(
        names: Vec<String>,
        facts: Object,
        result: &Samples<S>,
        run: impl Fn(&S) -> Run,
    ) -> Self {
        let runs: Vec<Run> = result.iter().flatten().map(run).collect();
        let figures = runs.first().into_iter().flatten().enumerate();
        let figures = figures.filter_map(|(index, (name, _))| {
            let values = runs.iter().filter_map(|run| run.get(index));
            Some((*name, Summary::of(values.map(|(_, value)| *value))?))
        });
        Self {
            label: names.join(", "),
            names,
            facts,
            outcome: Outcome::of(result),
            figures: figures.collect(),
            numbers: Vec::new(),
            more: Object::default(),
            notes: Vec::new(),
            cells: Vec::new(),
        }
    }

    pub(crate) fn is_measured(&self) -> bool {
        !self.figures.is_empty()
    }

    pub(crate) fn status(&self) -> Status {
        self.outcome.status
    }

    /// Shown instead of figures.
    pub(crate) fn sentence(&self) -> String {
        self.outcome.sentence()
    }

    pub(crate) fn figure(&self, name: &str) -> Option<&Summary> {
        self.figures.iter().find(|(figure, _)| *figure == name).map(|(_, summary)| summary)
    }

    pub(crate) fn median(&self, name: &str) -> Option<f64> {
        self.figure(name).map(|figure| figure.median)
    }

    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        self.numbers.iter().find(|(number, _)| *number == name).map(|(_, number)| *number)
    }

    /// Adds a figure that runs of several rows have in common.
    pub(crate) fn add(&mut self, name: &'static str, figure: Option<Summary>) {
        self.figures.extend(figure.map(|figure| (name, figure)));
    }

    /// Adds a derived number to a row with figures.
    pub(crate) fn derive(&mut self, name: &'static str, number: Option<f64>) {
        if self.is_measured() {
            self.numbers.extend(number.map(|number| (name, number)));
        }
    }

    pub(crate) fn json(&self) -> Object {
        let mut object = self.facts.clone().and(self.outcome.json());
        for (name, figure) in &self.figures {
            object = object.with(name, figure.json());
        }
        for (name, number) in &self.numbers {
            object = object.with(name, *number);
        }
        object.and(self.more.clone())
    }
}

/// A column of figures.
pub(crate) struct Column<'a> {
    head: String,
    cell: Box<dyn Fn(&Row) -> String + 'a>,
}

impl<'a> Column<'a> {
    pub(crate) fn new(head: impl Into<String>, cell: impl Fn(&Row) -> String + 'a) -> Self {
        Self { head: head.into(), cell: Box::new(cell) }
    }

    pub(crate) fn median(
        head: impl Into<String>,
        figure: &'a str,
        show: impl Fn(f64) -> String + 'a,
    ) -> Self {
        Self::new(head, move |row| row.median(figure).map_or_else(String::new, &show))
    }

    pub(crate) fn number(
        head: impl Into<String>,
        number: &'a str,
        show: impl Fn(f64) -> String + 'a,
    ) -> Self {
        Self::new(head, move |row| row.number(number).map_or_else(String::new, &show))
    }

    /// One of the row's own cells.
    pub(crate) fn cell(head: &str, index: usize) -> Self {
        Self::new(head, move |row| row.cells.get(index).cloned().unwrap_or_default())
    }

    /// Minimum and maximum of several runs.
    pub(crate) fn range(figure: &'a str, runs: u32) -> Option<Self> {
        let cell = move |row: &Row| row.figure(figure).map_or_else(String::new, show_range);
        (runs > 1).then(|| Self::new("min-max", cell))
    }
}

/// A table: the rows' names, then their figures, or why there are none.
pub(crate) fn grid<'r>(
    names: &[&str],
    columns: impl IntoIterator<Item = Option<Column<'r>>>,
    rows: impl IntoIterator<Item = &'r Row>,
) -> Grid {
    let columns: Vec<_> = columns.into_iter().flatten().collect();
    let head: Vec<&str> =
        names.iter().copied().chain(columns.iter().map(|column| &*column.head)).collect();
    let mut grid = Grid::new(names.len(), &head);
    for row in rows {
        if row.is_measured() {
            let cells = columns.iter().map(|column| (column.cell)(row));
            grid.figures(row.names.iter().cloned().chain(cells).collect());
        } else {
            grid.reason(row.names.clone(), row.sentence(), row.label.clone());
        }
    }
    grid
}

/// All rows at one size of the file.
#[derive(Debug)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
    /// Further members of the JSON object.
    pub(crate) facts: Object,
    /// The rows, or why this size was left out.
    pub(crate) rows: Result<Vec<Row>, String>,
}

impl Size {
    pub(crate) fn rows(&self) -> &[Row] {
        self.rows.as_deref().unwrap_or_default()
    }

    pub(crate) fn json(&self, rows: &'static str) -> Object {
        Object::default()
            .with("bytes", self.bytes)
            .and(self.facts.clone())
            .with("reason", self.rows.as_ref().err().cloned())
            .list(rows, self.rows().iter().map(Row::json))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::outcome::Trouble;

    #[test]
    fn members_stay_in_order_and_missing_figures_have_a_reason() {
        let facts = || Object::default().with("name", "a").with("copied", 1.0);
        let mut row = Row::of(vec!["a".into()], facts(), &Ok(vec![2.0, 1.0]), |value| {
            vec![("z", *value), ("b", 7.0)]
        });
        row.derive("percent", Some(5.0));
        let json = serde_json::to_string(&row.json()).expect("JSON");
        let order =
            ["name", "copied", "status", "\"z\"", "\"b\"", "percent"].map(|name| json.find(name));
        assert!(order.is_sorted() && order[0].is_some(), "{json}");
        assert_eq!((row.median("z"), row.number("percent")), (Some(1.5), Some(5.0)));
        let lacks: Samples<f64> = Err(Trouble::short("it", 1, 2));
        let mut lacking = Row::of(vec!["b".into()], facts(), &lacks, |_| vec![]);
        lacking.derive("percent", Some(5.0));
        assert_eq!(lacking.number("percent"), None);
        let columns = [Some(Column::median("z", "z", |z| format!("{z}"))), Column::range("z", 1)];
        let text = grid(&["name"], columns, [&row, &lacking]).text();
        assert!(text.starts_with("name   z\n") && text.contains("b    FAILED: it"), "{text}");
    }
}
