// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds commands in Markdown.

/// The position of a command in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a block: complete, as a user types it.
    Block,
    /// In inline code: parts may be missing.
    Text,
}

/// A command in a document.
#[derive(Debug)]
pub(crate) struct Documented {
    /// Document and line.
    pub(crate) at: String,
    pub(crate) line: String,
    pub(crate) place: Place,
}

/// The commands in shell and indented blocks, and those in inline code.
pub(crate) fn commands(document: &str, text: &str) -> Vec<Documented> {
    let mut found = Found { document, all: Vec::new(), joined: None };
    let mut fence: Option<&str> = None;
    let (mut paragraph, mut begin) = (String::new(), 0);
    let mut after_blank = true;
    let mut indented = false;
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            found.inline(&mut paragraph, begin);
            fence = if fence.is_some() { None } else { Some(language.trim()) };
            continue;
        }
        match fence {
            Some("bash" | "sh" | "shell") => found.block(line, number),
            Some(_) => {}
            None => {
                indented = line.starts_with("    ") && (after_blank || indented);
                if indented {
                    found.block(line, number);
                } else if line.is_empty() {
                    found.inline(&mut paragraph, begin);
                } else {
                    if paragraph.is_empty() {
                        begin = number;
                    }
                    paragraph += line;
                    paragraph.push('\n');
                }
                after_blank = line.is_empty();
            }
        }
    }
    found.inline(&mut paragraph, begin);
    found.all
}

struct Found<'a> {
    document: &'a str,
    all: Vec<Documented>,
    /// A command that continues on the next line, and its first line.
    joined: Option<(String, usize)>,
}

impl Found<'_> {
    fn add(&mut self, line: &str, number: usize, place: Place) {
        let at = format!("{}:{number}", self.document);
        self.all.push(Documented { at, line: line.trim().to_owned(), place });
    }

    fn block(&mut self, line: &str, number: usize) {
        let (before, begin) = self.joined.take().unwrap_or((String::new(), number));
        let whole = before + line.trim();
        if let Some(part) = whole.strip_suffix('\\') {
            self.joined = Some((part.to_owned(), begin));
        } else if !whole.is_empty() {
            self.add(&whole, begin, Place::Block);
        }
    }

    /// Adds the commands in the inline code of a paragraph.
    fn inline(&mut self, paragraph: &mut String, begin: usize) {
        let text = std::mem::take(paragraph);
        let mut number = begin;
        for (index, part) in text.split('`').enumerate() {
            let line = part.replace('\n', " ");
            if index % 2 == 1 && is_command(&line) {
                self.add(&line, number, Place::Text);
            }
            number += part.matches('\n').count();
        }
    }
}

/// Whether inline code is a command, not the name of a file or a function.
fn is_command(code: &str) -> bool {
    let mut words = code.split_ascii_whitespace();
    let program = words.next().unwrap_or_default();
    let is_program =
        matches!(program, "cargo" | "dmabuf-dio" | "dmabuf-dio-bench" | "make" | "sudo");
    let folders = ["bench/", "demo/", "target/", "tests/", "tools/", "vm/"];
    let is_path = folders.iter().any(|folder| program.starts_with(folder));
    (is_program || is_path) && words.next().is_some()
}
