// SPDX-License-Identifier: MIT OR Apache-2.0
//! An IIO device as shown by sysfs: its channels, the layout of a frame of samples, its rate
//! (Documentation/ABI/testing/sysfs-bus-iio).

use std::fs;
use std::path::{Path, PathBuf};

use super::attribute::Attribute;
use crate::convert::Layout;
use crate::error::{Result, failed};
use crate::format::Format;
use crate::numbered::numbered;
use dmabuf_dio::Errno;

/// The devices in sysfs.
pub(super) const DEVICES: &str = "/sys/bus/iio/devices";
/// The attribute with the rate.
const RATE: &str = "sampling_frequency";
/// The attribute of DMA buffers.
const ALIGN: &str = "length_align_bytes";

/// An IIO device.
#[derive(Clone, Debug)]
pub struct Device {
    folder: PathBuf,
    node: PathBuf,
    name: String,
}

/// A counter of the device, if it has one.
#[derive(Debug)]
pub(super) struct Counter(Option<fs::File>);

impl Counter {
    pub(super) fn read(&self) -> Option<u64> {
        use std::os::unix::fs::FileExt as _;

        let mut text = [0; 24];
        let length = self.0.as_ref()?.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..length]).ok()?.trim().parse().ok()
    }
}

/// A channel whose samples a buffer can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Channel {
    /// The name, such as `in_voltage0`.
    pub name: String,
    /// Position among the channels of a frame.
    pub index: u32,
    /// The layout of its samples.
    pub format: Format,
}

impl Device {
    /// All devices, ordered by number; none if the kernel has no IIO.
    pub fn all() -> Vec<Self> {
        Self::all_in(Path::new(DEVICES))
    }

    pub(super) fn all_in(root: &Path) -> Vec<Self> {
        numbered(root, "iio:device")
            .into_iter()
            .map(|number| {
                let folder = root.join(format!("iio:device{number}"));
                let name = Attribute::at("", &folder, "name").read().unwrap_or_default();
                Self { folder, node: PathBuf::from(format!("/dev/iio:device{number}")), name }
            })
            .collect()
    }

    /// The device with this name, label or number: `stream-adc`, `iio:device0`, `0`. If there are
    /// several, the first one: see [`matching`](Self::matching).
    pub fn find(wanted: &str) -> Option<Self> {
        Self::find_in(Path::new(DEVICES), wanted)
    }

    pub(super) fn find_in(root: &Path, wanted: &str) -> Option<Self> {
        Self::matching_in(root, wanted).into_iter().next()
    }

    /// All devices with this name or label; only the one with this number, if there is one.
    pub fn matching(wanted: &str) -> Vec<Self> {
        Self::matching_in(Path::new(DEVICES), wanted)
    }

    fn matching_in(root: &Path, wanted: &str) -> Vec<Self> {
        let number = wanted.strip_prefix("iio:device").unwrap_or(wanted);
        let id = format!("iio:device{number}");
        let mut all = Self::all_in(root);
        if let Some(place) = all.iter().position(|device| device.folder.ends_with(&id)) {
            return vec![all.swap_remove(place)];
        }
        all.retain(|device| {
            device.name == wanted || device.read("label").is_ok_and(|label| label == wanted)
        });
        all
    }

    /// The name that the device reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its node in `/dev`.
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// Its number with a prefix: `iio:device0`.
    pub fn id(&self) -> &str {
        self.folder.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of all devices and triggers.
    pub(super) fn root(&self) -> &Path {
        self.folder.parent().unwrap_or(Path::new(DEVICES))
    }

    /// Finds an attribute by its name in sysfs, or by channel and name, with or without the
    /// channel's direction, with its name or label: `in_voltage0_hardwaregain`,
    /// `in_voltage0.hardwaregain`, `altvoltage0.frequency`, `RX_LO.frequency`. An attribute that
    /// channels share is found by each of them: `voltage0.sampling_frequency`.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`](crate::Error::Setting) if there is none, or if there are several, of an
    /// input and of an output.
    pub fn attribute(&self, wanted: &str) -> Result<Attribute> {
        Attribute::find(&self.name, &self.folder, wanted)
    }

    /// All attributes of the device and its channels, sorted by name, without those that list
    /// available values.
    pub fn attributes(&self) -> Vec<Attribute> {
        Attribute::all(&self.name, &self.folder)
    }

    /// Frames per second of a buffer; `None` if nothing reports it. If a trigger drives the device that
    /// is not its own, it is the trigger's frequency.
    pub fn rate(&self, buffer: u32) -> Option<f64> {
        let text = match self.driver() {
            Some(trigger) => trigger.attribute(RATE).ok()?.read().ok()?,
            None => self.read(&self.rate_attribute(buffer)?).ok()?,
        };
        text.parse().ok()
    }

    /// Sets the frames per second, of the trigger that drives the device if it is not its own. The device
    /// may choose a similar rate: see [`rate`](Self::rate).
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream): `ENOENT` if the device has no rate, `EINVAL` if it does not support this
    /// one.
    pub fn set_rate(&self, buffer: u32, hertz: f64) -> Result<()> {
        if let Some(trigger) = self.driver() {
            return trigger.attribute(RATE)?.write(&format!("{hertz}"));
        }
        let attribute = self.rate_attribute(buffer).unwrap_or_else(|| RATE.into());
        self.write(&attribute, &format!("{hertz}"))
    }

