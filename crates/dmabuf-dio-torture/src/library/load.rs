// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads into new buffers of each kind, and into buffers that are there.

use dmabuf_dio::{Backend, Buffer, Error, Kind, Loader};

use super::held::Held;
use super::place;
use super::settings::{Settings, Told};
use super::{during, is_of_the_disk};
use crate::file::Known;
use crate::judge::Span;
use crate::pages::{PAGE, difference};
use crate::world::{BUFFERS, Outcome, World};

/// `direct`: 0 through the page cache, 1 the library opens the file with `O_DIRECT`, 2 it is open with it.
pub(crate) fn loader<'f>(file: &'f Known, span: Span, settings: &Settings) -> Loader<'f> {
    let loader = Loader::from_fd(file.fd(u64::from(span.direct == 2)));
    loader.options(settings.options()).offset(span.at)
}

/// Must a backend that was asked for be there?
fn is_there(world: &World<'_>, backend: Backend, kind: Kind) -> bool {
    match backend {
        Backend::Module => matches!(kind, Kind::DmaBuf | Kind::Any),
        Backend::Memfd => matches!(kind, Kind::Memfd | Kind::File),
        Backend::Udmabuf => kind == Kind::DmaBuf && world.machine.udmabuf.is_some(),
        _ => false,
    }
}

/// The kind that comes, whatever was asked for.
fn comes(asked: Kind, backend: Option<Backend>, came: Kind) -> bool {
    match asked {
        Kind::Any if backend.is_none() => came == Kind::DmaBuf,
        Kind::Any => matches!(came, Kind::DmaBuf | Kind::Memfd),
        kind => came == kind,
    }
}

/// Loads into a new buffer. A length of 0 means up to the end of the file.
pub(crate) fn load(
    world: &mut World<'_>,
    at: u64,
    kind: u64,
    span: Span,
    settings: &Settings,
) -> Outcome {
    let Some(kind) = Kind::ALL.get(kind as usize).copied() else { return Ok(()) };
    let armed = std::mem::take(&mut world.armed);
    let Some(file) = world.file(span.file) else { return Ok(()) };
    let end = file.bytes.len() as u64;
    let length = if span.length == 0 { end.saturating_sub(span.at) } else { span.length };
    let ends = length == 0 || span.at + length > end;
    let told = Told::new(settings.cancel);
    let mut loader = loader(file, span, settings).kind(kind).cancel(told.token.clone());
    loader = loader.progress(told.callback());
    if span.length > 0 {
        loader = loader.length(span.length);
    }
    let result = during(world, armed, || loader.load());
    drop(loader);
    told.check(result.is_ok(), length)?;
    let backend = settings.backend();
    match result {
        Ok(_) if ends => Err("a load beyond the end of the file succeeds".into()),
        Ok(buffer) => {
            world.machine.did(match buffer.kind() {
                Kind::DmaBuf => "load into a dma-buf",
                Kind::Memfd => "load into a memfd",
                Kind::File => "load into a file",
                Kind::Private => "load into private memory",
                Kind::Any => "load",
            });
            if !comes(kind, backend, buffer.kind()) {
                return Err(format!("a {} in place of a {kind}", buffer.kind()));
            }
            let held = look(world, buffer, Span { length, ..span }, backend)?;
            let number = (at as usize) % world.held.len();
            world.held[number] = Some(held);
            Ok(())
        }
        Err(Error::Cancelled { done, .. }) if settings.cancel > 0 && done <= length => {
            world.machine.did("load cancelled");
            Ok(())
        }
        Err(Error::ShortFile { .. } | Error::EmptyFile { .. } | Error::EmptyRange { .. })
            if ends =>
        {
            Ok(())
        }
        Err(Error::Unavailable { .. })
            if backend.is_some_and(|backend| !is_there(world, backend, kind)) =>
        {
            world.machine.did("backend that is not there");
            Ok(())
        }
        Err(Error::Transfer { errno, .. })
            if is_of_the_disk(world, Span { length, ..span }, errno) =>
        {
            world.machine.did("device error in the library");
            Ok(())
        }
        Err(error) => Err(format!("load: {error}")),
    }
}

