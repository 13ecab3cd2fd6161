// SPDX-License-Identifier: MIT OR Apache-2.0
//! How everything ended, and the table in docs/reach.md.

use std::path::Path;
use std::process::Output;

use crate::operations::RESULT;

const BEGIN: &str = "<!-- begin: tests/restricted of dmabuf-dio-cli -->\n";
const END: &str = "<!-- end -->";

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    /// Every byte is right. The text is the backend, if the operation reports it.
    Works(String),
    /// The failure and the remedy.
    Refused(String, String),
    /// Every byte is right, but a warning and a remedy are printed.
    Warned(String, String),
    /// No program runs there, not even `cat`.
    Nothing,
    /// It ended in another way.
    Wrong(String),
}

impl Cell {
    pub(crate) fn of_operation(output: &Output) -> Self {
        let text = String::from_utf8_lossy(&output.stdout);
        let result = text.lines().find_map(|line| line.strip_prefix(RESULT));
        let words: Vec<_> = result.into_iter().flat_map(|line| line.split('\t')).collect();
        match words[..] {
            ["failed", error, hint] => Self::Refused(error.into(), hint.into()),
            [backend] if output.status.success() && backend != "wrong bytes" => {
                Self::Works(backend.into())
            }
            _ => Self::Wrong(format!("{output:?}")),
        }
    }

    pub(crate) fn of_command(output: &Output, wanted: &[u8]) -> Self {
        let errors = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<_> = errors.lines().collect();
        match lines[..] {
            [] if output.status.success() && output.stdout == wanted => Self::Works(String::new()),
            [error, hint] if error.starts_with("dmabuf-dio: ") => {
                let (error, hint) = (&error["dmabuf-dio: ".len()..], hint.trim_start());
                let right = output.status.success() && output.stdout == wanted;
                let cell = if right { Self::Warned } else { Self::Refused };
                cell(error.into(), hint.into())
            }
            _ => Self::Wrong(format!("{:?}: {errors}", output.status)),
        }
    }
}

/// The cells of some surroundings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    what: String,
    cells: Vec<Cell>,
}

impl Row {
    /// A row; `file` is called FILE.
    pub(crate) fn new(what: &str, mut cells: Vec<Cell>, file: &Path) -> Self {
        let path = file.display().to_string();
        for cell in &mut cells {
            if let Cell::Refused(error, hint) | Cell::Warned(error, hint) = cell {
                for text in [error, hint] {
                    *text = without_random(&text.replace(&path, "FILE"));
                }
            }
        }
        Self { what: what.into(), cells }
    }

    pub(crate) fn assert_works(&self) {
        let works = |cell: &Cell| matches!(cell, Cell::Works(_));
        assert!(self.cells.iter().all(works), "{self:?}");
    }

    /// Why a message does not tell users the fault and the remedy.
    pub(crate) fn unclear(&self) -> Option<String> {
        self.cells.iter().find_map(|cell| {
            let what = &self.what;
            match cell {
                Cell::Works(_) | Cell::Nothing => None,
                Cell::Refused(error, hint) | Cell::Warned(error, hint) => {
                    // The log of the kernel does not mention this.
                    let unclear = hint.is_empty() || error.len() > 300 || hint.contains("dmesg");
                    unclear.then(|| format!("{what}: {error}\n  {hint}"))
                }
                Cell::Wrong(how) => Some(format!("{what}: {how}")),
            }
        })
    }

    /// Whether all works as usual.
    fn is_as(&self, usual: &Self) -> bool {
        self.cells == usual.cells
    }

    fn line(&self, usual: &Self) -> String {
        let mut said: Vec<String> = Vec::new();
        let cells: Vec<_> = self
            .cells
            .iter()
            .zip(&usual.cells)
            .map(|(cell, usual)| match cell {
                same if same == usual => "works".to_owned(),
                Cell::Works(backend) => format!("works: {backend}"),
                Cell::Nothing => "–".into(),
                Cell::Refused(error, hint) | Cell::Warned(error, hint) => {
                    let both = format!("{error}: {hint}");
                    if !said.contains(&both) {
                        said.push(both);
                    }
                    let warned = matches!(cell, Cell::Warned(..));
                    if warned { "works, warns" } else { "refused" }.into()
                }
                Cell::Wrong(_) => "fails".into(),
            })
            .collect();
        format!("| {} | {} | {} |\n", self.what, cells.join(" | "), said.join("<br>"))
    }
}

/// A text without the random ends of the names of folders.
fn without_random(text: &str) -> String {
    const NAME: &str = "dmabuf-dio-path-";
    let mut parts = text.split(NAME);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + NAME + "*" + part.trim_start_matches(|c: char| c.is_ascii_alphanumeric())
    })
}

/// One row if both errors have the same effect.
pub(crate) fn merged(rows: [(Row, &str); 2]) -> Vec<Row> {
    if rows[0].0 == rows[1].0 {
        return vec![rows[0].0.clone()];
    }
    rows.map(|(row, errno)| Row { what: format!("{} ({errno})", row.what), ..row }).into()
}

/// Begins the list of restrictions without an effect.
const NOTHING: &str = "Nothing changes without: ";

/// The rows of a table and the items of the list below it, without skipped ones.
fn parts<'a>(table: &'a str, skipped: &[&str]) -> Vec<&'a str> {
    let is_skipped = |part: &str| {
        skipped.iter().any(|what| part == *what || part.starts_with(&format!("| {what} |")))
    };
    table
        .lines()
        .flat_map(|line| match line.strip_prefix(NOTHING) {
            Some(names) => names.trim_end_matches('.').split(", ").collect(),
            None => vec![line],
        })
        .filter(|part| !is_skipped(part))
        .collect()
}

/// Compares the table with the one in the document, or writes it.
pub(crate) fn check(usual: &Row, rows: Vec<Row>, skipped: &[&str]) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reach.md");
    let Ok(text) = std::fs::read_to_string(&page) else { return println!("skipped: no document") };
    let (as_usual, other): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.is_as(usual));
    let lines: Vec<_> = other.iter().map(|row| row.line(usual)).collect();
    let names: Vec<_> = as_usual.iter().map(|row| &*row.what).collect();
    let lines = format!(
        "| missing | load | view | gather | by path | command | what is said |\n\
         |---|---|---|---|---|---|---|\n{}\n{NOTHING}{}.\n",
        lines.concat(),
        names.join(", ")
    );
    let (before, rest) = text.split_once(BEGIN).expect("the beginning of the table");
    let (committed, after) = rest.split_once(END).expect("its end");
    if std::env::var_os("DMABUF_DIO_RECORD").is_some() {
        std::fs::write(page, [before, BEGIN, &lines, END, after].concat()).expect("written");
        return;
    }
    if !cfg!(target_arch = "x86_64") {
        return println!("skipped: the document's calls are those of x86-64");
    }
    assert!(
        parts(&lines, skipped) == parts(committed, skipped),
        "docs/reach.md has another table: DMABUF_DIO_RECORD=1 writes it\n{lines}"
    );
}
