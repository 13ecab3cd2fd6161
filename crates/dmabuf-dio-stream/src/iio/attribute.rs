// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attributes of IIO devices and triggers by the names that people use for them
//! (Documentation/ABI/testing/sysfs-bus-iio).

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use dmabuf_dio::Errno;

use super::available::Available;
use crate::error::{Error, Refused, Result, failed};

/// Maximum number of names in an error.
const NAMED: usize = 12;

/// An attribute: one value of an IIO device, of its channels, or of a trigger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attribute {
    owner: String,
    name: String,
    path: PathBuf,
}

impl Attribute {
    /// Finds an attribute in a folder of sysfs by its name, or by channel and name:
    /// [`Device::attribute`](crate::Device::attribute).
    pub(crate) fn find(owner: &str, folder: &Path, wanted: &str) -> Result<Self> {
        let names = names(folder);
        let found = match wanted.split_once('.') {
            None => names.iter().filter(|name| *name == wanted).cloned().collect(),
            Some((channel, attribute)) => Names { folder, names: &names }.find(channel, attribute),
        };
        let mut found = found.into_iter();
        let refused = |reason| {
            let (device, attribute) = (owner.to_owned(), wanted.to_owned());
            Err(Error::Setting { device, attribute, reason })
        };
        match (found.next(), found.next()) {
            (Some(name), None) => Ok(Self::at(owner, folder, &name)),
            (Some(first), Some(second)) => {
                let all = [first, second].into_iter().chain(found).collect();
                refused(Refused::Ambiguous(all))
            }
            (None, _) => {
                let last = wanted.rsplit('.').next().unwrap_or(wanted);
                refused(Refused::Unknown(similar(folder, &names, last)))
            }
        }
    }

    /// The file of this name in a folder.
    pub(crate) fn at(owner: &str, folder: &Path, name: &str) -> Self {
        Self { owner: owner.to_owned(), name: name.to_owned(), path: folder.join(name) }
    }

    /// All attributes of a folder that have a value, sorted.
    pub(crate) fn all(owner: &str, folder: &Path) -> Vec<Self> {
        names(folder)
            .into_iter()
            .filter(|name| !name.ends_with("_available"))
            .map(|name| Self::at(owner, folder, &name))
            .collect()
    }

    /// Name of the device or trigger.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Name of the file in sysfs, such as `out_altvoltage0_RX_LO_frequency`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value, without the trailing newline.
    ///
    /// # Errors
    ///
    /// [`Error::Stream`]: `EACCES` if the attribute cannot be read.
    pub fn read(&self) -> Result<String> {
        let read = fs::read_to_string(&self.path).map(|text| text.trim().to_owned());
        read.map_err(|error| {
            failed(&self.owner, format!("read {}", self.name), Errno::from(&error))
        })
    }

    /// Sets the value. The driver may round it: see [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// [`Error::Stream`]: `EINVAL` if the driver rejects the value, `EACCES` if this user lacks
    /// permission, `EBUSY` if it cannot be set at the moment.
    pub fn write(&self, value: &str) -> Result<()> {
        self.put(value).map_err(|errno| failed(&self.owner, format!("set {}", self.name), errno))
    }

    pub(crate) fn put(&self, value: &str) -> std::result::Result<(), Errno> {
        // Without O_CREAT, for which sysfs returns EACCES; O_TRUNC is for ordinary files, in tests.
        fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&self.path)
            .and_then(|mut file| file.write_all(value.as_bytes()))
            .map_err(|error| Errno::from(&error))
    }

    /// The accepted values, if the driver lists them: the attribute `..._available`.
    pub fn available(&self) -> Option<Available> {
        let file = |name: &str| self.path.with_file_name(format!("{name}_available"));
        // A list may be shared by the channels of a type.
        let shared = without_digits(&self.name);
        let text = fs::read_to_string(file(&self.name))
            .or_else(|_| fs::read_to_string(file(&shared)))
            .ok()?;
        Available::parse(&text)
    }

    /// Whether the attribute can be written, though perhaps only by root.
    pub fn is_writable(&self) -> bool {
        self.modes().0
    }

    /// Whether the attribute has any write permission, and any read permission.
    pub(crate) fn modes(&self) -> (bool, bool) {
        use std::os::unix::fs::PermissionsExt as _;

        let mode = fs::metadata(&self.path).map_or(0, |facts| facts.permissions().mode());
        (mode & 0o222 != 0, mode & 0o444 != 0)
    }

    /// Whether the file can be opened to be written. Nothing is written.
    pub(crate) fn check_write(&self) -> std::result::Result<(), Errno> {
        let opened = fs::OpenOptions::new().write(true).open(&self.path);
        opened.map(drop).map_err(|error| Errno::from(&error))
    }
}

/// Names of the files in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !["uevent", "dev"].contains(&&**name))
        .collect();
    names.sort_unstable();
    names
}

