// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several attributes set together: all, or none.

use dmabuf_dio::Errno;

use super::attribute::Attribute;
use super::available::{Left, is_same};
use crate::error::{Error, Refused, Result, failed};

/// An attribute, with its requested, former and current value.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Setting {
    /// Name of the device or trigger.
    pub device: String,
    /// Name of the attribute, in sysfs.
    pub attribute: String,
    /// The requested value.
    pub asked: String,
    /// The value before.
    pub before: String,
    /// The value that the device reported after all were set; `None` before that.
    pub after: Option<String>,
    #[cfg_attr(feature = "serde", serde(skip))]
    file: Attribute,
}

impl Setting {
    /// Whether the current value differs from the requested one, because the driver rounded it.
    pub fn is_rounded(&self) -> bool {
        self.after.as_ref().is_some_and(|after| !is_same(after, &self.asked))
    }

    /// Sets the value that the attribute had, if it has another. Returns the current value if that
    /// did not work.
    fn put_back(&self) -> Option<String> {
        let has = || self.file.read().unwrap_or_else(|error| error.to_string());
        if has() == self.before {
            return None;
        }
        if let Err(Errno::INVAL) = self.file.put(&self.before) {
            // Some attributes report a unit that they do not accept: 71.000000 dB.
            let number = self.before.split(' ').next().unwrap_or_default();
            let _ = self.file.put(number);
        }
        Some(has()).filter(|value| !is_same(value, &self.before))
    }
}

/// Settings of one or more devices, which are written together.
///
/// Dropping this leaves the attributes as they are.
#[derive(Debug, Default)]
pub struct Settings {
    all: Vec<Setting>,
    /// The number of written attributes, which may be restored.
    written: usize,
}

impl Settings {
    /// Checks attributes and the values that they are to have. Nothing is written.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`]: an attribute cannot be written, or cannot be read, so that it could not
    /// be put back; the driver does not offer the value; or an attribute occurs twice.
    /// [`Error::Stream`] with `EACCES` if this user lacks permission.
    pub fn check(wanted: impl IntoIterator<Item = (Attribute, String)>) -> Result<Self> {
        let mut all: Vec<Setting> = Vec::new();
        for (file, asked) in wanted {
            let (device, attribute) = (file.owner().to_owned(), file.name().to_owned());
            let refused = |reason| {
                let (device, attribute) = (device.clone(), attribute.clone());
                Err(Error::Setting { device, attribute, reason })
            };
            if all.iter().any(|one| one.file == file) {
                return refused(Refused::Twice);
            }
            match file.modes() {
                (false, _) => return refused(Refused::ReadOnly),
                (_, false) => return refused(Refused::WriteOnly),
                _ => {}
            }
            file.check_write()
                .map_err(|errno| failed(&device, format!("set {attribute}"), errno))?;
            let before = file.read()?;
            if let Some(available) = file.available().filter(|all| !all.allows(&asked)) {
                return refused(Refused::NotOffered { value: asked, available });
            }
            all.push(Setting { device, attribute, asked, before, after: None, file });
        }
        Ok(Self { all, written: 0 })
    }

    /// Writes all values in order, then reads them back. If one is refused, that one and those
    /// before it are put back in reverse order.
    ///
    /// # Errors
    ///
    /// [`Error::NotSet`], which lists what could not be put back, if anything.
    pub fn write(&mut self) -> Result<()> {
        for index in 0..self.all.len() {
            let one = &self.all[index];
            let result = one.file.put(&one.asked);
            // A driver may have changed something before it refused the value.
            self.written = index + 1;
            if let Err(errno) = result {
                let Setting { device, attribute, asked, .. } = one.clone();
                let left = self.revert();
                return Err(Error::NotSet { device, attribute, value: asked, errno, left });
            }
        }
        for one in &mut self.all {
            one.after = one.file.read().ok();
        }
        Ok(())
    }

    /// Restores the written attributes in reverse order. Other attributes that the driver changed as
    /// a side effect are not put back. Does nothing if nothing was written.
    ///
    /// # Errors
    ///
    /// [`Error::NotPutBack`].
    pub fn put_back(&mut self) -> Result<()> {
        let left = self.revert();
        if left.is_empty() { Ok(()) } else { Err(Error::NotPutBack { left }) }
    }

    /// Keeps the settings: [`put_back`](Self::put_back) does nothing afterwards.
    pub fn keep(&mut self) {
        self.written = 0;
    }

    fn revert(&mut self) -> Vec<Left> {
        let mut left = Vec::new();
        while let Some(last) = self.written.checked_sub(1) {
            self.written = last;
            let one = &self.all[last];
            if let Some(value) = one.put_back() {
                let (device, attribute) = (one.device.clone(), one.attribute.clone());
                left.push(Left { device, attribute, before: one.before.clone(), value });
            }
        }
        left
    }

    /// The settings, in order.
    pub fn all(&self) -> &[Setting] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iio::sysfs::{Fake, PHY};
    use std::os::unix::fs::PermissionsExt as _;

    fn attribute(fake: &Fake, name: &str) -> Attribute {
        Attribute::find("phy", &fake.folder(0), name).expect(name)
    }

