// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a disk's requests have to be mapped for DMA, according to sysfs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::known::Known;

/// How often memory is mapped for a disk that does DMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Mapped {
    /// Never: no IOMMU translates addresses for the disk.
    Never,
    /// Once for each buffer, after its first request.
    Once,
    /// With each request, and unmapped after it. This costs most where the IOMMU is strict.
    PerRequest,
}

impl Mapped {
    /// The name in the output of `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Once => "once",
            Self::PerRequest => "per-request",
        }
    }
}

/// How the memory of a transfer is mapped for the file's disk.
///
/// This follows from the disk's driver and IOMMU, the backend and the kernel. A kernel that could
/// not map a buffer, for lack of memory, maps its requests instead without telling.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Dma {
    /// How often.
    pub mapped: Mapped,
    /// Why with each request; `None` otherwise.
    pub reason: Option<String>,
}

/// For a device number; `None` if the disk is not known, as with file systems that have device
/// numbers of their own. `not_kept`: why the buffer does not stay mapped even if the disk's driver
/// can use that; only asked then.
pub(crate) fn of(major: u32, minor: u32, not_kept: impl FnOnce() -> Option<String>) -> Option<Dma> {
    let never = Dma { mapped: Mapped::Never, reason: None };
    if !has_iommu()? {
        return Some(never);
    }
    let disk = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let reason = match translation(&disk)? {
        Translation::None => return Some(never),
        Translation::Kept => not_kept(),
        Translation::ByDriver(why) => Some(why),
    };
    let mapped = if reason.is_some() { Mapped::PerRequest } else { Mapped::Once };
    Some(Dma { mapped, reason })
}

/// Why memory that the kernel module did not lend does not stay mapped.
pub(crate) fn not_lent() -> String {
    "only what the kernel module lends stays mapped".into()
}

/// Whether devices are behind an IOMMU; `None` without sysfs. Looked up once: groups of disks are
/// there since the kernel found its IOMMU, and this is on the way of every small file.
fn has_iommu() -> Option<bool> {
    static FOUND: Known = Known::new();
    const UNKNOWN: u64 = 2;
    let found = FOUND.get_or_find(|| match fs::read_dir("/sys/kernel/iommu_groups") {
        Ok(mut groups) => groups.any(|group| group.is_ok()).into(),
        Err(_) if Path::new("/sys/kernel").exists() => 0,
        Err(_) => UNKNOWN,
    });
    (found != UNKNOWN).then_some(found == 1)
}

/// The way in which the addresses for a disk get through an IOMMU.
#[derive(Debug, PartialEq, Eq)]
enum Translation {
    None,
    /// The driver takes addresses that are there already.
    Kept,
    /// The driver, or the block layer, maps each request, with the reason.
    ByDriver(String),
}

/// For a folder in `/sys/devices` of a disk, a partition, or a device made of disks.
fn translation(disk: &Path) -> Option<Translation> {
    let disk = if disk.join("partition").exists() { disk.parent()? } else { disk };
    let below: Vec<PathBuf> = fs::read_dir(disk.join("slaves"))
        .into_iter()
        .flatten()
        .filter_map(|slave| fs::canonicalize(slave.ok()?.path()).ok())
        .collect();
    if !below.is_empty() {
        let all = below.iter().map(|disk| translation(disk)).collect::<Option<Vec<_>>>()?;
        // The worst of them
        return all.into_iter().max_by_key(|each| match each {
            Translation::None => 0,
            Translation::Kept => 1,
            Translation::ByDriver(_) => 2,
        });
    }
    let device = fs::canonicalize(disk.join("device")).ok()?;
    device.ancestors().find_map(|device| {
        let bus = fs::read_link(device.join("subsystem")).ok()?;
        match bus.file_name()?.to_str()? {
            "virtio" => virtio(device),
            "pci" => Some(pci(device)),
            _ => None,
        }
    })
}

fn pci(device: &Path) -> Translation {
    let kind = fs::read_to_string(device.join("iommu_group/type")).unwrap_or_default();
    if !kind.starts_with("DMA") {
        return Translation::None;
    }
    // The kernel calls such a device untrusted (drivers/pci/probe.c).
    let removable = fs::read_to_string(device.join("removable")).unwrap_or_default();
    if removable.trim() == "removable" {
        return Translation::ByDriver(
            "the disk is on a port for untrusted devices, which see only what they move".into(),
        );
    }
    let driver = fs::read_link(device.join("driver")).unwrap_or_default();
    match driver.file_name().and_then(|name| name.to_str()) {
        Some("nvme") => Translation::Kept,
        driver => Translation::ByDriver(format!(
            "the driver {} maps each request itself",
            driver.unwrap_or("of the disk")
        )),
    }
}

