// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--set`, `--trigger` and `--restore`: settings that a stream changes on its device, and restores.

use dmabuf_dio_stream::{Attribute, Channel, Device, Setting, Settings, Trigger};
use dmabuf_dio_terminal::exit::{FAILED, Failure, WORDS, say};
use dmabuf_dio_terminal::signals;
use dmabuf_dio_terminal::size::parse_rate;

use crate::args::streams::SetupArgs;
use crate::args::values::Assignment;
use crate::devices::find;

impl Assignment {
    /// The attribute, and the value as the kernel takes it.
    fn find(&self, device: &Device) -> Result<(Attribute, String), Failure> {
        let attribute = match &self.owner {
            None => device.attribute(&self.attribute)?,
            Some(owner) => attribute_of(owner, &self.attribute)?,
        };
        let value = match attribute.available() {
            Some(available) if available.allows(&self.value) => self.value.clone(),
            _ => plain(&self.value),
        };
        Ok((attribute, value))
    }
}

fn attribute_of(owner: &str, attribute: &str) -> Result<Attribute, Failure> {
    if let Some(device) = find::one_iio(owner)? {
        return Ok(device.attribute(attribute)?);
    }
    match Trigger::all().into_iter().find(|trigger| trigger.name == owner) {
        Some(trigger) => Ok(trigger.attribute(attribute)?),
        None => Err(find::unknown(owner, "IIO device")),
    }
}

/// A number with a prefix written out: `2400000000` for `2.4G` and `2.4GHz`. The kernel knows
/// neither.
fn plain(value: &str) -> String {
    let has_prefix = value.starts_with(|c: char| c.is_ascii_digit())
        && value.ends_with(|c: char| c.is_ascii_alphabetic());
    match parse_rate(value) {
        Ok(number) if has_prefix => number.to_string(),
        _ => value.to_owned(),
    }
}

/// Sets attributes of a stream's device and of other devices, and restores them.
#[derive(Debug)]
pub(crate) struct Setup {
    settings: Settings,
    trigger: Option<String>,
    /// Another trigger is set now than before.
    has_changed_trigger: bool,
    former_trigger: Option<String>,
    /// The selected channels before.
    channels: Vec<Channel>,
    restore: bool,
    /// The device is ours, and may have to be restored.
    is_applied: bool,
}

impl Setup {
    /// Checks all of it, and changes nothing.
    pub(crate) fn check(args: &SetupArgs, device: &Device, buffer: u32) -> Result<Self, Failure> {
        if args.restore || args.trigger.is_some() || !args.set.is_empty() {
            // A signal must not end the process before everything is restored.
            signals::token();
        }
        let wanted: Result<Vec<_>, _> = args.set.iter().map(|one| one.find(device)).collect();
        let settings = Settings::check(wanted?)?;
        if let Some(name) = &args.trigger {
            device.check_trigger(name)?;
        }
        let channels = if args.restore { selected(device, buffer)? } else { Vec::new() };
        Ok(Self {
            settings,
            trigger: args.trigger.clone(),
            has_changed_trigger: false,
            former_trigger: None,
            channels,
            restore: args.restore,
            is_applied: false,
        })
    }

    /// Sets everything, or nothing, once the buffer is open. Prints what the device has rounded.
    pub(crate) fn apply(&mut self, device: &Device, quiet: bool) -> Result<(), Failure> {
        self.is_applied = true;
        self.settings.write()?;
        if let Some(name) = &self.trigger {
            let before = device.trigger()?;
            if before.as_ref() != Some(name) {
                (self.has_changed_trigger, self.former_trigger) = (true, before);
                device.set_trigger(Some(name))?;
            }
        }
        for one in self.settings.all().iter().filter(|one| one.is_rounded() && !quiet) {
            say(&format!("dmabuf-dio: {}", describe(one)));
        }
        Ok(())
    }

    /// The device was used with the settings. Without `--restore`, they stay.
    pub(crate) fn keep(&mut self) {
        if !self.restore {
            self.settings.keep();
        }
    }

    /// Restores the settings that are not kept. The device must not be running. Prints the settings
    /// that cannot be restored.
    pub(crate) fn put_back(&mut self, device: &Device, buffer: u32) -> Result<(), Failure> {
        let mut first = Ok(());
        let mut note = |result: dmabuf_dio_stream::Result<()>| {
            if let Err(error) = result {
                say(&format!("dmabuf-dio: not restored: {error}"));
                if first.is_ok() {
                    first = Err(error);
                }
            }
        };
        if std::mem::take(&mut self.has_changed_trigger) {
            note(device.set_trigger(self.former_trigger.as_deref()));
        }
        if self.restore && std::mem::take(&mut self.is_applied) {
            note(device.choose(buffer, &self.channels));
        }
        note(self.settings.put_back());
        first.map_err(|error| {
            let what = "not all settings of the device were restored";
            Failure::new(FAILED, what, error.hint().in_words(&WORDS))
        })
    }

    /// The settings, with the values that the device chose.
    pub(crate) fn settings(&self) -> &[Setting] {
        self.settings.all()
    }

    /// The requested trigger.
    pub(crate) fn trigger(&self) -> Option<&str> {
        self.trigger.as_deref()
    }

    /// The frequency of the local oscillator that was set, in hertz, if it was one.
    pub(crate) fn oscillator(&self) -> Option<f64> {
        let is_oscillator = |one: &&Setting| {
            one.attribute.starts_with("out_altvoltage") && one.attribute.ends_with("_frequency")
        };
        let mut all = self.settings.all().iter().filter(is_oscillator);
        let one = all.next().filter(|_| all.next().is_none())?;
        one.after.as_deref()?.parse().ok()
    }
}

/// The channels of a buffer that are selected.
fn selected(device: &Device, buffer: u32) -> Result<Vec<Channel>, Failure> {
    let mut selected = device.channels(buffer)?;
    let is_on = |channel: &Channel| {
        device.read(&format!("buffer{buffer}/{}_en", channel.name)).is_ok_and(|value| value == "1")
    };
    selected.retain(is_on);
    Ok(selected)
}

/// For example `in_voltage0_hardwaregain of ad9361-phy is 17.000000 dB instead of 17.3`.
pub(crate) fn describe(setting: &Setting) -> String {
    let Setting { device, attribute, asked, after, .. } = setting;
    let value = after.as_deref().unwrap_or("not known");
    let instead = if setting.is_rounded() { format!(" instead of {asked}") } else { String::new() };
    format!("{attribute} of {device} is {value}{instead}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_prefixes_are_expanded() {
        for (value, written) in [
            ("2.4G", "2400000000"),
            ("868.95MHz", "868950000"),
            ("18M", "18000000"),
            ("1.5k", "1500"),
            ("71", "71"),
            ("-10.25", "-10.25"),
            ("71 dB", "71 dB"),
            ("1e6", "1e6"),
            ("manual", "manual"),
            ("0x10", "0x10"),
            ("G", "G"),
            ("5x", "5x"),
        ] {
            assert_eq!(plain(value), written);
        }
    }
}
