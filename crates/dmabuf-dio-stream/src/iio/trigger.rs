// SPDX-License-Identifier: MIT OR Apache-2.0
//! Triggers, which make some devices take a sample.

use std::fs;
use std::path::{Path, PathBuf};

use super::attribute::Attribute;
use super::device::{DEVICES, Device};
use crate::error::{Error, Result};
use crate::numbered::numbered;

/// The attribute with the trigger in use.
const CURRENT: &str = "trigger/current_trigger";

/// A trigger of the kernel: a timer, an interrupt or a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Trigger {
    /// Name of its folder in sysfs: `trigger0`.
    pub id: String,
    /// The name given by the driver, by which devices select it.
    pub name: String,
    #[cfg_attr(feature = "serde", serde(skip))]
    folder: PathBuf,
}

impl Trigger {
    /// All triggers, ordered by number.
    pub fn all() -> Vec<Self> {
        Self::all_in(Path::new(DEVICES))
    }

    pub(crate) fn all_in(root: &Path) -> Vec<Self> {
        numbered(root, "trigger")
            .into_iter()
            .map(|number| {
                let id = format!("trigger{number}");
                let folder = root.join(&id);
                let name = Attribute::at(&id, &folder, "name").read().unwrap_or_default();
                Self { id, name, folder }
            })
            .collect()
    }

    /// Whether it is a part of the same hardware as a device: it fires at the device's rate.
    fn is_of(&self, device: &Path) -> bool {
        let hardware = |path: &Path| Some(fs::canonicalize(path).ok()?.parent()?.to_owned());
        hardware(&self.folder).is_some_and(|own| Some(own) == hardware(device))
    }

    /// Finds an attribute by its name: `sampling_frequency` of a timer.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if there is none.
    pub fn attribute(&self, wanted: &str) -> Result<Attribute> {
        Attribute::find(&self.name, &self.folder, wanted)
    }
}

impl Device {
    /// The name of the trigger in use; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`]: `ENOENT` if the device does not use triggers.
    pub fn trigger(&self) -> Result<Option<String>> {
        Ok(Some(self.read(CURRENT)?).filter(|name| !name.is_empty()))
    }

    /// The trigger in use, unless it is the device's own.
    pub(crate) fn driver(&self) -> Option<Trigger> {
        let name = self.trigger().ok()??;
        let all = Trigger::all_in(self.root());
        let used = all.into_iter().find(|trigger| trigger.name == name);
        used.filter(|trigger| !trigger.is_of(self.folder()))
    }

    /// Makes the device take samples when this trigger fires, or without one.
    ///
    /// # Errors
    ///
    /// [`Error::Trigger`] if there is no such trigger, or the device does not use triggers.
    /// [`Error::Stream`]: `EBUSY` while samples flow, `EPERM` if its trigger cannot be changed,
    /// `EINVAL` if the device does not accept this one.
    pub fn set_trigger(&self, name: Option<&str>) -> Result<()> {
        name.map_or(Ok(()), |name| self.check_trigger(name))?;
        // The kernel treats an unknown name as none.
        self.write(CURRENT, name.unwrap_or("\n"))
    }

    /// Checks that [`set_trigger`](Self::set_trigger) finds this trigger. Nothing is written.
    ///
    /// # Errors
    ///
    /// [`Error::Trigger`].
    pub fn check_trigger(&self, name: &str) -> Result<()> {
        let all = self.triggers();
        let takes = self.trigger().is_ok();
        if takes && all.iter().any(|one| one == name) {
            return Ok(());
        }
        let (device, wanted) = (self.name().to_owned(), Some(name.to_owned()));
        Err(Error::Trigger { device, wanted, available: takes.then_some(all) })
    }

    /// The error of a device that was not enabled because it lacks a trigger, if it does.
    pub(crate) fn lacks_trigger(&self) -> Option<Error> {
        if !matches!(self.trigger(), Ok(None)) {
            return None;
        }
        let (device, available) = (self.name().to_owned(), Some(self.triggers()));
        Some(Error::Trigger { device, wanted: None, available })
    }

    /// The names of all triggers.
    fn triggers(&self) -> Vec<String> {
        Trigger::all_in(self.root()).into_iter().map(|trigger| trigger.name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iio::sysfs::Fake;

    const SENSOR: &[(&str, &str)] = &[("name", "sensor\n"), ("trigger/current_trigger", "")];

    fn tree() -> (Fake, Device) {
        let fake = Fake::new(0, SENSOR);
        fake.add("iio:device1", &[("name", "adc\n")]);
        for (id, name) in [("trigger10", "timer"), ("trigger2", "irq")] {
            fake.add(id, &[("name", &format!("{name}\n")), ("sampling_frequency", "100\n")]);
        }
        let device = Device::find_in(fake.root(), "sensor").expect("found");
        (fake, device)
    }

    #[test]
    fn triggers_are_listed_with_their_attributes() {
        let (fake, _) = tree();
        let all = Trigger::all_in(fake.root());
        let names: Vec<_> = all.iter().map(|one| (&*one.id, &*one.name)).collect();
        assert_eq!(names, [("trigger2", "irq"), ("trigger10", "timer")]);
        let rate = all[1].attribute("sampling_frequency").expect("one");
        assert_eq!((rate.owner(), rate.read().expect("read").as_str()), ("timer", "100"));
        assert!(all[1].attribute("x").is_err());
    }

    #[test]
    fn a_device_takes_a_trigger() {
        let (fake, sensor) = tree();
        assert_eq!(sensor.trigger().expect("it takes one"), None);
        let lacks = sensor.lacks_trigger().expect("it has none");
        assert!(lacks.hint().to_string().contains("irq, timer"), "{}", lacks.hint());
        sensor.set_trigger(Some("irq")).expect("set");
        assert_eq!(sensor.trigger().expect("it has one").as_deref(), Some("irq"));
        assert!(sensor.lacks_trigger().is_none());
        let unknown = sensor.set_trigger(Some("tim")).expect_err("unknown");
        assert!(unknown.to_string().contains("tim"), "{unknown}");
        assert!(unknown.hint().to_string().contains("irq, timer"), "{}", unknown.hint());
        assert_eq!(sensor.trigger().expect("as before").as_deref(), Some("irq"));
        sensor.set_trigger(None).expect("set");
        assert_eq!(sensor.trigger().expect("it takes one"), None);
        let adc = Device::find_in(fake.root(), "adc").expect("found");
        let error = adc.set_trigger(Some("irq")).expect_err("no use for it");
        assert!(matches!(error, Error::Trigger { available: None, .. }), "{error}");
        assert!(adc.trigger().is_err() && adc.lacks_trigger().is_none());
    }
}
