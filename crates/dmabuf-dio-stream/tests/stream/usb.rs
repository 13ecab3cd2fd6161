// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples to the USB host of `kernel/sim/usb_sink`, if present.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use dmabuf_dio::CancelToken;
use dmabuf_dio_stream::{BlockRing, Function, Sink as _, Stream, UsbSink};

use crate::devices::{Devices, once_running, run, skip};

const CONTROLLER: &str = "/sys/class/udc/usb_sink";
const HOST: &str = "/sys/bus/platform/devices/usb_sink";

/// A gadget with a user-space function.
struct Gadget {
    folder: PathBuf,
    mount: tempfile::TempDir,
}

impl Gadget {
    fn make() -> Option<Self> {
        if !Path::new(CONTROLLER).exists() {
            skip("usb", "no simulated USB device controller");
            return None;
        }
        let folder = PathBuf::from("/sys/kernel/config/usb_gadget/dmabuf-dio");
        let write = |name: &str, value: &str| fs::write(folder.join(name), value).expect(name);
        let make = |name: &str| fs::create_dir(folder.join(name)).expect(name);
        make("");
        write("idVendor", "0x1d6b");
        write("idProduct", "0x0104");
        make("functions/ffs.samples");
        make("configs/c.1");
        let function = folder.join("functions/ffs.samples");
        symlink(function, folder.join("configs/c.1/ffs.samples")).expect("linked");
        let mount = tempfile::tempdir().expect("a folder");
        let mounted = Command::new("mount")
            .args(["-t", "functionfs", "samples"])
            .arg(mount.path())
            .status()
            .expect("mount");
        assert!(mounted.success());
        Some(Self { folder, mount })
    }

    fn bind(&self, controller: &str) {
        fs::write(self.folder.join("UDC"), controller).expect("bound");
    }
}

impl Drop for Gadget {
    fn drop(&mut self) {
        let _ = fs::write(self.folder.join("UDC"), "\n");
        let _ = Command::new("umount").arg(self.mount.path()).status();
        let _ = fs::remove_file(self.folder.join("configs/c.1/ffs.samples"));
        for name in ["configs/c.1", "functions/ffs.samples", ""] {
            let _ = fs::remove_dir(self.folder.join(name));
        }
    }
}

fn host(attribute: &str) -> u64 {
    let text = fs::read_to_string(format!("{HOST}/{attribute}")).expect(attribute);
    text.trim().parse().expect("a number")
}

#[test]
fn samples_arrive_at_a_usb_host() {
    let Some(devices) = Devices::get() else { return };
    let Some(gadget) = Gadget::make() else { return };
    for (count, size, limit) in
        [(2, 16 << 10, 1 << 20), (4, 1 << 20, 64 << 20), (3, 4096 + 24, 1_000_000)]
    {
        let mut function = Function::new(gadget.mount.path()).expect("a function");
        let again = Function::new(gadget.mount.path()).expect_err("there is one");
        assert_eq!(again.errno(), Some(dmabuf_dio::Errno::BUSY), "{again}");
        gadget.bind("usb_sink");
        assert!(function.wait(&CancelToken::new()).expect("a host"));
        let mut sink = UsbSink::open(function.endpoint()).expect("an endpoint");
        let summary = run(devices.source(), &mut sink, (count, size), limit);
        assert_eq!((summary.bytes, summary.gaps.len()), (limit / 8 * 8, 0), "{summary:?}");
        assert_eq!((host("bytes"), host("wrong_frames")), (summary.bytes, 0));
        gadget.bind("\n");
    }
}

#[test]
fn disconnected_usb_host_ends_the_stream() {
    let Some(devices) = Devices::get() else { return };
    let Some(gadget) = Gadget::make() else { return };
    let mut function = Function::new(gadget.mount.path()).expect("a function");
    gadget.bind("usb_sink");
    assert!(function.wait(&CancelToken::new()).expect("a host"));
    let mut source = devices.source();
    let mut sink = UsbSink::open(function.endpoint()).expect("an endpoint");
    let ring = BlockRing::new(4, 64 << 10).expect("blocks");
    let stream = Stream::new(&mut source, &mut sink, ring);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            once_running(&devices.adc, Duration::from_millis(300));
            fs::write(format!("{HOST}/plugged"), "0").expect("unplugged");
        });
        let ended = stream.run().expect_err("nobody is there");
        let errno = ended.error.errno().map(dmabuf_dio::Errno::raw);
        let gone = [libc::ESHUTDOWN, libc::ENODEV, libc::ECONNRESET];
        assert!(errno.is_some_and(|errno| gone.contains(&errno)), "{ended}");
        assert!(ended.summary.bytes > 0);
    });
    // The host comes back, and streaming can start again.
    fs::write(format!("{HOST}/plugged"), "1").expect("plugged");
    assert!(function.wait(&CancelToken::new()).expect("a host"));
    drop((source, sink));
    let mut sink = UsbSink::open(function.endpoint()).expect("an endpoint");
    let summary = run(devices.source(), &mut sink, (4, 64 << 10), 1 << 20);
    assert_eq!(summary.bytes, 1 << 20);
    // Without a gadget there is no host, whatever the controller supports.
    drop(sink);
    gadget.bind("\n");
    let mut sink = UsbSink::open(function.endpoint()).expect("an endpoint");
    let ring = Arc::new(BlockRing::new(4, 64 << 10).expect("blocks"));
    let error = sink.attach(&ring, None).expect_err("nobody is there");
    assert!(error.hint().to_string().contains("no host"), "{error}: {}", error.hint());
}