    fn check(fake: &Fake, wanted: &[(&str, &str)]) -> Result<Settings> {
        let pairs = wanted.iter().map(|(name, value)| (attribute(fake, name), (*value).into()));
        Settings::check(pairs.collect::<Vec<_>>())
    }

    fn has(fake: &Fake, name: &str) -> String {
        attribute(fake, name).read().expect("read")
    }

    const LO: &str = "RX_LO.frequency";
    const GAIN: &str = "in_voltage0.hardwaregain";

    #[test]
    fn settings_are_written_and_restored() {
        let fake = Fake::new(0, PHY);
        let mut both = check(&fake, &[(LO, "868000000"), (GAIN, "20.5")]).expect("good");
        assert_eq!((has(&fake, LO), both.all()[0].after.clone()), ("2400000000".into(), None));
        both.write().expect("written");
        assert_eq!((has(&fake, LO), has(&fake, GAIN)), ("868000000".into(), "20.5".into()));
        assert!(both.all().iter().all(|one| !one.is_rounded()));
        assert_eq!(both.all()[1].before, "71.000000 dB");
        both.put_back().expect("put back");
        assert_eq!(has(&fake, LO), "2400000000");
        assert_eq!(has(&fake, GAIN), "71.000000 dB");
        // The settings are restored unless they are kept, and only once: another program may have
        // changed them since.
        attribute(&fake, LO).write("1").expect("written");
        both.put_back().expect("nothing to do");
        assert_eq!(has(&fake, LO), "1");
        let mut kept = check(&fake, &[(LO, "868000000")]).expect("good");
        kept.write().expect("written");
        kept.keep();
        kept.put_back().expect("nothing to do");
        assert_eq!((has(&fake, LO).as_str(), kept.all().len()), ("868000000", 1));
    }

    #[test]
    fn unwritten_setting_is_not_restored() {
        let fake = Fake::new(0, PHY);
        let mut both = check(&fake, &[(LO, "868000000")]).expect("good");
        attribute(&fake, LO).write("1").expect("written");
        both.put_back().expect("nothing to do");
        assert_eq!(has(&fake, LO), "1");
    }

    #[test]
    fn refused_setting_writes_nothing() {
        let fake = Fake::new(0, PHY);
        let reason = |wanted: &[(&str, &str)]| match check(&fake, wanted).expect_err("refused") {
            Error::Setting { reason, .. } => reason,
            error => panic!("{error}"),
        };
        let first = (LO, "868000000");
        let mode = "in_voltage0.gain_control_mode";
        for bad in [(GAIN, "72"), (GAIN, "loud"), (mode, "auto"), ("rf_bandwidth", "1e9")] {
            let bad =
                if bad.0 == "rf_bandwidth" { ("in_voltage0.rf_bandwidth", bad.1) } else { bad };
            let reason = reason(&[first, bad]);
            assert!(matches!(reason, Refused::NotOffered { .. }), "{bad:?}: {reason:?}");
        }
        assert_eq!(reason(&[first, ("in_temp0_input", "1")]), Refused::ReadOnly);
        assert_eq!(reason(&[first, ("RX_LO.fastlock_save", "1")]), Refused::WriteOnly);
        assert_eq!(reason(&[first, ("altvoltage0.frequency", "80000000")]), Refused::Twice);
        assert_eq!(has(&fake, LO), "2400000000");
    }

    #[test]
    fn failed_write_restores_all_settings() {
        let fake = Fake::new(0, PHY);
        let mut three = check(&fake, &[(LO, "868000000"), (GAIN, "20"), ("ensm_mode", "rx")]);
        let three = three.as_mut().expect("good");
        // A file that is gone by the time.
        let path = fake.folder(0).join("ensm_mode");
        std::fs::remove_file(&path).expect("removed");
        let error = three.write().expect_err("refused");
        let Error::NotSet { attribute: name, errno, left, .. } = &error else { panic!("{error}") };
        assert_eq!((name.as_str(), *errno), ("ensm_mode", Errno::NOENT));
        // Settings that cannot be restored are reported.
        assert_eq!((left.len(), left[0].attribute.as_str()), (1, "ensm_mode"));
        assert_eq!(
            (has(&fake, LO).as_str(), has(&fake, GAIN).as_str()),
            ("2400000000", "71.000000 dB")
        );
        assert!(
            error.to_string().contains("ensm_mode") && error.hint().to_string().contains("fdd"),
            "{error}"
        );
    }

    #[test]
    fn rounded_value_is_reported() {
        let fake = Fake::new(0, PHY);
        let mut one = check(&fake, &[(GAIN, "20.3")]).expect("good");
        one.write().expect("written");
        assert!(!one.all()[0].is_rounded());
        one.all[0].after = Some("20.000000 dB".into());
        assert!(one.all()[0].is_rounded());
        one.all[0].after = Some("20.300000 dB".into());
        assert!(!one.all()[0].is_rounded());
        one.all[0].after = None;
        assert!(!one.all()[0].is_rounded(), "not known");
    }

    #[test]
    fn permission_is_checked_before_writing() {
        if rustix::process::geteuid().is_root() {
            return;
        }
        let fake = Fake::new(0, PHY);
        let path = fake.folder(0).join("ensm_mode");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o040)).expect("a mode");
        assert!(check(&fake, &[("ensm_mode", "rx")]).is_err());
    }
}
