// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices that have a buffer and are not coherent: `kernel/sim/shadow_importer`. Each works on a
//! copy, which only synchronisation brings up to date.

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;

use dmabuf_dio_sys::{Errno, dio};

use crate::pages::{PAGE, Page, bytes, difference, stamp, store as store_bytes};
use crate::world::{Buffer, DEVICES, Device, Kind, Outcome, World};

const NODE: &str = "/dev/shadow_importer";
/// `_IO(0xed, 0)`
const IMPORT: u64 = 0xed << 8;
/// `_IO(0xed, 3)`
const DROP: u64 = IMPORT | 3;

fn import_into(importer: &File, buffer: &Buffer) -> Result<bool, String> {
    let Some(fd) = &buffer.fd else { return Ok(false) };
    // SAFETY: the calls take a descriptor, or nothing.
    let ret = unsafe { libc::ioctl(importer.as_raw_fd(), IMPORT, fd.as_raw_fd()) };
    if ret < 0 {
        return Err(format!("the device's import: {}", std::io::Error::last_os_error()));
    }
    Ok(true)
}

fn unmap(importer: &File) {
    // SAFETY: the call takes no argument.
    unsafe { libc::ioctl(importer.as_raw_fd(), DROP) };
}

/// Attaches a device. Without loans nobody synchronises a udmabuf: then transfers must be refused
/// while the device has it, which is tried here.
pub(crate) fn import(world: &mut World<'_>, place: u64, buf: u64) -> Outcome {
    let Ok(importer) = File::options().read(true).write(true).open(NODE) else { return Ok(()) };
    let Some(Some(buffer)) = world.buffers.get(buf as usize) else { return Ok(()) };
    // `kernel/sim/odd_exporter` gives its buffers to no device.
    let odd = matches!(buffer.kind, Kind::Odd { .. });
    if odd || buffer.imported || buffer.map.is_none() || place as usize >= DEVICES {
        return Ok(());
    }
    if matches!(buffer.kind, Kind::Udmabuf { .. }) && !world.machine.series {
        if buffer.context.is_some() && import_into(&importer, buffer)? {
            world.machine.did("device on a udmabuf");
            let tried = refused(world, buf);
            unmap(&importer);
            tried?;
            return world.check_buffers();
        }
        return Ok(());
    }
    drop_device(world, place)?;
    let Some(Some(buffer)) = world.buffers.get_mut(buf as usize) else { return Ok(()) };
    if import_into(&importer, buffer)? {
        buffer.imported = true;
        let pages = buffer.pages.clone();
        world.devices[place as usize] = Some(Device { importer, pages });
        world.machine.did("device on a buffer");
    }
    Ok(())
}

/// READ and WRITE of a page with the first file that has one.
fn refused(world: &World<'_>, buf: u64) -> Outcome {
    let Some((_, context)) = world.attached(buf) else { return Ok(()) };
    let Some(file) = world.files.iter().flatten().find(|file| file.bytes.len() >= PAGE) else {
        return Ok(());
    };
    for call in [dio::read, dio::write] {
        let file_fd = file.fd(0).as_raw_fd();
        let mut rw = dio::ReadWrite { file_fd, length: PAGE as u64, ..dio::ReadWrite::default() };
        let result = call(context.as_fd(), &mut rw);
        if result != Err(Errno::BUSY) || rw.refusal != dio::REFUSED_UNSYNCED || rw.done != 0 {
            return Err(format!(
                "{result:?}, {} bytes done, beside a device that nobody synchronises",
                rw.done
            ));
        }
    }
    Ok(())
}

/// Of the buffer, the part that the device has in one piece.
fn part(device: &Device, seen: usize) -> &[Page] {
    &device.pages[..(seen / PAGE).min(device.pages.len())]
}

/// What the device sees is what everybody has stored.
pub(crate) fn read(world: &mut World<'_>, place: u64) -> Outcome {
    let Some(Some(device)) = world.devices.get(place as usize) else { return Ok(()) };
    let mut seen = vec![0; device.pages.len() * PAGE];
    let count = device.importer.read_at(&mut seen, 0).map_err(|error| format!("read: {error}"))?;
    let pages = part(device, count);
    world.machine.did("read by a device");
    let length = pages.len() * PAGE;
    difference("what the device sees", &seen[..length], &bytes(pages, 0..length))
}

/// The device stores; whoever begins CPU access next sees it.
pub(crate) fn write(world: &mut World<'_>, place: u64, at: u64, length: u64, number: u64) {
    let Some(Some(device)) = world.devices.get(place as usize) else { return };
    let end = device.pages.len() * PAGE;
    let start = (at as usize).min(end);
    let bytes = stamp(number, at, (length as usize).min(end - start));
    let count = device.importer.write_at(&bytes, start as u64).unwrap_or(0);
    store_bytes(&device.pages, start, &bytes[..count]);
    world.machine.did("write by a device");
}

pub(crate) fn drop_device(world: &mut World<'_>, place: u64) -> Outcome {
    let Some(device) = world.devices.get_mut(place as usize).and_then(Option::take) else {
        return Ok(());
    };
    unmap(&device.importer);
    for buffer in world.buffers.iter_mut().flatten() {
        if Rc::ptr_eq(&buffer.pages[0], &device.pages[0]) {
            buffer.imported = false;
        }
    }
    world.check_buffers()
}