    /// The rates that the device supports, in the device's own format.
    pub fn rates(&self, buffer: u32) -> Option<String> {
        self.read(&format!("{}_available", self.rate_attribute(buffer)?)).ok()
    }

    /// The rate attribute of the device, of all channels of the buffer's direction, or of the first
    /// one.
    pub(super) fn rate_attribute(&self, buffer: u32) -> Option<String> {
        let direction = if self.is_output(buffer) { "out_" } else { "in_" };
        let names = fs::read_dir(&self.folder).ok()?.flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        names
            .filter(|name| {
                let channel = name.strip_suffix(RATE).and_then(|name| name.strip_suffix('_'));
                name == RATE || channel.is_some_and(|channel| channel.starts_with(direction))
            })
            .min_by_key(|name| (name != RATE, name.len(), name.clone()))
    }

    /// Whether the device's DMA fills or empties the buffer, even without dma-bufs.
    pub(super) fn has_dma(&self, buffer: u32) -> bool {
        self.read(&format!("buffer{buffer}/{ALIGN}")).is_ok()
    }

    /// A block's size must be a multiple of this, in bytes, if the device reports it.
    pub(super) fn length_align(&self, buffer: u32) -> u64 {
        let align = self.read(&format!("buffer{buffer}/{ALIGN}"));
        align.ok().and_then(|align| align.parse().ok()).filter(|align| *align > 0).unwrap_or(1)
    }

    /// The size of a block of frames of `frame` bytes must be a multiple of this, in bytes: of the
    /// frame, and of what the device's DMA needs, if the device reports it.
    pub fn block_align(&self, buffer: u32, frame: u64) -> u64 {
        crate::ring::multiple(frame, self.length_align(buffer))
    }

    /// Whether the device tree names it as compatible with one of these.
    pub(super) fn is_compatible(&self, prefix: &str) -> bool {
        let names = fs::read(self.folder.join("of_node/compatible")).unwrap_or_default();
        names.split(|byte| *byte == 0).any(|name| name.starts_with(prefix.as_bytes()))
    }

    /// Opens a counter attribute.
    pub(super) fn counter(&self, attribute: &str) -> Counter {
        Counter(fs::File::open(self.folder.join(attribute)).ok())
    }

    /// An attribute of the device, which may have it or not.
    fn at(&self, attribute: &str) -> Attribute {
        Attribute::at(&self.name, &self.folder, attribute)
    }

    /// Reads an attribute, without the trailing newline.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream): `ENOENT` if the device has no such attribute.
    pub fn read(&self, attribute: &str) -> Result<String> {
        self.at(attribute).read()
    }

    /// Writes an attribute.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream): `ENOENT` if the device has no such attribute, `EINVAL`
    /// if it rejects the value, `EACCES` if this user lacks permission, `EBUSY` while samples flow.
    pub fn write(&self, attribute: &str, value: &str) -> Result<()> {
        self.at(attribute).write(value)
    }

    /// The channels of a buffer, including timestamps, in the order of their samples in a frame.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream): `ENOENT` if there is no such buffer.
    pub fn channels(&self, buffer: u32) -> Result<Vec<Channel>> {
        let folder = format!("buffer{buffer}");
        let entries = fs::read_dir(self.folder.join(&folder))
            .map_err(|error| failed(&self.name, format!("list {folder}"), Errno::from(&error)))?;
        let mut channels = Vec::new();
        for entry in entries.flatten() {
            let Some(name) = entry
                .file_name()
                .to_str()
                .and_then(|name| Some(name.strip_suffix("_en")?.to_owned()))
            else {
                continue;
            };
            let attribute = |what| self.read(&format!("{folder}/{name}_{what}"));
            let format = Format::parse(&attribute("type")?);
            // Skipping a channel would make the frame layout wrong.
            let (Ok(index), Some(format)) = (attribute("index")?.parse(), format) else {
                let call = format!("parse the type of {name}");
                return Err(failed(&self.name, call, Errno::PROTO));
            };
            channels.push(Channel { name, index, format });
        }
        channels.sort_by_key(|channel| channel.index);
        Ok(channels)
    }

    /// Whether the buffer is an output. Kernels before 5.17 do not report this; there it follows
    /// from the channel names.
    pub fn is_output(&self, buffer: u32) -> bool {
        match self.read(&format!("buffer{buffer}/direction")) {
            Ok(direction) => direction == "out",
            Err(_) => self.channels(buffer).is_ok_and(|channels| {
                channels.iter().any(|channel| channel.name.starts_with("out_"))
            }),
        }
    }