/// Attributes whose names end like this, or else all writable attributes.
fn similar(folder: &Path, names: &[String], last: &str) -> Vec<String> {
    let ending = format!("_{last}");
    let mut like: Vec<_> = names.iter().filter(|name| name.ends_with(&ending)).cloned().collect();
    if like.is_empty() {
        let whole = |name: &&String| Attribute::at("", folder, name).is_writable();
        like = names.iter().filter(whole).cloned().collect();
    }
    like.truncate(NAMED);
    like
}

/// `in_voltage` for `in_voltage0`, the name of all channels of a type.
fn without_digits(name: &str) -> String {
    name.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Finds attributes of channels. The kernel composes a name of a direction, a type, an index, the
/// driver's name extension, and the attribute. The name of a shared attribute has no index, or even
/// less: `in_voltage0_hardwaregain`, `out_altvoltage0_RX_LO_frequency`, `in_voltage_rf_bandwidth`,
/// `sampling_frequency`.
struct Names<'a> {
    folder: &'a Path,
    names: &'a [String],
}

impl Names<'_> {
    /// The attributes that may be meant.
    fn find(&self, channel: &str, attribute: &str) -> BTreeSet<String> {
        let given = ["in_", "out_"].iter().any(|direction| channel.starts_with(direction));
        let directions: &[&str] = if given { &[""] } else { &["in_", "out_"] };
        let mut found = BTreeSet::new();
        for direction in directions {
            found.extend(self.of_channel(&format!("{direction}{channel}"), attribute));
            found.extend(self.of_label(direction, channel, attribute));
        }
        found
    }

    fn has(&self, name: &str) -> bool {
        self.names.binary_search_by(|one| one.as_str().cmp(name)).is_ok()
    }

    /// The attribute of the channel `in_voltage0` itself, or one that it shares with others.
    fn of_channel(&self, channel: &str, attribute: &str) -> Option<String> {
        if !self.exists(channel) {
            return None;
        }
        let direction = channel.split('_').next().unwrap_or_default();
        let extended =
            self.extension(channel).map(|extension| format!("{channel}_{extension}_{attribute}"));
        [format!("{channel}_{attribute}")]
            .into_iter()
            .chain(extended)
            .chain([
                format!("{}_{attribute}", without_digits(channel)),
                format!("{direction}_{attribute}"),
                attribute.to_owned(),
            ])
            .find(|name| self.has(name))
    }

    /// Whether any attribute or sample is of this channel.
    fn exists(&self, channel: &str) -> bool {
        let prefix = format!("{channel}_");
        self.names.iter().any(|name| name.starts_with(&prefix))
            || self.folder.join(format!("buffer0/{channel}_en")).exists()
            || self.folder.join(format!("scan_elements/{channel}_en")).exists()
    }

    /// The name with which the driver extends that of a channel: all of its attributes begin with
    /// it, such as `RX_LO` in `out_altvoltage0_RX_LO_frequency`.
    fn extension(&self, channel: &str) -> Option<String> {
        let prefix = format!("{channel}_");
        let mut rests = self
            .names
            .iter()
            .filter_map(|name| name.strip_prefix(&prefix))
            .filter(|rest| !rest.ends_with("_available") && *rest != "label")
            .map(|rest| rest.split('_').collect::<Vec<_>>());
        let first = rests.next()?;
        let mut common = first.len() - 1;
        let mut several = false;
        for rest in rests {
            several = true;
            let same = first.iter().zip(&rest).take_while(|(one, other)| one == other).count();
            common = common.min(same).min(rest.len() - 1);
        }
        if !several {
            // Attributes have no capital letters.
            common = first.iter().take(common).take_while(|word| is_capital(word)).count();
        }
        (common > 0).then(|| first[..common].join("_"))
    }

    /// The attribute of the channel that has this label, or whose name is extended by it.
    fn of_label(&self, direction: &str, label: &str, attribute: &str) -> Vec<String> {
        let ending = format!("_{label}_{attribute}");
        let is_channel = |name: &str| name.ends_with(|c: char| c.is_ascii_digit());
        let extended = self.names.iter().filter(|name| {
            let channel = name.strip_suffix(&*ending);
            channel.is_some_and(|name| name.starts_with(direction) && is_channel(name))
        });
        let labelled = self.names.iter().filter_map(|name| {
            let channel = name.strip_suffix("_label")?;
            let text = fs::read_to_string(self.folder.join(name)).ok()?;
            if text.trim() == label && channel.starts_with(direction) {
                self.of_channel(channel, attribute)
            } else {
                None
            }
        });
        extended.cloned().chain(labelled).collect()
    }
}

