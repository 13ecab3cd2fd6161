// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is in a file of samples, as the Signal Metadata Format says it (SigMF 1.2.0), in a file
//! beside it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use dmabuf_dio::stream::{Channel, Gap};
use serde_json::{Map, Value, json};

const VERSION: &str = "1.2.0";
const DATA: &str = "sigmf-data";
const META: &str = "sigmf-meta";

/// The description of a file of samples.
#[derive(Debug)]
pub(crate) struct Sidecar {
    pub(crate) path: PathBuf,
    data: PathBuf,
    device: String,
    channels: Vec<Channel>,
    frame: u64,
    rate: Option<f64>,
    start: SystemTime,
}

impl Sidecar {
    /// For a file whose samples begin now.
    pub(crate) fn new(
        data: &Path,
        device: &str,
        channels: &[Channel],
        frame: u64,
        rate: Option<f64>,
    ) -> Self {
        Self {
            path: data.with_extension(META),
            data: data.to_owned(),
            device: device.to_owned(),
            channels: channels.to_vec(),
            frame,
            rate,
            start: SystemTime::now(),
        }
    }

    /// Writes it; one that is there is replaced at once by the whole of the new one.
    pub(crate) fn write(&self, gaps: &[Gap]) -> io::Result<()> {
        let text = serde_json::to_string_pretty(&self.value(gaps))? + "\n";
        let partial = self.path.with_extension("sigmf-meta.partial");
        fs::write(&partial, text)?;
        fs::File::open(&partial)?.sync_all()?;
        fs::rename(&partial, &self.path)
    }

    fn value(&self, gaps: &[Gap]) -> Value {
        let (datatype, channels) = datatype(&self.channels, self.frame);
        let names: Vec<_> = self.channels.iter().map(|channel| &*channel.name).collect();
        let mut global = Map::new();
        let mut put = |key: &str, value: Value| global.insert(format!("core:{key}"), value);
        put("datatype", json!(datatype));
        put("version", json!(VERSION));
        put("num_channels", json!(channels));
        put("recorder", json!(concat!("dmabuf-dio ", env!("CARGO_PKG_VERSION"))));
        put("hw", json!(self.device));
        put("description", json!(format!("Channels: {}", names.join(", "))));
        if let Some(rate) = self.rate {
            put("sample_rate", json!(rate));
        }
        if self.data.extension().is_none_or(|extension| extension != DATA) {
            // A file of another name is told by it.
            let name = self.data.file_name().unwrap_or_default().to_string_lossy();
            put("dataset", json!(name));
        }
        json!({
            "global": global,
            "captures": self.captures(gaps),
            "annotations": self.annotations(gaps),
        })
    }

    /// A segment from each gap on whose place and length are known: where it begins in the file,
    /// and where it would if nothing were missing.
    fn captures(&self, gaps: &[Gap]) -> Vec<Value> {
        let begin = json!({
            "core:sample_start": 0,
            "core:global_index": 0,
            "core:datetime": humantime::format_rfc3339_micros(self.start).to_string(),
        });
        let mut captures = vec![begin];
        let mut lost = Some(0);
        for gap in gaps {
            lost = lost.zip(gap.frames).map(|(a, b)| a + b);
            let start = gap.to / self.frame;
            captures.push(match lost {
                Some(lost) => {
                    json!({ "core:sample_start": start, "core:global_index": start + lost })
                }
                None => json!({ "core:sample_start": start }),
            });
        }
        captures
    }

    fn annotations(&self, gaps: &[Gap]) -> Vec<Value> {
        gaps.iter()
            .map(|gap| {
                let frames = gap.frames.map_or_else(
                    || "samples are missing, the device does not say how many".to_owned(),
                    |frames| format!("{frames} samples are missing"),
                );
                let place = if gap.at == gap.to { "before this sample" } else { "within" };
                json!({
                    "core:sample_start": gap.at / self.frame,
                    "core:sample_count": ((gap.to - gap.at) / self.frame).max(1),
                    "core:label": "gap",
                    "core:comment": format!("{frames} {place}"),
                })
            })
            .collect()
    }
}

