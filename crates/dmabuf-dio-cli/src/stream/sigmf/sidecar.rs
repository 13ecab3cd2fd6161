// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptions of sample files in the Signal Metadata Format (SigMF 1.2.0).

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use dmabuf_dio_stream::{Begin, Channel, Gap, Known, Summary};
use serde_json::{Map, Value, json};

use super::super::atomic::{create, replace};
use super::super::device::Chosen;
use super::super::format::Samples;
use super::datatype::{datatype, describe, is_plain};
use super::names::{FORMATS, UNFINISHED, dataset, path_of};

const VERSION: &str = "1.2.0";
/// `false` if losses are not reported: there may be further gaps.
const LOSS_KNOWN: &str = "dmabuf_dio:loss_known";
const VERSION_OF_OURS: &str = "1.1.0";

/// The description of a file of samples.
#[derive(Clone, Debug)]
pub(crate) struct Sidecar {
    pub(crate) path: PathBuf,
    data: PathBuf,
    device: String,
    channels: Vec<Channel>,
    /// Bytes per frame in the file; gaps count in bytes of the device's frames.
    frame: u64,
    unit: u64,
    rate: Option<f64>,
    iq: bool,
    frequency: Option<f64>,
    /// Number in the recording of the file's first frame.
    first: u64,
}

/// The known facts about the samples of a recording.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    pub(crate) gaps: Vec<Gap>,
    /// Bytes, as the device has them.
    pub(crate) bytes: u64,
    /// Whether all gaps are known.
    pub(crate) loss_known: bool,
    pub(crate) begin: Option<Begin>,
    /// More samples may follow that are not described yet.
    pub(crate) unfinished: bool,
}

impl Content {
    /// Before the first sample.
    pub(crate) fn nothing_yet() -> Self {
        Self { loss_known: true, unfinished: true, ..Self::default() }
    }

    pub(crate) fn so_far(known: &Known<'_>) -> Self {
        let Known { bytes, loss_known, begin, .. } = *known;
        Self { gaps: known.gaps.clone(), bytes, loss_known, begin, unfinished: true }
    }

    pub(crate) fn of(summary: &Summary) -> Self {
        let Summary { bytes, loss_known, begin, .. } = *summary;
        Self { gaps: summary.gaps.clone(), bytes, loss_known, begin, unfinished: false }
    }
}

impl Sidecar {
    /// The description of a file. `frequency` is the centre frequency.
    pub(crate) fn new(
        data: &Path,
        chosen: &Chosen,
        samples: &Samples,
        frequency: Option<f64>,
    ) -> Self {
        Self {
            path: path_of(data),
            data: data.to_owned(),
            device: chosen.device.name().to_owned(),
            channels: samples.channels.clone(),
            frame: samples.frame,
            unit: chosen.frame(),
            rate: chosen.rate,
            iq: samples.iq,
            frequency,
            first: 0,
        }
    }

    /// The file of the samples.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// The description of another file of the recording, which begins with frame `first`.
    pub(crate) fn part(&self, data: &Path, first: u64) -> Self {
        Self { path: path_of(data), data: data.to_owned(), first, ..self.clone() }
    }

    /// Bytes of a frame of the device.
    pub(crate) fn unit(&self) -> u64 {
        self.unit
    }

    /// Offset of the file in the recording, in bytes.
    pub(crate) fn first(&self) -> u64 {
        self.first * self.unit
    }

    /// Writes the description and replaces an existing one atomically.
    pub(crate) fn write(&self, content: &Content) -> io::Result<()> {
        replace(&self.path, &self.value(content))
    }

    /// Writes a description that does not exist yet, atomically.
    pub(crate) fn create(&self, content: &Content) -> io::Result<()> {
        create(&self.path, &self.value(content))
    }

