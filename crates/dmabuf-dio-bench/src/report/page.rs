// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as text, and their output.

use std::io::Write as _;

use dmabuf_dio_terminal::exit::{FAILED, Failure};

use crate::args::CommonArgs;
use crate::measure::outcome::Status;
use crate::report::grid::{Grid, note, wrap};
use crate::report::json::Object;
use crate::report::row::Size;

/// What a benchmark found.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) page: Page,
    pub(crate) json: Object,
    /// How each row ended.
    pub(crate) statuses: Vec<Status>,
}

/// The parts of a page, from top to bottom.
#[derive(Debug, Default)]
pub(crate) struct Page(Vec<Block>);

#[derive(Debug)]
enum Block {
    Title(String),
    Line(String),
    Table(Grid),
    /// A term and its explanation.
    Note(String, String),
}

impl Page {
    pub(crate) fn title(&mut self, text: impl Into<String>) {
        self.0.push(Block::Title(text.into()));
    }

    pub(crate) fn line(&mut self, text: impl Into<String>) {
        self.0.push(Block::Line(text.into()));
    }

    pub(crate) fn table(&mut self, grid: Grid) {
        self.0.push(Block::Table(grid));
    }

    pub(crate) fn note(&mut self, word: impl Into<String>, meaning: impl Into<String>) {
        self.0.push(Block::Note(word.into(), meaning.into()));
    }

    pub(crate) fn notes(&mut self, notes: impl IntoIterator<Item = (&'static str, &'static str)>) {
        for (word, meaning) in notes {
            self.note(word, meaning);
        }
    }

    /// The table of a size, or why it was left out.
    pub(crate) fn size(
        &mut self,
        size: &Size,
        title: impl Into<String>,
        table: impl FnOnce() -> Grid,
    ) {
        self.title(title);
        match &size.rows {
            Ok(_) => self.table(table()),
            Err(reason) => self.line(format!("left out: {reason}")),
        }
    }

    /// For a terminal.
    fn text(&self) -> String {
        let mut text = String::new();
        let mut notes = false;
        for block in &self.0 {
            let is_note = matches!(block, Block::Note(..));
            if !text.is_empty() && (is_note != notes || matches!(block, Block::Title(_))) {
                text.push('\n');
            }
            notes = is_note;
            match block {
                Block::Title(title) => text += &format!("{title}\n"),
                Block::Line(line) => text += &format!("{}\n", wrap(line, 0, 80)),
                Block::Table(grid) => text += &format!("\n{}", grid.text()),
                Block::Note(word, meaning) => text += &note(word, meaning),
            }
        }
        text
    }

    fn markdown(&self) -> String {
        let blocks = self.0.iter().map(|block| match block {
            Block::Title(title) => format!("## {title}\n\n"),
            Block::Line(line) => format!("{line}\n\n"),
            Block::Table(grid) => format!("{}\n", grid.markdown()),
            Block::Note(word, meaning) => format!("- {word}: {meaning}\n"),
        });
        blocks.collect()
    }
}

/// Writes a result to the selected place in the selected format.
pub(crate) fn publish(args: &CommonArgs, report: &Report) -> Result<(), Failure> {
    let Report { page, json, .. } = report;
    let text = if args.json {
        serde_json::to_string_pretty(json).map_err(std::io::Error::from)? + "\n"
    } else if args.markdown {
        page.markdown()
    } else {
        page.text()
    };
    let printed = match &args.output {
        None => text,
        Some(path) => {
            std::fs::write(path, text).map_err(|error| {
                Failure::new(
                    FAILED,
                    format!("{}: cannot be written: {error}", path.display()),
                    "choose another --output FILE",
                )
            })?;
            page.text()
        }
    };
    Ok(std::io::stdout().write_all(printed.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_blocks_are_separated_by_a_line() {
        let mut page = Page::default();
        page.title("T");
        page.line("a line");
        page.table(Grid::new(1, &["name"]));
        page.note("word", "its meaning");
        page.note("*", "another");
        assert_eq!(
            page.text(),
            "T\na line\n\nname\n----\n\n\
             word                its meaning\n*                   another\n"
        );
        let markdown = page.markdown();
        assert!(markdown.starts_with("## T\n\na line\n\n| name |\n|---|\n\n- word: its meaning\n"));
    }
}