/// The rate that the description beside a file gives, if there is one.
pub(crate) fn rate_of(data: &Path) -> Option<f64> {
    let text = fs::read_to_string(data.with_extension(META)).ok()?;
    let value: Value = serde_json::from_str(&text).ok()?;
    value["global"]["core:sample_rate"].as_f64()
}

/// The type of a sample in SigMF's words, and how many there are in a frame. What it has no word
/// for is bytes.
fn datatype(channels: &[Channel], frame: u64) -> (String, u64) {
    let bytes = ("ru8".to_owned(), frame);
    let Some(first) = channels.first() else { return bytes };
    let format = first.format;
    let uniform = channels.iter().all(|channel| channel.format == format);
    if !uniform || format.repeat != 1 || !matches!(format.storage_bits, 8 | 16 | 32) {
        return bytes;
    }
    let count = channels.len() as u64;
    let number = if format.signed { "i" } else { "u" };
    let order = match (format.storage_bits, format.big_endian) {
        (8, _) => "",
        (_, true) => "_be",
        (_, false) => "_le",
    };
    let (kind, count) = if is_complex(channels) { ("c", count / 2) } else { ("r", count) };
    (format!("{kind}{number}{}{order}", format.storage_bits), count)
}

/// Whether the channels are pairs of an in-phase and a quadrature part: `voltage0_i`,
/// `voltage0_q`, or, as many radios call them, those of which IIO says so by a modifier.
fn is_complex(channels: &[Channel]) -> bool {
    channels.len().is_multiple_of(2)
        && channels.chunks_exact(2).all(|pair| {
            let (i, q) = (pair[0].name.strip_suffix("_i"), pair[1].name.strip_suffix("_q"));
            i.is_some() && i == q
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dmabuf_dio::stream::Format;

    fn channels(names: &[&str], storage_bits: u32, signed: bool) -> Vec<Channel> {
        let (big_endian, bits) = (false, storage_bits);
        let format = Format { big_endian, signed, bits, storage_bits, shift: 0, repeat: 1 };
        (0..)
            .zip(names)
            .map(|(index, name)| Channel { name: (*name).into(), index, format })
            .collect()
    }

    #[test]
    fn types_of_samples() {
        let two = channels(&["in_voltage0", "in_voltage1"], 16, true);
        assert_eq!(datatype(&two, 4), ("ri16_le".into(), 2));
        let pair = channels(&["in_voltage0_i", "in_voltage0_q"], 16, true);
        assert_eq!(datatype(&pair, 4), ("ci16_le".into(), 1));
        let mut mixed = channels(&["a", "b"], 8, false);
        assert_eq!(datatype(&mixed, 2), ("ru8".into(), 2));
        mixed[0].format.signed = true;
        assert_eq!(datatype(&mixed, 2), ("ru8".into(), 2), "as bytes");
        assert_eq!(datatype(&channels(&["a"], 64, true), 8), ("ru8".into(), 8));
        mixed[0] = channels(&["a"], 32, false).remove(0);
        mixed[0].format.big_endian = true;
        assert_eq!(datatype(&mixed[..1], 4), ("ru32_be".into(), 1));
    }

    #[test]
    fn a_description_with_gaps() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("samples.bin");
        let two = channels(&["in_voltage0", "in_voltage1"], 16, false);
        let sidecar = Sidecar::new(&data, "adc", &two, 4, Some(1e6));
        let gap = |at, to, frames| Gap { at, to, frames };
        let gaps = [gap(400, 400, Some(7)), gap(800, 1200, Some(3)), gap(1600, 1600, None)];
        sidecar.write(&gaps).expect("written");
        assert_eq!(sidecar.path, folder.path().join("samples.sigmf-meta"));
        let text = fs::read_to_string(&sidecar.path).expect("read");
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["global"]["core:dataset"], "samples.bin");
        let starts: Vec<_> = value["captures"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|part| (part["core:sample_start"].as_u64(), part["core:global_index"].as_u64()))
            .collect();
        let at = |start, index: Option<u64>| (Some(start), index);
        assert_eq!(starts, [at(0, Some(0)), at(100, Some(107)), at(300, Some(310)), at(400, None)]);
        assert_eq!(value["annotations"][1]["core:sample_count"], 100);
        assert_eq!(rate_of(&data), Some(1e6));
    }
}
