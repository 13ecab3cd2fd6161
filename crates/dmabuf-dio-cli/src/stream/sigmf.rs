// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptions of sample files in the Signal Metadata Format (SigMF 1.2.0).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use dmabuf_dio_stream::{Channel, Encoding, Gap};
use serde_json::{Map, Value, json};

use super::device::Chosen;
use crate::show;

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
    iq: bool,
    frequency: Option<f64>,
    start: SystemTime,
}

/// Path of the description of a file.
pub(crate) fn path_of(data: &Path) -> PathBuf {
    data.with_extension(META)
}

/// Whether a file is a description, not samples.
pub(crate) fn is_description(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == META)
}

impl Sidecar {
    /// A description of a file whose samples begin now. With `iq`, channels are pairs. `frequency`
    /// is the centre frequency.
    pub(crate) fn new(data: &Path, chosen: &Chosen, iq: bool, frequency: Option<f64>) -> Self {
        Self {
            path: path_of(data),
            data: data.to_owned(),
            device: chosen.device.name().to_owned(),
            channels: chosen.channels.clone(),
            frame: chosen.frame(),
            rate: chosen.rate,
            iq: iq || is_complex(&chosen.channels),
            frequency,
            start: SystemTime::now(),
        }
    }

    /// Writes the description and replaces an existing one atomically. `bytes` is the length of the
    /// sample file.
    pub(crate) fn write(&self, gaps: &[Gap], bytes: u64) -> io::Result<()> {
        replace(&self.path, &self.value(gaps, bytes))
    }

    /// The description for a receiver, who learns of gaps by other means.
    pub(super) fn for_receiver(chosen: &Chosen, iq: bool, frequency: Option<f64>) -> String {
        let data = Path::new("received").with_extension(DATA);
        Self::new(&data, chosen, iq, frequency).value(&[], 0).to_string()
    }

    fn value(&self, gaps: &[Gap], bytes: u64) -> Value {
        let (datatype, channels) = datatype(&self.channels, self.frame, self.iq);
        let names: Vec<_> = self.channels.iter().map(describe).collect();
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
        if let Some(name) = dataset(&self.data) {
            put("dataset", name);
        }
        json!({
            "global": global,
            "captures": self.captures(gaps, bytes),
            "annotations": annotations(self.frame, gaps, bytes),
        })
    }

    /// A segment per gap, with its index in the file and its index counting lost samples, as far as
    /// their number is known.
    fn captures(&self, gaps: &[Gap], bytes: u64) -> Vec<Value> {
        let mut begin = json!({
            "core:sample_start": 0,
            "core:global_index": 0,
            "core:datetime": humantime::format_rfc3339_micros(self.start).to_string(),
        });
        if let Some(frequency) = self.frequency {
            begin["core:frequency"] = json!(frequency);
        }
        captures(begin, self.frame, gaps, bytes)
    }
}

/// The name of a file of samples that SigMF readers do not find by the name of its description.
pub(super) fn dataset(data: &Path) -> Option<Value> {
    let other = data.extension().is_none_or(|extension| extension != DATA);
    other.then(|| json!(data.file_name().unwrap_or_default().to_string_lossy()))
}

/// Replaces a description atomically.
pub(super) fn replace(path: &Path, value: &Value) -> io::Result<()> {
    let text = show::json(value)?;
    let partial = path.with_extension("sigmf-meta.partial");
    let written = fs::write(&partial, text)
        .and_then(|()| fs::File::open(&partial)?.sync_all())
        .and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

/// The segments, of which `begin` is the first.
pub(super) fn captures(begin: Value, frame: u64, gaps: &[Gap], bytes: u64) -> Vec<Value> {
    let mut captures = vec![begin];
    let mut lost = 0_u64;
    for gap in gaps {
        // A gap of unknown length counts as 0.
        lost = lost.saturating_add(gap.frames.unwrap_or(0));
        let start = gap.to / frame;
        if start < bytes / frame {
            captures.push(json!({
                "core:sample_start": start,
                "core:global_index": start.saturating_add(lost),
            }));
        }
    }
    captures
}

/// An annotation for each gap.
pub(super) fn annotations(frame: u64, gaps: &[Gap], bytes: u64) -> Vec<Value> {
    // What was lost after the last sample is not in the file.
    gaps.iter()
        .filter(|gap| gap.at < bytes)
        .map(|gap| {
            let frames = gap.frames.map_or_else(
                || "samples are missing, the device does not report how many".to_owned(),
                |frames| format!("{frames} samples are missing"),
            );
            let place = if gap.at == gap.to { "before this sample" } else { "within" };
            json!({
                "core:sample_start": gap.at / frame,
                "core:sample_count": ((gap.to - gap.at) / frame).max(1),
                "core:label": "gap",
                "core:comment": format!("{frames} {place}"),
            })
        })
        .collect()
}

/// The contents of an existing description.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) rate: Option<f64>,
    global: Value,
    captures: Value,
}

