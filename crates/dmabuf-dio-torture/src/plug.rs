// SPDX-License-Identifier: MIT OR Apache-2.0
//! Disks that can be unplugged: the guest's second raw disk, which is an `NVMe` device; a stick, which is
//! the kernel's USB mass storage gadget at its simulated controller. One of `scsi_debug` stays, and gives no
//! answer to some commands.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::mount::MountFlags;

use crate::world::Outcome;

pub(crate) const KINDS: u64 = 4;
/// Bytes that are used of each.
pub(crate) const SIZE: usize = 1 << 20;
const CONFIG: &str = "/sys/kernel/config";
const GADGET: &str = "/sys/kernel/config/usb_gadget/torture";
const CONTROLLER: &str = "dummy_udc.0";
/// On a tmpfs
const STICK: &str = "/run/torture-stick";
const SCSI: &str = "/sys/bus/pseudo/drivers/scsi_debug";
/// What comes and goes does so within a time that a busy machine makes long.
const TRIES: u32 = 6000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plug {
    Nvme,
    Usb,
    /// Each fourth command gets no answer, and is sent again.
    Late,
    /// The same, and is not sent again.
    Lost,
}

fn failed(path: &str) -> impl Fn(std::io::Error) -> String + '_ {
    move |error| format!("{path}: {error}")
}

fn write(path: impl AsRef<Path>, value: &str) -> Outcome {
    let path = path.as_ref();
    fs::write(path, value).map_err(failed(&path.to_string_lossy()))
}

fn modprobe(arguments: &[&str]) -> bool {
    let status = Command::new("modprobe").arg("-q").args(arguments).status();
    status.is_ok_and(|status| status.success())
}

fn names(folder: impl AsRef<Path>) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn node(path: &Path) -> PathBuf {
    Path::new("/dev").join(path.file_name().unwrap_or_default())
}

/// Tries for a while.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> Result<T, String> {
    for _ in 0..TRIES {
        if let Some(done) = attempt() {
            return Ok(done);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(format!("{what} for too long"))
}

/// The folder of the second raw disk's device on the PCI bus, which is there while it is plugged in.
fn pci() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let disks = std::env::var("DMABUF_DIO_RAW_DISKS").ok()?;
        let name = disks.split_whitespace().nth(1)?.rsplit('/').next()?;
        let device = fs::canonicalize(format!("/sys/block/{name}/device/device")).ok()?;
        Some(Path::new("/sys/bus/pci/devices").join(device.file_name()?))
    };
    FOLDER.get_or_init(find).as_deref()
}

/// Describes the stick once. False: the kernel has no such gadgets.
fn stick() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    let describe = || -> std::io::Result<()> {
        if !Path::new(CONFIG).join("usb_gadget").exists() {
            rustix::mount::mount("none", CONFIG, "configfs", MountFlags::empty(), None)?;
        }
        let function = format!("{GADGET}/functions/mass_storage.0");
        fs::create_dir_all(&function)?;
        fs::create_dir_all(format!("{GADGET}/configs/c.1"))?;
        // Linux's own numbers
        fs::write(format!("{GADGET}/idVendor"), "0x1d6b")?;
        fs::write(format!("{GADGET}/idProduct"), "0x0104")?;
        fs::write(STICK, vec![0; SIZE])?;
        fs::write(format!("{function}/lun.0/file"), STICK)?;
        fs::write("/sys/module/usb_storage/parameters/delay_use", "0")?;
        std::os::unix::fs::symlink(&function, format!("{GADGET}/configs/c.1/mass_storage.0"))
    };
    *THERE.get_or_init(|| {
        let modules = ["dummy_hcd", "usb_f_mass_storage", "usb-storage", "sd_mod"];
        modules.iter().all(|name| modprobe(&[name])) && describe().is_ok()
    })
}

/// The SCSI disk of a model.
fn scsi_disk(model: &str) -> Option<PathBuf> {
    names("/sys/block").into_iter().find(|path| {
        fs::read_to_string(path.join("device/model")).is_ok_and(|text| text.trim() == model)
    })
}

const STICK_MODEL: &str = "File-Stor Gadget";

impl Plug {
    pub(crate) fn of(number: u64) -> Self {
        match number {
            0 => Self::Nvme,
            1 => Self::Usb,
            2 => Self::Late,
            _ => Self::Lost,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nvme => "NVMe unplugged in a call",
            Self::Usb => "USB unplugged in a call",
            Self::Late => "timeouts in a call, with retries",
            Self::Lost => "timeouts in a call",
        }
    }

    /// Plugs it in, or lets it answer again; its node. `None`: there is none.
    pub(crate) fn insert(self) -> Result<Option<PathBuf>, String> {
        let found: Box<dyn Fn() -> Option<PathBuf>> = match self {
            Self::Nvme => {
                let Some(folder) = pci() else { return Ok(None) };
                if !folder.exists() {
                    write("/sys/bus/pci/rescan", "1")?;
                }
                let controllers = folder.join("nvme");
                Box::new(move || {
                    let disks = names(&controllers).into_iter().flat_map(names);
                    let block = |path: &PathBuf| path.join("queue").exists();
                    disks.filter(block).map(|path| node(&path)).next()
                })
            }
            Self::Usb => {
                if !stick() {
                    return Ok(None);
                }
                let controller = format!("{GADGET}/UDC");
                if fs::read_to_string(&controller).is_ok_and(|name| name.trim().is_empty()) {
                    write(&controller, CONTROLLER)?;
                }
                Box::new(|| scsi_disk(STICK_MODEL).map(|path| node(&path)))
            }
            Self::Late | Self::Lost => {
                let loaded = Path::new(SCSI).exists()
                    || modprobe(&["sd_mod"]) && modprobe(&["scsi_debug", "dev_size_mb=8"]);
                if !loaded {
                    return Ok(None);
                }
                write(format!("{SCSI}/every_nth"), "0")?;
                Box::new(|| scsi_disk("scsi_debug").map(|path| node(&path)))
            }
        };
        until("a disk is missing", || {
            let path = found()?;
            let disk = fs::File::options().read(true).write(true).open(&path).ok()?;
            // What was lost before is told to the first who asks.
            let _ = disk.sync_data();
            Some(Some(path))
        })
    }

    /// Unplugs it, or lets it not answer any more.
    pub(crate) fn pull(self) -> Outcome {
        match self {
            Self::Nvme => pci().map_or(Ok(()), |folder| write(folder.join("remove"), "1")),
            Self::Usb => {
                write(format!("{GADGET}/UDC"), "\n")?;
                until("a stick stays", || scsi_disk(STICK_MODEL).is_none().then_some(()))
            }
            Self::Late | Self::Lost => {
                let Some(disk) = scsi_disk("scsi_debug") else { return Ok(()) };
                // Seconds
                write(disk.join("device/timeout"), "1")?;
                let retries = if self == Self::Lost { "0" } else { "-1" };
                for of_disk in names(disk.join("device/scsi_disk")) {
                    write(of_disk.join("max_retries"), retries)?;
                }
                // No answer: `SDEBUG_OPT_TIMEOUT`
                write(format!("{SCSI}/opts"), "4")?;
                write(format!("{SCSI}/every_nth"), "4")
            }
        }
    }

    /// May a transfer end early? Else all of it arrives.
    pub(crate) fn ends(self) -> bool {
        self != Self::Late
    }
}
