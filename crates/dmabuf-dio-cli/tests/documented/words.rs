// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of words in docs/architecture.md, against the faces that it describes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::check::repository;

/// A row: the word, then the spellings in each face, then those that no face may have.
pub(crate) struct Row {
    pub(crate) word: String,
    pub(crate) spelled: [Vec<String>; 4],
    pub(crate) banned: Vec<String>,
}

/// The names of the faces, in the order of the columns.
pub(crate) const FACES: [&str; 4] = ["Rust", "C", "Python", "command"];

pub(crate) fn table() -> Vec<Row> {
    let text = fs::read_to_string(repository().join("docs/architecture.md")).expect("a document");
    let section = text.split("\n## Words\n").nth(1).expect("the section");
    let section = section.split("\n## ").next().expect("its text");
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|line| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 8, "{line}");
        let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(String::from).collect();
        let spelled = [3, 4, 5, 6].map(|column| names(cells[column]));
        Row { word: cells[0].into(), spelled, banned: names(cells[7]) }
    })
    .collect()
}

/// The words of each face where its users see them.
pub(crate) fn faces() -> [BTreeSet<String>; 4] {
    let libraries = [
        "dmabuf-dio",
        "dmabuf-dio-tensors",
        "dmabuf-dio-stream",
        "dmabuf-dio-keep",
        "dmabuf-dio-remote",
    ];
    let root = repository();
    let mut rust = BTreeSet::new();
    for library in libraries {
        public(&root.join("crates").join(library).join("src"), &mut rust);
    }
    let header = root.join("crates/dmabuf-dio-capi/include/dmabuf_dio.h");
    let package = root.join("bindings/python/python/dmabuf_dio");
    let python = ["_native.pyi", "types.py"].map(|name| read(&package.join(name))).concat();
    [rust, words(&read(&header)), words(&python), options()]
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a file")
}

fn words(text: &str) -> BTreeSet<String> {
    let in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !in_word(c)).filter(|word| !word.is_empty()).map(String::from).collect()
}

/// The public names of the files of a folder: of items, methods, fields and variants.
fn public(folder: &Path, into: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            public(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = read(&path);
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let lines = code.lines().map(str::trim_start).filter(|line| line.starts_with("pub "));
            into.extend(lines.flat_map(words));
        }
    }
}

/// The long options of all subcommands.
fn options() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for command in
        ["doctor", "devices", "load", "save", "keep", "capture", "video", "replay", "sum"]
    {
        let mut run = Command::new(env!("CARGO_BIN_EXE_dmabuf-dio"));
        let help = run.args([command, "--help"]).output().expect("help");
        let text = String::from_utf8(help.stdout).expect("text");
        let is_option = |word: &&str| word.starts_with("--");
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        found.extend(words.filter(is_option).map(String::from));
    }
    found
}
