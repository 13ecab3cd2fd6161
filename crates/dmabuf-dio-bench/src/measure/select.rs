// SPDX-License-Identifier: MIT OR Apache-2.0
//! Selection of rows by `--only TEXT`.

use dmabuf_dio_cli::exit::{Failure, USAGE};

/// Keeps the rows whose name contains one of the texts, or all rows without a text. A text that no
/// name contains is a usage error with the message `lacks`.
pub(crate) fn select<T>(
    mut rows: Vec<T>,
    only: &[String],
    name: impl Fn(&T) -> String,
    lacks: &str,
) -> Result<Vec<T>, Failure> {
    let mut names: Vec<String> = Vec::new();
    for name in rows.iter().map(&name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if let Some(text) = only.iter().find(|text| !names.iter().any(|name| name.contains(*text))) {
        let hint = format!("the names are: {}", names.join("; "));
        return Err(Failure::new(USAGE, format!("--only {text:?}: {lacks}"), hint));
    }
    rows.retain(|row| only.is_empty() || only.iter().any(|text| name(row).contains(text)));
    Ok(rows)
}
