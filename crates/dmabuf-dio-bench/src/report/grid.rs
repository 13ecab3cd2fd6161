// SPDX-License-Identifier: MIT OR Apache-2.0
//! A table, for terminals and for Markdown.

/// Width of text below and next to tables.
const WIDTH: usize = 80;

/// A table of text: columns of names, then columns of figures.
#[derive(Debug)]
pub(crate) struct Grid {
    names: usize,
    head: Vec<String>,
    rows: Vec<GridRow>,
    /// Reasons, each with the name of the first row that has it.
    reasons: Vec<(String, String)>,
}

#[derive(Debug)]
struct GridRow {
    cells: Vec<String>,
    /// Shown instead of figures.
    instead: Option<String>,
}

impl Grid {
    /// A table whose first `names` columns are names.
    pub(crate) fn new(names: usize, head: &[&str]) -> Self {
        let head = head.iter().map(ToString::to_string).collect();
        Self { names, head, rows: Vec::new(), reasons: Vec::new() }
    }

    pub(crate) fn figures(&mut self, cells: Vec<String>) {
        self.rows.push(GridRow { cells, instead: None });
    }

    /// A row with the reason why it has no figures. A repeated reason refers to the first row that
    /// has it.
    pub(crate) fn reason(&mut self, names: Vec<String>, reason: String, name: String) {
        let same = self.reasons.iter().find(|(given, _)| *given == reason);
        let instead = same.map_or_else(|| reason.clone(), |(_, row)| format!("as {row}"));
        if same.is_none() {
            self.reasons.push((reason, name));
        }
        self.rows.push(GridRow { cells: names, instead: Some(instead) });
    }

    /// For a terminal.
    pub(crate) fn text(&self) -> String {
        let widths: Vec<usize> = (0..self.head.len())
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.cells.get(column));
                cells.chain([&self.head[column]]).map(|cell| cell.chars().count()).max()
            })
            .map(Option::unwrap_or_default)
            .collect();
        let line = |cells: &[String]| {
            let cells = cells.iter().zip(&widths).enumerate();
            let cells: Vec<String> = cells
                .map(|(column, (cell, width))| {
                    if column < self.names {
                        format!("{cell:<width$}")
                    } else {
                        format!("{cell:>width$}")
                    }
                })
                .collect();
            cells.join(" ")
        };
        let full: usize = widths.iter().sum::<usize>() + widths.len() - 1;
        let names: usize = widths[..self.names].iter().sum::<usize>() + self.names;
        let mut text = format!("{}\n{}\n", line(&self.head).trim_end(), "-".repeat(full));
        for row in &self.rows {
            text += line(&row.cells).trim_end();
            if let Some(reason) = &row.instead {
                let padding = names.saturating_sub(line(&row.cells).trim_end().chars().count());
                text += &" ".repeat(padding);
                text += &wrap(reason, names, full.max(WIDTH));
            }
            text.push('\n');
        }
        text
    }

    /// For Markdown.
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells = cells.iter().map(|cell| cell.replace('|', "\\|"));
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        };
        let mut text = line(&self.head);
        let rule = |column| if column < self.names { "---" } else { "---:" };
        let rules: Vec<&str> = (0..self.head.len()).map(rule).collect();
        text += &format!("|{}|\n", rules.join("|"));
        for row in &self.rows {
            let mut cells = row.cells.clone();
            cells.extend(row.instead.clone());
            cells.resize(self.head.len(), String::new());
            text += &line(&cells);
        }
        text
    }
}

/// Wraps text between two columns.
pub(crate) fn wrap(sentence: &str, from: usize, to: usize) -> String {
    let mut text = String::new();
    let mut at = from;
    for word in sentence.split_whitespace() {
        let len = word.chars().count();
        if at > from && at + 1 + len > to {
            text += &format!("\n{}", " ".repeat(from));
            at = from;
        } else if at > from {
            text.push(' ');
            at += 1;
        }
        text += word;
        at += len;
    }
    text
}

/// A paragraph with a term and its explanation.
pub(crate) fn note(word: &str, meaning: &str) -> String {
    const INDENT: usize = 20;
    format!("{word:<INDENT$}{}\n", wrap(meaning, INDENT, WIDTH))
}

/// A whole number with commas.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value <= -0.5 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let cells = |cells: &[&str]| cells.iter().map(ToString::to_string).collect();
        let mut grid = Grid::new(2, &["#", "name", "ms", "%"]);
        grid.figures(cells(&["1", "one", "12", "100"]));
        let reason = "EINVAL, ".to_owned() + &"this cannot be done ".repeat(6);
        grid.reason(cells(&["2", "a|b"]), reason.clone(), "row 2".into());
        grid.reason(cells(&["3", "c"]), reason, "row 3".into());
        grid
    }

    #[test]
    fn grid_aligns_figures_and_wraps_reasons() {
        let text = grid().text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "# name ms   %");
        assert_eq!(lines[1], "-------------");
        assert_eq!(lines[2], "1 one  12 100");
        assert!(lines[3].starts_with("2 a|b  EINVAL, this cannot"), "{text}");
        assert!(lines[4].starts_with("       "), "{text}");
        assert_eq!(lines.last(), Some(&"3 c    as row 2"));
        assert!(lines.iter().all(|line| line.len() <= WIDTH && !line.ends_with(' ')), "{text}");
    }

    #[test]
    fn markdown_rows_have_equal_cell_counts() {
        let text = grid().markdown();
        let counts: Vec<_> =
            text.lines().map(|line| line.replace("\\|", "").matches('|').count()).collect();
        assert_eq!(counts, [5, 5, 5, 5, 5], "{text}");
        assert!(text.contains("|---|---|---:|---:|"), "{text}");
    }

    #[test]
    fn long_words_are_not_broken() {
        assert_eq!(wrap("a bbbbbbbbbb c", 2, 8), "a\n  bbbbbbbbbb\n  c");
    }

    #[test]
    fn thousands_are_grouped() {
        let shown = [0.0, -0.4, 999.6, 1234.0, 312_662.0, -1_234_567.0].map(thousands);
        assert_eq!(shown, ["0", "0", "1,000", "1,234", "312,662", "-1,234,567"]);
    }
}
