// SPDX-License-Identifier: MIT OR Apache-2.0
//! The features of IIO devices, and the processes that use them.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use dmabuf_dio::Errno;
use dmabuf_dio_sys::iio;
use rustix::fs::{Mode, OFlags};

use super::available::Available;
use super::device::{Channel, DEVICES, Device};
use super::users::{User, Users};
use crate::error::from_os;

/// Maximum number of buffers of a device. Drivers have one or two.
const MOST_BUFFERS: u32 = 64;

/// An IIO device, its buffers and its users at the moment.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DeviceFacts {
    /// Its number with a prefix: `iio:device0`.
    pub id: String,
    /// The name that it reports.
    pub name: String,
    /// Its label, if it has one. It distinguishes devices with the same name.
    pub label: Option<String>,
    /// Its node in `/dev`.
    pub node: PathBuf,
    /// Its buffers; none if it has only attributes.
    pub buffers: Vec<BufferFacts>,
    /// Whether it can capture when a trigger fires.
    pub takes_trigger: bool,
    /// The trigger in use.
    pub trigger: Option<String>,
    /// Processes that have the device or a buffer open. Without the privilege to inspect them,
    /// processes of other users are missing.
    pub users: Vec<User>,
}

/// A buffer of a device.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BufferFacts {
    /// Its index.
    pub number: u32,
    /// Whether it is an output.
    pub output: bool,
    /// Its channels, in the order of their samples in a frame.
    pub channels: Vec<ChannelFacts>,
    /// Frames per second, if the device reports them.
    pub rate: Option<f64>,
    /// The rates that the device supports, if it lists them.
    pub rates: Option<Available>,
    /// Name of the attribute that sets the rate.
    pub rate_attribute: Option<String>,
    /// Whether its blocks can be dma-bufs.
    pub dma_bufs: DmaBufs,
    /// Whether samples flow.
    pub enabled: bool,
    /// Whether a process has it open. A buffer that is enabled but not open was left in that state,
    /// for example by a process that was killed.
    pub open: bool,
}

/// A channel of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ChannelFacts {
    /// Its name, its index in a frame, and the format of its samples.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub channel: Channel,
    /// Whether it is selected at the moment.
    pub selected: bool,
}

/// Whether a buffer's blocks can be dma-bufs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "lowercase", tag = "state", content = "errno")
)]
pub enum DmaBufs {
    /// They can.
    Yes,
    /// Dma-bufs cannot be used: the driver does not support them (`EPERM`), or the kernel is older
    /// than Linux 6.11 (`ENOTTY`). Samples go through `read()` and `write()`.
    No(Errno),
    /// Not known: the buffer is in use (`EBUSY`), or this user may not open the device (`EACCES`).
    Unknown(Errno),
}

impl DmaBufs {
    /// Tries it, without a dma-buf. The device and the buffer are open for this instant, in which
    /// another process gets `EBUSY` ([`IioSource::open`](crate::IioSource::open) tries again).
    fn of(node: &Path, number: u32) -> Self {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let node = match rustix::fs::open(node, flags, Mode::empty()) {
            Ok(node) => node,
            Err(errno) => return Self::Unknown(from_os(errno)),
        };
        let buffer = match iio::get_fd(node.as_fd(), number as i32) {
            Ok(buffer) => buffer,
            // Linux before 5.13
            Err(errno @ Errno::NOTTY) => return Self::No(errno),
            Err(errno) => return Self::Unknown(errno),
        };
        // The descriptor is no dma-buf. The kernel notices that after it has called the driver.
        match iio::attach(buffer.as_fd(), buffer.as_fd()) {
            Ok(()) | Err(Errno::INVAL) => Self::Yes,
            Err(errno @ (Errno::PERM | Errno::NOTTY)) => Self::No(errno),
            Err(errno) => Self::Unknown(errno),
        }
    }
}

impl DeviceFacts {
    /// All devices, ordered by number. Each free buffer is opened for an instant, to find out
    /// whether it supports dma-bufs.
    pub fn all() -> Vec<Self> {
        Self::all_in(Path::new(DEVICES), Users::now)
    }

    fn all_in(root: &Path, users: impl FnOnce() -> Users) -> Vec<Self> {
        let devices = Device::all_in(root);
        let mut all: Vec<_> = devices.iter().map(Self::of).collect();
        let in_use: Vec<_> =
            all.iter().map(|one| one.buffers.iter().any(|one| one.open || one.enabled)).collect();
        let used = in_use.iter().filter(|used| **used).count();
        // Users are listed after the devices: a user of a device most likely still exists then.
        let users = users();
        for (device, in_use) in all.iter_mut().zip(in_use) {
            device.users = users.of_device(&device.node, in_use, used > 1);
        }
        all
    }