impl Described {
    pub(crate) fn of(data: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(path_of(data)).ok()?)
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let global = value["global"].clone();
        let rate = global["core:sample_rate"].as_f64();
        Some(Self { rate, global, captures: value["captures"].clone() })
    }

    /// Why the samples do not match a device with these channels, if they do not.
    pub(crate) fn mismatch(&self, channels: &[Channel], frame: u64) -> Option<String> {
        let headers = self
            .captures
            .as_array()
            .is_some_and(|all| all.iter().any(|part| !part["core:header_bytes"].is_null()));
        if headers || !self.global["core:trailing_bytes"].is_null() {
            return Some("it holds other bytes besides samples".into());
        }
        let found = self.global["core:datatype"].as_str()?;
        let count = self.global["core:num_channels"].as_u64().unwrap_or(1);
        let fits = [true, false].into_iter().any(|iq| {
            let (datatype, number) = datatype(channels, frame, iq);
            (&*datatype, number) == (found, count)
        });
        let (wanted, number) = datatype(channels, frame, is_complex(channels));
        (!fits).then(|| format!("it has {found} x {count}, the device wants {wanted} x {number}"))
    }
}

/// For example `in_voltage0 (le:s12/16>>4)`.
fn describe(channel: &Channel) -> String {
    let format = channel.format;
    let order = if format.big_endian { "be" } else { "le" };
    let kind = match format.kind {
        Encoding::Unsigned => 'u',
        Encoding::Signed => 's',
        Encoding::Float => 'f',
    };
    let (bits, storage, shift) = (format.bits, format.storage_bits, format.shift);
    format!("{} ({order}:{kind}{bits}/{storage}>>{shift})", channel.name)
}

/// SigMF's data type of a sample, and the number of samples per frame. Formats that SigMF cannot
/// express are bytes.
fn datatype(channels: &[Channel], frame: u64, iq: bool) -> (String, u64) {
    let bytes = ("ru8".to_owned(), frame);
    let Some(first) = channels.first() else { return bytes };
    let format = first.format;
    let uniform = channels.iter().all(|channel| channel.format == format);
    let number = match (format.kind, format.storage_bits) {
        (Encoding::Signed, 8 | 16 | 32) => "i",
        (Encoding::Unsigned, 8 | 16 | 32) => "u",
        (Encoding::Float, 32 | 64) => "f",
        _ => return bytes,
    };
    if !uniform || format.repeat != 1 {
        return bytes;
    }
    let count = channels.len() as u64;
    let order = match (format.storage_bits, format.big_endian) {
        (8, _) => "",
        (_, true) => "_be",
        (_, false) => "_le",
    };
    let pairs = iq && count % 2 == 0;
    let (kind, count) = if pairs { ("c", count / 2) } else { ("r", count) };
    (format!("{kind}{number}{}{order}", format.storage_bits), count)
}

/// Whether SigMF can describe the channels as pairs.
pub(crate) fn is_pairs(channels: &[Channel], frame: u64) -> bool {
    datatype(channels, frame, true).0.starts_with('c')
}

