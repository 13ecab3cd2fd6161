// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a folder may hold after the power was cut.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

/// The temporary names of saves begin so.
const PARTIAL: &str = ".dmabuf-dio-partial-";

/// A content that a file may have.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// What is durable, and ranges that were written since: of them each byte is the old or the new
    /// one, and between the old end and the new one also zero.
    Bytes { base: Rc<Vec<u8>>, layers: Vec<(usize, Rc<Vec<u8>>)> },
    /// A beginning of these bytes. From a place on each byte may also be zero: what went through the
    /// page cache may not have been written back when the length was.
    PrefixOf(Rc<Vec<u8>>, usize),
}

impl Form {
    pub(crate) fn exactly(bytes: Vec<u8>) -> Self {
        Self::Bytes { base: Rc::new(bytes), layers: Vec::new() }
    }

    /// With a range that is written, and not durable yet.
    pub(crate) fn with(&self, at: usize, bytes: &[u8]) -> Self {
        let Self::Bytes { base, layers } = self else { return self.clone() };
        let mut layers = layers.clone();
        layers.push((at, Rc::new(bytes.to_vec())));
        Self::Bytes { base: base.clone(), layers }
    }

    /// What the file has now.
    pub(crate) fn now(&self) -> Vec<u8> {
        let (base, layers) = match self {
            Self::PrefixOf(bytes, _) => return bytes.to_vec(),
            Self::Bytes { base, layers } => (base, layers),
        };
        let mut bytes = base.to_vec();
        for (at, layer) in layers {
            let end = at + layer.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[*at..end].copy_from_slice(layer);
        }
        bytes
    }

    /// Once what is there now was made durable.
    pub(crate) fn durable(&self) -> Self {
        Self::exactly(self.now())
    }

    /// Once a range was written and made durable, whatever else is pending.
    pub(crate) fn with_durable(&self, at: usize, bytes: &[u8]) -> Self {
        let Self::Bytes { base, layers } = self else { return self.clone() };
        let end = at + bytes.len();
        let mut base = base.to_vec();
        base.resize(base.len().max(end), 0);
        base[at..end].copy_from_slice(bytes);
        let mut rest = Vec::new();
        for (start, layer) in layers {
            let inside = |place: usize| place.clamp(*start, start + layer.len()) - start;
            let (before, after) = (inside(at), inside(end));
            for part in [0..before, after..layer.len()] {
                if !part.is_empty() {
                    rest.push((start + part.start, Rc::new(layer[part].to_vec())));
                }
            }
        }
        Self::Bytes { base: Rc::new(base), layers: rest }
    }

    fn admits(&self, bytes: &[u8]) -> Result<(), String> {
        let (base, layers) = match self {
            Self::PrefixOf(whole, _) if bytes.len() > whole.len() => {
                return Err(format!("{} bytes in place of {} at most", bytes.len(), whole.len()));
            }
            Self::PrefixOf(whole, sure) => {
                let bad = |at: &usize| bytes[*at] != whole[*at] && (bytes[*at] != 0 || at < sure);
                let mut wrong = (0..bytes.len()).filter(bad);
                let Some(first) = wrong.next() else { return Ok(()) };
                let (count, byte) = (wrong.count() + 1, bytes[first]);
                return Err(format!(
                    "no prefix: {count} wrong bytes, the first at {first:#x}: {byte:#04x}"
                ));
            }
            Self::Bytes { base, .. } if **base == *bytes => return Ok(()),
            Self::Bytes { base, layers } => (base, layers),
        };
        let ends = layers.iter().map(|(at, layer)| at + layer.len());
        let longest = ends.fold(base.len(), usize::max);
        if bytes.len() < base.len() || bytes.len() > longest {
            let most = base.len();
            return Err(format!("{} bytes in place of {most} to {longest}", bytes.len()));
        }
        let known = |at: usize, byte: u8| {
            base.get(at).map_or(byte == 0, |old| *old == byte)
                || layers.iter().any(|(start, layer)| {
                    at.checked_sub(*start).and_then(|at| layer.get(at)) == Some(&byte)
                })
        };
        let mut wrong = (0..bytes.len()).filter(|at| !known(*at, bytes[*at]));
        let Some(first) = wrong.next() else { return Ok(()) };
        let (count, byte) = (wrong.count() + 1, bytes[first]);
        let old = base.get(first).copied().unwrap_or_default();
        Err(format!("{count} wrong bytes, the first at {first:#x}: {byte:#04x}, was {old:#04x}"))
    }
}

/// What a name may lead to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowed {
    pub(crate) absent: bool,
    pub(crate) forms: Vec<Form>,
}

