// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recognises files that are no model, though their names say so.

use std::fmt;

/// A file that is often found under the name of a model. `Display` names the kind of file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mistaken {
    /// Without a byte.
    Empty,
    /// Only zeros: space that a download reserved and did not fill.
    Zeros,
    /// The length of a header, then only zeros: the rest of a download did not arrive.
    Unfilled,
    /// An unknown kind of file: its first bytes are not the length of a header.
    Unknown,
    /// The pointer that git has instead of a file of git-lfs.
    LfsPointer {
        /// Length of the file that it stands for, in bytes.
        size: Option<u64>,
    },
    /// The pointer that git has instead of a file of git-annex.
    AnnexPointer,
    /// A web page.
    Html,
    /// XML, as storage servers answer with.
    Xml,
    /// JSON that is not an index.
    Json,
    /// The index of a sharded safetensors model, under another name than `*.json`.
    Index,
    /// Other text.
    Text {
        /// How it begins.
        start: String,
    },
    /// A checkpoint of `PyTorch` since 1.6.
    TorchZip,
    /// A pickle, such as a checkpoint of `PyTorch` before 1.6.
    Pickle,
    /// Arrays of `NumPy`.
    Numpy,
    /// Another zip archive.
    Zip,
    /// Compressed or archived, by this program.
    Archive(&'static str),
    /// A format that GGML had before GGUF.
    Ggml {
        /// `"GGML"`, `"GGMF"`, `"GGJT"` or `"GGLA"`.
        name: &'static str,
    },
    /// HDF5, as Keras writes it.
    Hdf5,
    /// ONNX.
    Onnx,
    /// TensorFlow Lite.
    TfLite,
}

/// How many bytes [`Mistaken::of`] looks at.
pub(crate) const HEAD: usize = 1024;

/// The first bytes of archives, and the programs that unpack them.
const ARCHIVES: [(&[u8], &str); 7] = [
    (b"\x1f\x8b", "gunzip"),
    (b"\x28\xb5\x2f\xfd", "unzstd"),
    (b"\xfd7zXZ\0", "unxz"),
    (b"BZh", "bunzip2"),
    (b"\x04\x22\x4d\x18", "unlz4"),
    (b"7z\xbc\xaf\x27\x1c", "7z x"),
    (b"Rar!\x1a\x07", "unrar x"),
];

/// The magic numbers of GGML are little-endian, so that their letters are in the opposite order.
const GGML: [(&[u8], &str); 4] =
    [(b"lmgg", "GGML"), (b"fmgg", "GGMF"), (b"tjgg", "GGJT"), (b"algg", "GGLA")];

impl Mistaken {
    /// The kind of a file that begins with `head` and has `len` bytes; `None` if it is unknown.
    pub(crate) fn of(head: &[u8], len: u64) -> Option<Self> {
        if len == 0 {
            return Some(Self::Empty);
        }
        if head.len() >= 8 && head.iter().all(|byte| *byte == 0) {
            return Some(Self::Zeros);
        }
        Self::binary(head).or_else(|| Self::text(head))
    }