    /// All but the users.
    fn of(device: &Device) -> Self {
        let trigger = device.trigger();
        Self {
            id: device.id().to_owned(),
            name: device.name().to_owned(),
            label: device.read("label").ok(),
            node: device.node().to_owned(),
            buffers: buffers(device),
            takes_trigger: trigger.is_ok(),
            trigger: trigger.ok().flatten(),
            users: Vec::new(),
        }
    }
}

fn buffers(device: &Device) -> Vec<BufferFacts> {
    let exists = |number: &u32| device.folder().join(format!("buffer{number}")).is_dir();
    (0..MOST_BUFFERS).take_while(exists).map(|number| buffer(device, number)).collect()
}

fn buffer(device: &Device, number: u32) -> BufferFacts {
    let dma_bufs = DmaBufs::of(device.node(), number);
    let is_on = |attribute: &str| device.read(attribute).is_ok_and(|value| value == "1");
    let channels = device.channels(number).unwrap_or_default().into_iter().map(|channel| {
        let selected = is_on(&format!("buffer{number}/{}_en", channel.name));
        ChannelFacts { channel, selected }
    });
    BufferFacts {
        number,
        output: device.is_output(number),
        channels: channels.collect(),
        rate: device.rate(number),
        rates: device.rates(number).and_then(|rates| Available::parse(&rates)),
        rate_attribute: device.rate_attribute(number),
        dma_bufs,
        enabled: is_on(&format!("buffer{number}/enable")),
        open: dma_bufs == DmaBufs::Unknown(Errno::BUSY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iio::sysfs::{Fake, PHY};

    /// The receiver of a Pluto. No machine has a device with its number, so there is no node.
    const LPC: &[(&str, &str)] = &[
        ("name", "cf-ad9361-lpc\n"),
        ("label", "rx\n"),
        ("in_voltage_sampling_frequency", "30720000\n"),
        ("in_voltage_sampling_frequency_available", "30720000 3840000\n"),
        ("buffer0/enable", "1\n"),
        ("buffer0/direction", "in\n"),
        ("buffer0/in_voltage0_en", "1\n"),
        ("buffer0/in_voltage0_index", "0\n"),
        ("buffer0/in_voltage0_type", "le:S12/16>>0\n"),
        ("buffer0/in_voltage1_en", "0\n"),
        ("buffer0/in_voltage1_index", "1\n"),
        ("buffer0/in_voltage1_type", "le:S12/16>>0\n"),
    ];

    #[test]
    fn devices_list_buffers_and_channels() {
        let fake = Fake::new(900, PHY);
        fake.add("iio:device901", LPC);
        fake.add("iio:device902", &[("name", "s\n"), ("trigger/current_trigger", "timer\n")]);
        let all = DeviceFacts::all_in(fake.root(), Users::default);
        let [phy, lpc, sensor] = &all[..] else { panic!("{all:?}") };
        assert_eq!((phy.id.as_str(), phy.name.as_str()), ("iio:device900", "ad9361-phy"));
        assert!(phy.buffers.is_empty() && !phy.takes_trigger && phy.label.is_none());
        assert!(sensor.takes_trigger && sensor.trigger.as_deref() == Some("timer"));
        assert_eq!((lpc.label.as_deref(), lpc.buffers.len()), (Some("rx"), 1));
        let buffer = &lpc.buffers[0];
        assert!(buffer.enabled && !buffer.open && !buffer.output && buffer.number == 0);
        assert_eq!(buffer.dma_bufs, DmaBufs::Unknown(Errno::NOENT), "there is no node");
        assert_eq!(buffer.rate, Some(30_720_000.0));
        assert_eq!(buffer.rate_attribute.as_deref(), Some("in_voltage_sampling_frequency"));
        assert!(buffer.rates.as_ref().is_some_and(|rates| rates.allows("3840000")));
        let channels: Vec<_> = buffer
            .channels
            .iter()
            .map(|one| {
                (&*one.channel.name, one.channel.index, one.channel.format.bits, one.selected)
            })
            .collect();
        assert_eq!(channels, [("in_voltage0", 0, 12, true), ("in_voltage1", 1, 12, false)]);
    }

    #[test]
    fn plain_file_is_no_iio_device() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(DmaBufs::of(file.path(), 0), DmaBufs::No(Errno::NOTTY));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn json_has_a_channel_in_one_level() {
        let fake = Fake::new(901, LPC);
        let all = DeviceFacts::all_in(fake.root(), Users::default);
        let json = serde_json::to_value(&all).expect("JSON");
        let buffer = &json[0]["buffers"][0];
        assert_eq!(buffer["channels"][1]["name"], "in_voltage1");
        assert_eq!(buffer["channels"][0]["format"]["storage_bits"], 16);
        assert_eq!(buffer["dma_bufs"]["state"], "unknown");
        assert_eq!(buffer["rates"]["list"][0], "30720000");
    }
}