/// Whether the channels are pairs of an in-phase and a quadrature part, by IIO's modifiers:
/// `voltage0_i`, `voltage0_q`.
fn is_complex(channels: &[Channel]) -> bool {
    channels.len() % 2 == 0
        && channels.chunks_exact(2).all(|pair| {
            let (i, q) = (pair[0].name.strip_suffix("_i"), pair[1].name.strip_suffix("_q"));
            i.is_some() && i == q
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dmabuf_dio_stream::{Format, Loss};

    fn channels(names: &[&str], storage_bits: u32, kind: Encoding) -> Vec<Channel> {
        let (big_endian, bits) = (false, storage_bits);
        let format = Format { big_endian, kind, bits, storage_bits, shift: 0, repeat: 1 };
        let channel = |(index, name): (u32, &&str)| Channel { name: (*name).into(), index, format };
        (0..).zip(names).map(channel).collect()
    }

    fn sidecar(data: &Path, channels: Vec<Channel>, frame: u64) -> Sidecar {
        Sidecar {
            path: path_of(data),
            data: data.to_owned(),
            device: "adc".into(),
            channels,
            frame,
            rate: Some(1e6),
            iq: false,
            frequency: Some(2.4e9),
            start: SystemTime::now(),
        }
    }

    #[test]
    fn types_of_samples() {
        let two = channels(&["in_voltage0", "in_voltage1"], 16, Encoding::Signed);
        assert_eq!(datatype(&two, 4, false), ("ri16_le".into(), 2));
        assert_eq!(datatype(&two, 4, true), ("ci16_le".into(), 1));
        assert!(is_complex(&channels(&["in_voltage0_i", "in_voltage0_q"], 16, Encoding::Signed)));
        assert!(!is_complex(&two));
        let mut mixed = channels(&["a", "b"], 8, Encoding::Unsigned);
        assert_eq!(datatype(&mixed, 2, false), ("ru8".into(), 2));
        mixed[0].format.kind = Encoding::Signed;
        assert_eq!(datatype(&mixed, 2, false), ("ru8".into(), 2), "as bytes");
        let long = channels(&["a"], 64, Encoding::Signed);
        assert_eq!(datatype(&long, 8, false), ("ru8".into(), 8));
        assert_eq!(
            datatype(&channels(&["a"], 64, Encoding::Float), 8, false),
            ("rf64_le".into(), 1)
        );
        mixed[0] = channels(&["a"], 32, Encoding::Unsigned).remove(0);
        mixed[0].format.big_endian = true;
        assert_eq!(datatype(&mixed[..1], 4, false), ("ru32_be".into(), 1));
        assert_eq!(describe(&mixed[0]), "a (be:u32/32>>0)");
    }

    #[test]
    fn a_description_with_gaps() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("samples.bin");
        let two = channels(&["in_voltage0", "in_voltage1"], 16, Encoding::Unsigned);
        let sidecar = sidecar(&data, two.clone(), 4);
        let gap = |at, to, frames| Gap { kind: Loss::Lost, at, to, frames };
        let gaps = [
            gap(400, 400, Some(7)),
            gap(800, 1200, Some(3)),
            gap(1600, 1600, None),
            gap(1990, 2000, Some(1)),
        ];
        sidecar.write(&gaps, 2000).expect("written");
        assert_eq!(sidecar.path, folder.path().join("samples.sigmf-meta"));
        let text = fs::read_to_string(&sidecar.path).expect("read");
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["global"]["core:dataset"], "samples.bin");
        assert_eq!(value["captures"][0]["core:frequency"], 2.4e9);
        let starts: Vec<_> = value["captures"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|part| (part["core:sample_start"].as_u64(), part["core:global_index"].as_u64()))
            .collect();
        let at = |start, index| (Some(start), Some(index));
        assert_eq!(starts, [at(0, 0), at(100, 107), at(300, 310), at(400, 410)]);
        assert_eq!(value["annotations"][1]["core:sample_count"], 100);

        let described = Described::of(&data).expect("a description");
        assert_eq!((described.rate, described.mismatch(&two, 4)), (Some(1e6), None));
        let four = channels(&["a", "b", "c", "d"], 16, Encoding::Unsigned);
        let why = described.mismatch(&four, 8).expect("two are not four");
        assert_eq!(why, "it has ru16_le x 2, the device wants ru16_le x 4");
        assert!(Described::of(&folder.path().join("other.bin")).is_none());
    }
}
