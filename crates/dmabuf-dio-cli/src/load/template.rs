// SPDX-License-Identifier: MIT OR Apache-2.0
//! The place of the path in the arguments of a command: `{}`, and `{{}}` for the characters `{}`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

const PLACE: &[u8] = b"{}";
const ESCAPED: &[u8] = b"{{}}";

/// Whether an argument has a place for the path. The first word, the program, never has.
pub(crate) fn wants_path(command: &[OsString]) -> bool {
    command.iter().skip(1).any(|argument| fill(argument, Some(Path::new(""))).1)
}

/// The arguments of a command, with the path in its places.
pub(crate) fn arguments(arguments: &[OsString], path: Option<&Path>) -> Vec<OsString> {
    arguments.iter().map(|argument| fill(argument, path).0).collect()
}

/// An argument with the path in its places, and whether it had one. Without a path the places stay.
fn fill(argument: &OsStr, path: Option<&Path>) -> (OsString, bool) {
    let mut rest = argument.as_bytes();
    let mut filled = Vec::with_capacity(rest.len());
    let mut had_place = false;
    while let Some((first, behind)) = rest.split_first() {
        if let Some(behind) = rest.strip_prefix(ESCAPED) {
            filled.extend_from_slice(PLACE);
            rest = behind;
        } else if let Some(behind) = rest.strip_prefix(PLACE) {
            let path = path.map_or(PLACE, |path| path.as_os_str().as_bytes());
            filled.extend_from_slice(path);
            had_place = true;
            rest = behind;
        } else {
            filled.push(*first);
            rest = behind;
        }
    }
    (OsString::from_vec(filled), had_place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced_by_the_path() {
        for (argument, filled) in [
            ("{}", "/x"),
            ("--model={}", "--model=/x"),
            ("{}/a.gguf:{}", "/x/a.gguf:/x"),
            ("{{}}", "{}"),
            (r#"{"a":{{}}}"#, r#"{"a":{}}"#),
            ("{{{}}}", "{{}}"),
            ("{ }", "{ }"),
            ("{model}", "{model}"),
            ("", ""),
            ("{", "{"),
        ] {
            let path = Some(Path::new("/x"));
            assert_eq!(arguments(&[argument.into()], path), [filled], "{argument}");
        }
        assert_eq!(arguments(&["{} {{}}".into()], None), ["{} {}"]);
    }

    #[test]
    fn program_name_is_no_placeholder() {
        let wants =
            |words: &[&str]| wants_path(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(wants(&["cat", "{}"]) && wants(&["cat", "-n", "--file={}"]));
        assert!(!wants(&[]) && !wants(&["{}"]) && !wants(&["cat", "{{}}", "{ }"]));
    }

    #[test]
    fn paths_that_are_not_utf8_are_filled_in() {
        let odd = OsStr::from_bytes(b"/\xff");
        assert_eq!(arguments(&["={}".into()], Some(Path::new(odd)))[0].as_bytes(), b"=/\xff");
    }
}