impl Allowed {
    pub(crate) fn only(form: Form) -> Self {
        Self { absent: false, forms: vec![form] }
    }

    pub(crate) fn judge(&self, found: Option<&[u8]>) -> Result<(), String> {
        let Some(bytes) = found else {
            return if self.absent { Ok(()) } else { Err("it is missing".into()) };
        };
        let mut why = "it is there".to_owned();
        for form in &self.forms {
            match form.admits(bytes) {
                Ok(()) => return Ok(()),
                Err(text) => why = text,
            }
        }
        Err(why)
    }
}

/// What the folder may hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) files: BTreeMap<String, Allowed>,
    /// Of the temporary name of a save that runs: the whole new file.
    pub(crate) partial: Option<Form>,
    /// The operation that runs, or the one that has just ended.
    pub(crate) what: String,
    pub(crate) runs: bool,
}

impl State {
    /// Compares every file of the folder. Returns how many temporary names there are.
    pub(crate) fn check(&self, folder: &Path) -> Result<usize, String> {
        let failed = |what: &str, error| format!("{what} after the cut: {error}");
        let mut partials = 0;
        for entry in folder.read_dir().map_err(|error| failed("the folder", error))? {
            let entry = entry.map_err(|error| failed("the folder", error))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // Descriptions of captures are no part of the model.
            if self.files.contains_key(&name) || name.contains(".sigmf-meta") {
                continue;
            }
            let bytes = std::fs::read(entry.path()).map_err(|error| failed(&name, error))?;
            match &self.partial {
                Some(form) if name.starts_with(PARTIAL) => {
                    form.admits(&bytes).map_err(|why| format!("{name}: {why}"))?;
                    partials += 1;
                }
                _ => return Err(format!("{name}: nothing runs that makes it")),
            }
        }
        for (name, allowed) in &self.files {
            let found = match std::fs::read(folder.join(name)) {
                Ok(bytes) => Some(bytes),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                Err(error) => return Err(failed(name, error)),
            };
            allowed.judge(found.as_deref()).map_err(|why| format!("{name}: {why}"))?;
        }
        Ok(partials)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_old_or_new() {
        let form = Form::exactly(vec![1, 1, 1]).with(2, &[2, 2, 2]);
        for good in [&[1, 1, 1][..], &[1, 1, 2], &[1, 1, 2, 0, 2], &[1, 1, 1, 2]] {
            assert_eq!(form.admits(good), Ok(()), "{good:?}");
        }
        for bad in [&[1, 1][..], &[2, 1, 1], &[1, 1, 0], &[1, 1, 2, 1], &[1, 1, 2, 2, 2, 0]] {
            assert!(form.admits(bad).is_err(), "{bad:?}");
        }
        assert_eq!(form.now(), [1, 1, 2, 2, 2]);
        assert!(form.durable().admits(&[1, 1, 1]).is_err());
    }

    #[test]
    fn a_range_can_be_durable_alone() {
        let form = Form::exactly(vec![1; 4]).with(0, &[2, 2, 2]).with(5, &[3]);
        let form = form.with_durable(1, &[4]);
        for good in [&[1, 4, 1, 1][..], &[2, 4, 2, 1, 0, 3]] {
            assert_eq!(form.admits(good), Ok(()), "{good:?}");
        }
        assert!(form.admits(&[1, 2, 1, 1]).is_err() && form.admits(&[1, 1, 1, 1]).is_err());
        assert_eq!(Form::exactly(vec![]).with_durable(1, &[4]).now(), [0, 4]);
    }

    #[test]
    fn prefixes_are_prefixes() {
        let form = Form::PrefixOf(Rc::new(vec![1, 2, 3]), 2);
        for good in [&[][..], &[1, 2], &[1, 2, 3], &[1, 2, 0]] {
            assert_eq!(form.admits(good), Ok(()), "{good:?}");
        }
        for bad in [&[1, 0][..], &[1, 2, 4], &[1, 2, 3, 4]] {
            assert!(form.admits(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn folders_are_compared() {
        let folder = std::env::temp_dir().join(format!("powercut-model-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut state = State::default();
        state.files.insert("a".into(), Allowed::only(Form::exactly(vec![5])));
        assert!(state.check(&folder).unwrap_err().contains("missing"));
        std::fs::write(folder.join("a"), [5]).unwrap();
        assert_eq!(state.check(&folder), Ok(0));
        std::fs::write(folder.join(".dmabuf-dio-partial-1"), [7]).unwrap();
        assert!(state.check(&folder).unwrap_err().contains("nothing runs"));
        state.partial = Some(Form::exactly(vec![7]));
        assert_eq!(state.check(&folder), Ok(1));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