/// Virtio devices do without an IOMMU unless they have the feature `VIRTIO_F_ACCESS_PLATFORM`.
/// `None` if the PCI device tells.
fn virtio(device: &Path) -> Option<Translation> {
    let features = fs::read_to_string(device.join("features")).ok()?;
    (features.as_bytes().get(33) != Some(&b'1')).then_some(Translation::None)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A tree like that of sysfs.
    struct Sys(tempfile::TempDir);

    impl Sys {
        fn new() -> Self {
            let sys = Self(tempfile::tempdir().expect("a folder"));
            for name in
                ["bus/pci", "bus/virtio", "drivers/nvme", "drivers/ahci", "drivers/virtio-pci"]
            {
                fs::create_dir_all(sys.path(name)).expect("a folder");
            }
            sys
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn link(&self, to: &str, name: &str) {
            fs::create_dir_all(self.path(name).parent().expect("a folder")).expect("a folder");
            symlink(self.path(to), self.path(name)).expect("a link");
        }

        fn pci(&self, device: &str, driver: &str, iommu: Option<&str>) {
            self.link("bus/pci", &format!("{device}/subsystem"));
            self.link(&format!("drivers/{driver}"), &format!("{device}/driver"));
            if let Some(kind) = iommu {
                fs::create_dir(self.path(device).join("iommu_group")).expect("a folder");
                fs::write(self.path(device).join("iommu_group/type"), format!("{kind}\n"))
                    .expect("a file");
            }
        }

        fn disk(&self, device: &str, disk: &str) {
            self.link(device, &format!("{disk}/device"));
            fs::create_dir(self.path(disk).join("slaves")).expect("a folder");
        }

        fn translation(&self, disk: &str) -> Option<Translation> {
            translation(&fs::canonicalize(self.path(disk)).expect("a disk"))
        }
    }

    fn by_driver(name: &str) -> Translation {
        Translation::ByDriver(format!("the driver {name} maps each request itself"))
    }

    #[test]
    fn iommu_translation_follows_driver_and_domain() {
        let sys = Sys::new();
        sys.pci("pci0/a", "nvme", Some("DMA"));
        sys.disk("pci0/a", "pci0/a/nvme0/nvme0n1");
        assert_eq!(sys.translation("pci0/a/nvme0/nvme0n1"), Some(Translation::Kept));
        let partition = "pci0/a/nvme0/nvme0n1/nvme0n1p1";
        fs::create_dir(sys.path(partition)).expect("a folder");
        fs::write(sys.path(partition).join("partition"), "1\n").expect("a file");
        assert_eq!(sys.translation(partition), Some(Translation::Kept));

        sys.pci("pci0/b", "ahci", Some("DMA-FQ"));
        sys.disk("pci0/b", "pci0/b/sda");
        assert_eq!(sys.translation("pci0/b/sda"), Some(by_driver("ahci")));
        for (device, iommu) in [("pci0/c", None), ("pci0/d", Some("identity"))] {
            sys.pci(device, "nvme", iommu);
            sys.disk(device, &format!("{device}/nvme1n1"));
            assert_eq!(sys.translation(&format!("{device}/nvme1n1")), Some(Translation::None));
        }

        for (device, removable) in [("pci0/e", "fixed\n"), ("pci0/f", "removable\n")] {
            sys.pci(device, "nvme", Some("DMA"));
            sys.disk(device, &format!("{device}/nvme2n1"));
            fs::write(sys.path(device).join("removable"), removable).expect("a file");
            let found = sys.translation(&format!("{device}/nvme2n1"));
            assert_eq!(found == Some(Translation::Kept), removable == "fixed\n", "{found:?}");
        }

        fs::create_dir_all(sys.path("dm-0/slaves")).expect("a folder");
        sys.link("pci0/a/nvme0/nvme0n1", "dm-0/slaves/nvme0n1");
        assert_eq!(sys.translation("dm-0"), Some(Translation::Kept));
        sys.link("pci0/b/sda", "dm-0/slaves/sda");
        assert_eq!(sys.translation("dm-0"), Some(by_driver("ahci")), "the worst");
        fs::create_dir_all(sys.path("loop0/slaves")).expect("a folder");
        assert_eq!(sys.translation("loop0"), None, "no device");
    }

    #[test]
    fn virtio_translation_follows_the_platform_feature() {
        let sys = Sys::new();
        for (device, bit) in [("pci0/a", '0'), ("pci0/b", '1')] {
            sys.pci(device, "virtio-pci", Some("DMA"));
            let virtio = format!("{device}/virtio0");
            sys.link("bus/virtio", &format!("{virtio}/subsystem"));
            let features = format!("{}{bit}{}\n", "1".repeat(33), "0".repeat(30));
            fs::write(sys.path(&virtio).join("features"), features).expect("a file");
            sys.disk(&virtio, &format!("{virtio}/vda"));
        }
        assert_eq!(sys.translation("pci0/a/virtio0/vda"), Some(Translation::None));
        assert_eq!(sys.translation("pci0/b/virtio0/vda"), Some(by_driver("virtio-pci")));
    }

    #[test]
    fn mapping_modes_serialize_as_their_names() {
        for mapped in [Mapped::Never, Mapped::Once, Mapped::PerRequest] {
            #[cfg(feature = "serde")]
            assert_eq!(
                serde_json::to_string(&mapped).expect("text"),
                format!("\"{}\"", mapped.name())
            );
            assert!(!mapped.name().is_empty());
        }
    }
}