    /// Selects the channels whose samples are in a frame.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`](crate::Error::Stream): `EBUSY` while samples flow, `EINVAL` for a set that the device does not
    /// support.
    pub fn choose(&self, buffer: u32, wanted: &[Channel]) -> Result<()> {
        let all = self.channels(buffer)?;
        // Channels are disabled first, then enabled: the device may not support the sets in between.
        for on in ["0", "1"] {
            for channel in all.iter().filter(|channel| wanted.contains(channel) == (on == "1")) {
                self.write(&format!("buffer{buffer}/{}_en", channel.name), on)?;
            }
        }
        Ok(())
    }
}

/// Bytes of a frame with samples of these channels: each is aligned to its own size, and the frame
/// is a multiple of the largest.
pub fn frame_bytes(channels: &[Channel]) -> u64 {
    let formats: Vec<_> = channels.iter().map(|channel| channel.format).collect();
    Layout::of(&formats).frame()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(index: u32, format: &str) -> Channel {
        let format = Format::parse(format).expect("a format");
        Channel { name: format!("in_voltage{index}"), index, format }
    }

    #[test]
    fn devices_of_one_name_are_all_found() {
        let fake = crate::iio::sysfs::Fake::new(3, &[("name", "adc\n"), ("label", "left\n")]);
        fake.add("iio:device10", &[("name", "adc\n"), ("label", "right\n")]);
        fake.add("iio:device11", &[("name", "10\n")]);
        let ids = |wanted: &str| -> Vec<String> {
            let found = Device::matching_in(fake.root(), wanted);
            found.iter().map(|device| device.id().to_owned()).collect()
        };
        assert_eq!(ids("adc"), ["iio:device3", "iio:device10"]);
        assert_eq!(ids("right"), ["iio:device10"]);
        assert_eq!(ids("iio:device3"), ["iio:device3"]);
        assert_eq!(ids("10"), ["iio:device10"], "a number before a name");
        assert!(ids("dac").is_empty());
    }

    #[test]
    fn frames_are_aligned() {
        let two = channel(0, "le:s12/16>>4");
        let eight = channel(2, "le:s64/64>>0");
        assert_eq!(frame_bytes(&[]), 0);
        assert_eq!(frame_bytes(std::slice::from_ref(&two)), 2);
        assert_eq!(frame_bytes(&[two.clone(), channel(1, "le:s24/32>>0")]), 8);
        assert_eq!(frame_bytes(&[two, eight]), 16);
    }

    #[test]
    fn device_is_read_from_sysfs() {
        let root = tempfile::tempdir().expect("a folder");
        let device = root.path().join("iio:device3");
        fs::create_dir_all(device.join("buffer0")).expect("folders");
        let put = |name: &str, text: &str| fs::write(device.join(name), text).expect("written");
        put("name", "adc\n");
        put("label", "antenna\n");
        for (index, name) in ["in_voltage1", "in_voltage0"].iter().enumerate() {
            put(&format!("buffer0/{name}_en"), "0\n");
            put(&format!("buffer0/{name}_index"), &format!("{}\n", 1 - index));
            put(&format!("buffer0/{name}_type"), "le:s16/16>>0\n");
        }
        for wanted in ["adc", "antenna", "iio:device3", "3"] {
            assert!(Device::find_in(root.path(), wanted).is_some(), "{wanted}");
        }
        assert!(Device::find_in(root.path(), "33").is_none());
        let device = Device::find_in(root.path(), "adc").expect("found");
        let channels = device.channels(0).expect("channels");
        let names: Vec<_> = channels.iter().map(|channel| &*channel.name).collect();
        assert_eq!(names, ["in_voltage0", "in_voltage1"]);
        device.choose(0, &channels[1..]).expect("chosen");
        assert!(device.write("no_such", "1").is_err());
        assert_eq!(device.read("buffer0/in_voltage0_en").expect("read"), "0");
        assert_eq!(device.read("buffer0/in_voltage1_en").expect("read"), "1");
        assert_eq!(device.rate(0), None);
        for (name, value) in [
            ("in_voltage_oversampling_frequency", "1"),
            ("out_voltage_sampling_frequency", "2"),
            ("in_voltage_sampling_frequency_available", "3 4"),
            ("in_voltage_sampling_frequency", "3"),
            ("in_voltage0_sampling_frequency", "5"),
        ] {
            put(name, value);
        }
        assert_eq!((device.rate(0), device.rates(0).as_deref()), (Some(3.0), Some("3 4")));
        device.set_rate(0, 4.5).expect("set");
        assert_eq!(device.rate(0), Some(4.5));
        put("buffer0/in_voltage2_en", "0\n");
        put("buffer0/in_voltage2_index", "2\n");
        put("buffer0/in_voltage2_type", "odd\n");
        let odd = device.channels(0).expect_err("a type of which we know nothing");
        assert!(odd.to_string().contains("in_voltage2"), "{odd}");
        let error = device.read("sampling_frequency").expect_err("there is none");
        assert!(error.to_string().contains("sampling_frequency"), "{error}");
        assert!(device.channels(1).is_err());
    }
}