fn is_capital(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iio::sysfs::{Fake, PHY};

    fn name(wanted: &str) -> std::result::Result<String, Refused> {
        let fake = Fake::new(0, PHY);
        match Attribute::find("ad9361-phy", &fake.folder(0), wanted) {
            Ok(attribute) => Ok(attribute.name),
            Err(Error::Setting { reason, .. }) => Err(reason),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn attributes_are_found_by_channel_name() {
        for (wanted, found) in [
            ("in_voltage0_hardwaregain", "in_voltage0_hardwaregain"),
            ("in_voltage0.hardwaregain", "in_voltage0_hardwaregain"),
            ("out_voltage0.hardwaregain", "out_voltage0_hardwaregain"),
            ("voltage0.gain_control_mode", "in_voltage0_gain_control_mode"),
            // The driver extends the name.
            ("altvoltage0.frequency", "out_altvoltage0_RX_LO_frequency"),
            ("altvoltage0_RX_LO.frequency", "out_altvoltage0_RX_LO_frequency"),
            ("out_altvoltage0.frequency", "out_altvoltage0_RX_LO_frequency"),
            ("RX_LO.frequency", "out_altvoltage0_RX_LO_frequency"),
            ("TX_LO.frequency", "out_altvoltage1_TX_LO_frequency"),
            ("altvoltage1.frequency", "out_altvoltage1_TX_LO_frequency"),
            // A label instead.
            ("Aux.frequency", "out_altvoltage2_frequency"),
            // Shared by the channels of a type, of a direction, by all.
            ("in_voltage0.rf_bandwidth", "in_voltage_rf_bandwidth"),
            ("altvoltage0.sampling_clock", "sampling_clock"),
            ("ensm_mode", "ensm_mode"),
            ("temp0.input", "in_temp0_input"),
        ] {
            assert_eq!(name(wanted), Ok(found.to_owned()), "{wanted}");
        }
    }

    #[test]
    fn unknown_attribute_error_lists_similar_names() {
        let two = ["in_voltage0_hardwaregain", "out_voltage0_hardwaregain"].map(str::to_owned);
        assert_eq!(name("voltage0.hardwaregain"), Err(Refused::Ambiguous(two.to_vec())));
        let like = name("voltage7.hardwaregain").expect_err("no such channel");
        assert!(matches!(&like, Refused::Unknown(names) if names.contains(&two[0])), "{like:?}");
        for missing in
            ["voltage7.rf_bandwidth", "voltage0.ensm", "x", "", ".", "dev", "buffer0", "../x"]
        {
            let error = name(missing).expect_err(missing);
            assert!(matches!(error, Refused::Unknown(_)), "{missing}: {error:?}");
        }
        // A part of the attribute's name is not mistaken for an extension of a channel's only
        // attribute.
        assert!(name("temp0.raw").is_err() && name("voltage2.frequency").is_err());
    }

    #[test]
    fn offered_values_are_parsed() {
        let fake = Fake::new(0, PHY);
        let of = |wanted| {
            let attribute = Attribute::find("phy", &fake.folder(0), wanted).expect(wanted);
            attribute.available()
        };
        let range = of("RX_LO.frequency").expect("a range");
        assert_eq!(range, Available::Range { min: 7e7, step: 1.0, max: 6e9 });
        assert_eq!(range.to_string(), "70000000 to 6000000000 in steps of 1");
        for (value, good) in
            [("2400000000", true), ("70000000.0", true), ("69999999", false), ("6G", false)]
        {
            assert_eq!(range.allows(value), good, "{value}");
        }
        let negative = of("out_voltage0.hardwaregain").expect("a range");
        assert!(negative.allows("-10.3") && !negative.allows("1") && !negative.allows("-89.8"));
        let modes = of("in_voltage0.gain_control_mode").expect("a list");
        assert!(modes.allows("manual") && modes.allows("manual\n") && !modes.allows("auto"));
        let rates = Available::parse("30720000.000 3840000").expect("a list");
        assert!(rates.allows("30720000") && !rates.allows("30720001") && !rates.allows("x"));
        // An attribute of a type has the list of its channels.
        assert!(of("in_voltage1.gain_control_mode").is_some_and(|all| all.allows("hybrid")));
        assert_eq!(of("ensm_mode"), None);
        for bad in ["", " ", "[1 2]", "[a b c]", "[1 2 3 4]"] {
            assert!(!matches!(Available::parse(bad), Some(Available::Range { .. })), "{bad}");
        }
    }

    #[test]
    fn attributes_are_read_and_written() {
        let fake = Fake::new(0, PHY);
        let find = |wanted| Attribute::find("phy", &fake.folder(0), wanted).expect(wanted);
        let gain = find("in_voltage0.hardwaregain");
        assert_eq!((gain.owner(), gain.read().expect("read").as_str()), ("phy", "71.000000 dB"));
        gain.write("20").expect("written");
        assert_eq!(gain.read().expect("read"), "20");
        assert_eq!(gain.modes(), (true, true));
        assert_eq!(find("temp0.input").modes(), (false, true));
        let all = Attribute::all("phy", &fake.folder(0));
        assert!(all.contains(&gain) && all.iter().all(|one| !one.name.ends_with("_available")));
    }
}