    fn binary(head: &[u8]) -> Option<Self> {
        if let Some((_, name)) = GGML.iter().find(|(magic, _)| head.starts_with(magic)) {
            return Some(Self::Ggml { name });
        }
        if let Some((_, program)) = ARCHIVES.iter().find(|(magic, _)| head.starts_with(magic)) {
            return Some(Self::Archive(program));
        }
        if head.get(257..262) == Some(b"ustar") {
            return Some(Self::Archive("tar xf"));
        }
        if head.starts_with(b"PK\x03\x04") {
            return Some(zip(head));
        }
        match head {
            [0x80, 2..=5, ..] => Some(Self::Pickle),
            [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Some(Self::Numpy),
            [0x89, b'H', b'D', b'F', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Hdf5),
            [_, _, _, _, b'T', b'F', b'L', b'3', ..] => Some(Self::TfLite),
            // ModelProto: ir_version, then the producer, the graph or the operators
            [8, 1..=32, 0x12 | 0x3a | 0x42, ..] => Some(Self::Onnx),
            _ => None,
        }
    }

    fn text(head: &[u8]) -> Option<Self> {
        let text = match std::str::from_utf8(head) {
            Ok(text) => text,
            // The end may be in the middle of a character.
            Err(error) if error.error_len().is_none() => {
                std::str::from_utf8(&head[..error.valid_up_to()]).ok()?
            }
            Err(_) => return None,
        };
        let text = text.trim_start_matches('\u{feff}').trim_start();
        let is_text = |c: char| !c.is_control() || c.is_ascii_whitespace();
        if text.is_empty() || !text.chars().all(is_text) {
            return None;
        }
        let begins = |prefix: &str| {
            text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        };
        Some(if begins("version https://git-lfs") || begins("version https://hawser") {
            let size =
                text.lines().find_map(|line| line.strip_prefix("size ")?.trim().parse().ok());
            Self::LfsPointer { size }
        } else if text.lines().next().is_some_and(|line| line.contains("/annex/objects/")) {
            Self::AnnexPointer
        } else if begins("<!doctype html") || begins("<html") {
            Self::Html
        } else if begins("<?xml") {
            Self::Xml
        } else if text.starts_with('{') || text.starts_with('[') {
            if text.contains("\"weight_map\"") { Self::Index } else { Self::Json }
        } else {
            let line = text.lines().next().unwrap_or_default();
            Self::Text { start: line.chars().take(60).collect() }
        })
    }

    /// One line that says what to do.
    pub fn hint(&self) -> String {
        match self {
            Self::Unknown => {
                "check that the file is a safetensors or GGUF file, and download it again if it is: other formats are \
                 not read"
                    .into()
            }
            Self::Empty | Self::Zeros | Self::Unfilled => "download the file again: the download did not finish".into(),
            Self::LfsPointer { .. } => {
                "fetch the file itself: git lfs install && git lfs pull, in the folder; or download it again".into()
            }
            Self::AnnexPointer => "fetch the file itself: git annex get, in the folder".into(),
            Self::Html | Self::Xml | Self::Json | Self::Text { .. } => {
                "download the file again: it is what a server sent instead of it, which may say why (a login, an \
                 address)"
                    .into()
            }
            Self::Index => "name it *.json, in the folder of the files that it names".into(),
            Self::TorchZip | Self::Pickle => {
                "download the model as safetensors, or convert it: \
                 safetensors.torch.save_file(torch.load(FILE, weights_only=True), NEW)"
                    .into()
            }
            Self::Numpy => "convert it: safetensors.numpy.save_file(dict(numpy.load(FILE)), NEW)".into(),
            Self::Zip => "unpack it first: unzip".into(),
            Self::Archive(program) => format!("unpack it first: {program}"),
            Self::Ggml { .. } => {
                "download the model as GGUF, or convert it: convert_llama_ggml_to_gguf.py of llama.cpp".into()
            }
            Self::Hdf5 | Self::Onnx | Self::TfLite => {
                "download the model as safetensors or GGUF: other formats are not read".into()
            }
        }
    }
}

impl fmt::Display for Mistaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::Empty => "an empty file",
            Self::Zeros => "a file of zeros",
            Self::Unfilled => "the start of a file, then zeros",
            Self::Unknown => "a file of another format",
            Self::LfsPointer { size: Some(size) } => {
                return write!(f, "a git-lfs pointer to a file of {size} bytes");
            }
            Self::LfsPointer { size: None } => "a git-lfs pointer",
            Self::AnnexPointer => "a git-annex pointer",
            Self::Html => "a web page (HTML)",
            Self::Xml => "an answer of a server (XML)",
            Self::Json => "JSON text",
            Self::Index => "the index of a sharded model",
            Self::Text { start } => return write!(f, "text that begins with {start:?}"),
            Self::TorchZip => "a PyTorch checkpoint (zip)",
            Self::Pickle => "a PyTorch checkpoint or another pickle",
            Self::Numpy => "a file of NumPy",
            Self::Zip => "a zip archive",
            Self::Archive("tar xf") => "a tar archive",
            Self::Archive(program) => {
                return write!(f, "a compressed file, for {program}");
            }
            Self::Ggml { name } => {
                return write!(f, "a file of the format {name}, which GGUF replaced in 2023");
            }
            Self::Hdf5 => "an HDF5 file",
            Self::Onnx => "an ONNX model",
            Self::TfLite => "a TensorFlow Lite model",
        };
        f.write_str(what)
    }
}

/// Tells zip archives by their first file.
fn zip(head: &[u8]) -> Mistaken {
    let len = head.get(26..28).map_or(0, |len| usize::from(u16::from_le_bytes([len[0], len[1]])));
    let name = head.get(30..).map_or(&[][..], |rest| &rest[..rest.len().min(len)]);
    let ends = |suffix: &[u8]| name.ends_with(suffix);
    if ends(b".npy") {
        Mistaken::Numpy
    } else if ends(b"/data.pkl")
        || ends(b"/version")
        || ends(b"/byteorder")
        || ends(b"/.format_version")
    {
        Mistaken::TorchZip
    } else {
        Mistaken::Zip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_headers_cause_no_panic() {
        let heads: [&[u8]; 5] = [
            b"PK\x03\x04\x14\0",
            b"\x80\x02",
            "größe".as_bytes(),
            b"{\"weight_map\"",
            b"\x08\x07\x12",
        ];
        for head in heads {
            for end in 0..=head.len() {
                let _ = Mistaken::of(&head[..end], end as u64);
            }
        }
        assert_eq!(Mistaken::of(&[0xff; 100], 100), None);
        assert_eq!(Mistaken::of(b"ab\x01cdefgh", 9), None);
    }
}