    fn value(&self, content: &Content) -> Value {
        let Content { ref gaps, bytes, loss_known, begin, unfinished } = *content;
        let (datatype, channels) = datatype(&self.channels, self.frame, self.iq);
        let names: Vec<_> = self.channels.iter().map(describe).collect();
        let formats: Vec<_> = self.channels.iter().map(|one| one.format.to_string()).collect();
        let mut global = Map::new();
        let mut put = |key: &str, value: Value| global.insert(format!("core:{key}"), value);
        put("datatype", json!(datatype));
        put("version", json!(VERSION));
        put("num_channels", json!(channels));
        put("recorder", json!(concat!("dmabuf-dio ", env!("CARGO_PKG_VERSION"))));
        put("hw", json!(self.device));
        let more = if loss_known { "" } else { ". Whether samples are missing is not known" };
        put("description", json!(format!("Channels: {}{more}", names.join(", "))));
        if let Some(rate) = self.rate {
            put("sample_rate", json!(rate));
        }
        if let Some(name) = dataset(&self.data) {
            put("dataset", name);
        }
        let mut ours = Vec::new();
        if !is_plain(&self.channels) {
            ours.push((FORMATS, json!(formats)));
        }
        if !loss_known {
            ours.push((LOSS_KNOWN, json!(false)));
        }
        if unfinished {
            ours.push((UNFINISHED, json!(bytes.saturating_sub(self.first()) / self.unit)));
        }
        if !ours.is_empty() {
            let extension =
                json!({ "name": "dmabuf_dio", "version": VERSION_OF_OURS, "optional": true });
            global.insert("core:extensions".into(), json!([extension]));
        }
        global.extend(ours.into_iter().map(|(name, value)| (name.to_owned(), value)));
        json!({
            "global": global,
            "captures": self.captures(gaps, bytes, begin),
            "annotations": self.place().annotations(gaps, bytes),
        })
    }

    /// A segment per gap, with its index in the file and its index counting lost samples, as far as
    /// their number is known.
    fn captures(&self, gaps: &[Gap], bytes: u64, begin: Option<Begin>) -> Vec<Value> {
        let first = self.first.saturating_add(self.place().lost(gaps));
        let mut segment = json!({ "core:sample_start": 0, "core:global_index": first });
        if let Some(begin) = begin {
            let time = humantime::format_rfc3339_micros(self.time(begin, first));
            segment["core:datetime"] = json!(time.to_string());
        }
        if let Some(frequency) = self.frequency {
            segment["core:frequency"] = json!(frequency);
        }
        self.place().captures(segment, gaps, bytes)
    }

    fn place(&self) -> Place {
        Place { first: self.first, unit: self.unit }
    }

    /// When a frame of the device was captured.
    fn time(&self, begin: Begin, index: u64) -> SystemTime {
        let rate = self.rate.filter(|rate| *rate > 0.0);
        let start = begin.first_sample(rate.map(|rate| rate * self.unit as f64));
        let after = rate.and_then(|rate| Duration::try_from_secs_f64(index as f64 / rate).ok());
        after.and_then(|after| start.checked_add(after)).unwrap_or(start)
    }
}

/// The start of a file in its recording, and the way to describe gaps.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The number of its first frame.
    pub(super) first: u64,
    /// Bytes of a frame in the positions of gaps.
    pub(super) unit: u64,
}

impl Place {
    /// Frames that were lost before it. A gap of unknown length counts as 0.
    fn lost(self, gaps: &[Gap]) -> u64 {
        let before = gaps.iter().filter(|gap| !self.holds(gap));
        before.filter_map(|gap| gap.frames).fold(0, u64::saturating_add)
    }

    /// Whether a gap ends in it, not before it.
    fn holds(self, gap: &Gap) -> bool {
        self.first == 0 || gap.to / self.unit > self.first
    }

    /// The segments, of which `begin` is the first. `bytes` is the file's end in the recording.
    pub(super) fn captures(self, begin: Value, gaps: &[Gap], bytes: u64) -> Vec<Value> {
        let mut captures = vec![begin];
        let mut lost = self.lost(gaps);
        for gap in gaps.iter().filter(|gap| self.holds(gap)) {
            lost = lost.saturating_add(gap.frames.unwrap_or(0));
            let start = gap.to / self.unit;
            if start < bytes / self.unit {
                captures.push(json!({
                    "core:sample_start": start - self.first,
                    "core:global_index": start.saturating_add(lost),
                }));
            }
        }
        captures
    }