/// Compares a new buffer: what it says of itself, and each byte.
fn look(
    world: &World<'_>,
    buffer: Buffer,
    span: Span,
    backend: Option<Backend>,
) -> Result<Held, String> {
    let page = PAGE as u64;
    let start = if buffer.kind() == Kind::File { 0 } else { span.at % page };
    let range = start..start + span.length;
    if buffer.range() != range {
        return Err(format!("the content is at {:?} in place of {range:?}", buffer.range()));
    }
    let right = match buffer.kind() {
        Kind::File => buffer.len() == range.end,
        // One of reserved huge pages is longer.
        Kind::Memfd => buffer.len() == range.end || buffer.len() % (2 << 20) == 0,
        _ => buffer.len() == range.end.next_multiple_of(page),
    };
    if !right {
        return Err(format!("a {} of {} bytes for {range:?}", buffer.kind(), buffer.len()));
    }
    let report = buffer.report().ok_or("there is no report")?;
    if report.bytes != span.length || backend.is_some() && report.backend != backend {
        return Err(format!("a report of {} bytes by {:?}", report.bytes, report.backend));
    }
    let mut bytes = vec![0; buffer.len() as usize];
    let source = world.file(span.file).map_or(&[][..], |file| file.range(span.at, span.length));
    bytes[range.start as usize..range.end as usize].copy_from_slice(source);
    let held = Held { buffer, bytes };
    held.check()?;
    if let (Kind::File, Ok(dma_buf)) = (held.buffer.kind(), held.buffer.dma_buf()) {
        let failed = |error| format!("the file's dma-buf: {error}");
        let dma_buf = Buffer::from(dma_buf.try_clone().map_err(failed)?);
        let seen = dma_buf.map().and_then(|view| view.to_vec()).map_err(failed)?;
        let mut padded = held.bytes.clone();
        padded.resize(padded.len().next_multiple_of(PAGE), 0);
        difference("the file's dma-buf", &seen, &padded)?;
    }
    Ok(held)
}

/// Loads into a range of a buffer that is there.
pub(crate) fn load_into(
    world: &mut World<'_>,
    at: u64,
    span: Span,
    settings: &Settings,
) -> Outcome {
    let armed = std::mem::take(&mut world.armed);
    let backend = settings.backend();
    if world.file(span.file).is_none() || !place::keeps(world, at, backend) {
        return Ok(());
    }
    let Some(buffer) = place::open(world, at)? else { return Ok(()) };
    let Some(file) = world.file(span.file) else { return Ok(()) };
    let source = file.range(span.at, span.length).to_vec();
    let ends = (source.len() as u64) < span.length;
    let beyond = span.offset + span.length > buffer.len();
    let told = Told::new(settings.cancel);
    let loader = loader(file, span, settings).length(span.length).cancel(told.token.clone());
    let loader = loader.progress(told.callback());
    let result = during(world, armed, || loader.load_into(&buffer, span.offset));
    drop(loader);
    told.check(result.is_ok(), span.length)?;
    let refused = ends || beyond || !buffer.is_writable();
    // Without an error: how much was moved. A refusal moves nothing.
    let moved = match result {
        Ok(_) if refused => return Err("a load that has to be refused succeeds".into()),
        Ok(report) if report.bytes != span.length => {
            return Err(format!("a report of {} bytes in place of {}", report.bytes, span.length));
        }
        Ok(_) => {
            world.machine.did("load into a buffer");
            Some(span.length)
        }
        Err(Error::ShortFile { .. } | Error::EmptyFile { .. }) if ends => None,
        Err(Error::RangeBeyondBuffer { .. }) if beyond => None,
        Err(Error::ReadOnlyBuffer) if !buffer.is_writable() => None,
        Err(Error::Cancelled { done, .. }) if settings.cancel > 0 => {
            world.machine.did("load cancelled");
            Some(done)
        }
        Err(Error::Unavailable { .. }) if may_refuse(at, &buffer, backend) => {
            world.machine.did("backend that is not there");
            None
        }
        Err(Error::Transfer { errno, done, .. }) if is_of_the_disk(world, span, errno) => {
            world.machine.did("device error in the library");
            Some(done)
        }
        Err(error) => return Err(format!("load into a {}: {error}", buffer.kind())),
    };
    let (offset, length) = (span.offset as usize, span.length as usize);
    match moved {
        Some(done) => place::settle(world, at, offset, length, &source, done as usize),
        None => place::settle(world, at, 0, 0, &[], 0),
    }
}

/// May a backend not work with a buffer? The module works with all that are attached, `pread()` with all.
pub(crate) fn may_refuse(place: u64, buffer: &Buffer, backend: Option<Backend>) -> bool {
    match backend {
        None | Some(Backend::Buffered) => false,
        Some(Backend::Module) => place >= BUFFERS as u64 || buffer.kind() != Kind::DmaBuf,
        Some(_) => true,
    }
}
