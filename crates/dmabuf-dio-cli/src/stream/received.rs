// SPDX-License-Identifier: MIT OR Apache-2.0
//! The description of samples that a sender describes.

use std::io;
use std::path::{Path, PathBuf};

use dmabuf_dio_stream::Gap;
use serde_json::{Value, json};

use super::sigmf;

/// What a sender says of its samples, in SigMF.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    frame: u64,
    value: Value,
}

impl Received {
    /// `None` if it is not an object of SigMF's form.
    pub(crate) fn parse(text: &str, frame: u64) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let sound = value["global"].is_object() && value["captures"][0].is_object();
        sound.then_some(Self { frame, value })
    }

    /// Frames per second.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.value["global"]["core:sample_rate"].as_f64().filter(|rate| *rate > 0.0)
    }

    /// The device, for people.
    pub(crate) fn device(&self) -> &str {
        self.value["global"]["core:hw"].as_str().unwrap_or("unknown")
    }

    /// Writes the description of a file with `bytes` bytes of these samples. Returns its path.
    pub(crate) fn write(&self, data: &Path, gaps: &[Gap], bytes: u64) -> io::Result<PathBuf> {
        let mut value = self.value.clone();
        if let Some(name) = sigmf::dataset(data) {
            value["global"]["core:dataset"] = name;
        }
        let begin = value["captures"][0].take();
        let place = sigmf::Place { first: 0, unit: self.frame };
        value["captures"] = json!(place.captures(begin, gaps, bytes));
        value["annotations"] = json!(place.annotations(gaps, bytes));
        let path = sigmf::path_of(data);
        sigmf::replace(&path, &value).map(|()| path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dmabuf_dio_stream::Loss;

    #[test]
    fn gaps_are_added_to_what_the_sender_says() {
        let text = r#"{"global": {"core:datatype": "ri16_le", "core:hw": "adc", "core:sample_rate": 1e6},
            "captures": [{"core:sample_start": 0, "core:global_index": 0, "core:frequency": 1e9}]}"#;
        let received = Received::parse(text, 4).expect("a description");
        assert_eq!((received.rate(), received.device()), (Some(1e6), "adc"));
        let folder = tempfile::tempdir().expect("a folder");
        let gaps = [Gap { kind: Loss::Lost, at: 400, to: 400, frames: Some(7) }];
        for (name, dataset) in [("x.sigmf-data", Value::Null), ("x.bin", "x.bin".into())] {
            let path = received.write(&folder.path().join(name), &gaps, 800).expect("written");
            assert_eq!(path, folder.path().join("x.sigmf-meta"));
            let text = std::fs::read_to_string(path).expect("read");
            let value: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(value["global"]["core:dataset"], dataset);
            assert_eq!(value["global"]["core:datatype"], "ri16_le");
            assert_eq!(value["captures"][0]["core:frequency"], 1e9);
            assert_eq!(value["captures"][1]["core:global_index"], 107);
            assert_eq!(value["annotations"][0]["core:sample_start"], 100);
        }
        for bad in ["", "{}", "[]", r#"{"global": {}, "captures": []}"#] {
            assert!(Received::parse(bad, 4).is_none(), "{bad}");
        }
    }
}