    /// An annotation for each gap.
    pub(super) fn annotations(self, gaps: &[Gap], bytes: u64) -> Vec<Value> {
        let begin = self.first * self.unit;
        // Losses after the last sample are not in the file.
        gaps.iter()
            .filter(|gap| gap.at < bytes && (gap.to > begin || gap.at >= begin))
            .map(|gap| {
                let frames = gap.frames.map_or_else(
                    || "samples are missing, the device does not report how many".to_owned(),
                    |frames| format!("{frames} samples are missing"),
                );
                let place = if gap.at == gap.to { "before this sample" } else { "within" };
                let (at, to) = (gap.at.max(begin), gap.to.min(bytes));
                json!({
                    "core:sample_start": (at - begin) / self.unit,
                    "core:sample_count": (to.saturating_sub(at) / self.unit).max(1),
                    "core:label": "gap",
                    "core:comment": format!("{frames} {place}"),
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use dmabuf_dio_stream::convert::Layout;
    use dmabuf_dio_stream::{Encoding, Format, Loss};

    use super::super::datatype::is_complex;
    use super::super::described::Described;

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
            unit: frame,
            rate: Some(1e6),
            iq: false,
            frequency: Some(2.4e9),
            first: 0,
        }
    }

    fn content(gaps: &[Gap], bytes: u64) -> Content {
        Content { gaps: gaps.to_vec(), bytes, loss_known: true, ..Content::default() }
    }

    fn described(data: &Path) -> Described {
        let bytes = fs::read(path_of(data)).expect("a description");
        Described::of_value(&serde_json::from_slice(&bytes).expect("JSON"))
    }

    /// Two numbers of each part of a list.
    fn pairs(list: &Value, names: [&str; 2]) -> Vec<[u64; 2]> {
        let numbers = |part: &Value| names.map(|name| part[name].as_u64().expect("a number"));
        list.as_array().expect("a list").iter().map(numbers).collect()
    }

    #[test]
    fn sample_formats_map_to_sigmf_datatypes() {
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
    fn description_lists_gaps() {
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
        sidecar.write(&content(&gaps, 2000)).expect("written");
        assert_eq!(sidecar.path, folder.path().join("samples.sigmf-meta"));
        let text = fs::read_to_string(&sidecar.path).expect("read");
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["global"]["core:dataset"], "samples.bin");
        assert_eq!(value["captures"][0]["core:frequency"], 2.4e9);
        let starts = pairs(&value["captures"], ["core:sample_start", "core:global_index"]);
        assert_eq!(starts, [[0, 0], [100, 107], [300, 310], [400, 410]]);
        assert_eq!(value["annotations"][1]["core:sample_count"], 100);

        let described = described(&data);
        let layout = described.layout(&two, 4).expect("it fits");
        let wanted = Layout::of(&[two[0].format, two[1].format]);
        assert_eq!((described.rate, layout), (Some(1e6), Some(wanted)));
        let four = channels(&["a", "b", "c", "d"], 16, Encoding::Unsigned);
        let why = described.layout(&four, 8).expect_err("two are not four");
        assert_eq!(why, "it has ru16_le x 2, the device needs ru16_le x 4");
    }

    /// Every frame of a recording with gaps is in one of its files, and each description has its own
    /// gaps and its own place in the whole.
    #[test]
    fn each_rotated_file_describes_its_own_gaps() {
        let folder = tempfile::tempdir().expect("a folder");
        let two = channels(&["in_voltage0", "in_voltage1"], 16, Encoding::Signed);
        let whole = Sidecar { unit: 8, ..sidecar(&folder.path().join("x"), two, 4) };
        // In frames of 8 bytes on the device: before 50, within 90 to 110, before 200.
        let gap =
            |at: u64, to: u64, frames| Gap { kind: Loss::Lost, at: at * 8, to: to * 8, frames };
        let gaps = [gap(50, 50, Some(7)), gap(90, 110, Some(3)), gap(200, 200, Some(5))];
        let of = |first, end: u64| {
            let part = whole.part(&folder.path().join("y.sigmf-data"), first);
            let value = part.value(&content(&gaps, end * 8));
            let starts = pairs(&value["captures"], ["core:sample_start", "core:global_index"]);
            let notes = pairs(&value["annotations"], ["core:sample_start", "core:sample_count"]);
            (starts, notes)
        };
        assert_eq!(of(0, 100), (vec![[0, 0], [50, 57]], vec![[50, 1], [90, 10]]));
        assert_eq!(of(100, 200), (vec![[0, 107], [10, 120]], vec![[0, 10]]));
        assert_eq!(of(200, 300), (vec![[0, 215]], vec![[0, 1]]));
        assert_eq!(of(300, 400), (vec![[0, 315]], vec![]));
    }

    /// SigMF's name or our own key describes a format exactly.
    #[test]
    fn datatypes_parse_back_to_formats() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("a.sigmf-data");
        for (formats, plain) in [
            (vec!["le:s16/16>>0", "le:s16/16>>0"], true),
            (vec!["be:s16/16>>0", "be:s16/16>>0"], true),
            (vec!["le:f32/32>>0"], true),
            (vec!["le:s12/16>>4", "le:s12/16>>4"], false),
            (vec!["be:u10/16>>0"], false),
            (vec!["le:s16/16>>0", "le:u8/8>>0"], false),
            (vec!["le:s64/64>>0"], false),
        ] {
            let formats: Vec<Format> =
                formats.iter().map(|one| one.parse().expect("one")).collect();
            let layout = Layout::of(&formats);
            let channel =
                |format: &Format| Channel { name: "in_x".into(), index: 0, format: *format };
            let channels: Vec<_> = formats.iter().map(channel).collect();
            let sidecar = sidecar(&data, channels.clone(), layout.frame());
            sidecar.write(&content(&[], 0)).expect("written");
            let described = described(&data);
            assert_eq!(described.formats().is_none(), plain, "{layout}");
            assert_eq!(described.layout(&channels, layout.frame()), Ok(Some(layout.clone())));
            // A device of another format with the same number of values.
            let other: Format = "be:s24/32>>8".parse().expect("a format");
            let others = vec![channel(&other); channels.len()];
            assert_eq!(described.layout(&others, 4 * others.len() as u64), Ok(Some(layout)));
        }
        let exact =
            r#"{"global": {"dmabuf_dio:formats": ["le:u8/8>>0", "le:u8/8>>0"]}, "captures": []}"#;
        let described = Described::of_value(&serde_json::from_str(exact).expect("JSON"));
        let one = channels(&["a"], 8, Encoding::Unsigned);
        assert!(described.layout(&one, 1).is_err(), "two values are no frame of one");
        let complex = r#"{"global": {"core:datatype": "cf32_le"}, "captures": []}"#;
        let described = Described::of_value(&serde_json::from_str(complex).expect("JSON"));
        let two = channels(&["a", "b"], 16, Encoding::Signed);
        let layout = described.layout(&two, 4).expect("fits").expect("known");
        assert_eq!(layout.to_string(), "le:f32/32>>0 x 2");
        assert!(described.layout(&two[..1], 2).is_err());
        for (more, fits) in [("0", true), ("8", false)] {
            let text = format!(
                r#"{{"global": {{"core:datatype": "cf32_le", "core:trailing_bytes": {more}}},
                "captures": [{{"core:header_bytes": {more}}}]}}"#
            );
            let described = Described::of_value(&serde_json::from_str(&text).expect("JSON"));
            assert_eq!(described.layout(&two, 4).is_ok(), fits, "{more}");
        }
    }
}
