// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads contents that are no files into buffers.
//!
//! The content writes to mapped memory while a second thread allocates the pages, as loads of files into mapped
//! memory do. There is no backend: nothing moves between a file and a buffer.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;

use crate::backend::{Backend, Refusal, memfd, udmabuf};
use crate::buffer::Buffer;
use crate::buffer::cpu_access::CpuAccess;
use crate::buffer::shared::Shared;
use crate::content::{self, Content, Fetched, Fill};
use crate::control::{Control, Watch};
use crate::direction::Direction;
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::memory::Mapping;
use crate::memory::available::{self, Charged};
use crate::memory::huge;
use crate::memory::page::huge_page;
use crate::memory::place::on_nodes;
use crate::memory::sizes::PageSizes;
use crate::options::Options;
use crate::refusal::attempt::Attempt;
use crate::report::measure::Before;
use crate::report::{Mode, Report};
use crate::settle::settle;
use crate::threads;
use crate::transfer::layout::Layout;
use crate::transfer::supply::{StopOnDrop, Supply};

/// Memory that is allocated ahead at a time, in bytes.
const STEP: u64 = 8 << 20;

/// A range of a content, and how it is to be loaded.
pub(crate) struct Fetch<'a> {
    pub(crate) content: &'a dyn Content,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) options: &'a Options,
    pub(crate) control: &'a Control,
}

/// A new buffer, and why it is of no better kind.
struct Made {
    buffer: Buffer,
    refusals: Vec<Refusal>,
}

impl Fetch<'_> {
    /// Loads into a new buffer.
    pub(crate) fn load(&self) -> Result<Buffer> {
        if let Some(backend) = self.options.backend {
            return Err(content::no_backend(backend));
        }
        if self.length == 0 {
            let (path, direction) = (self.name().to_owned(), Direction::Load);
            return Err(Error::EmptyRange { path, direction });
        }
        content::check(self.content, self.offset, self.length)?;
        let before = Before::without_cache();
        let layout = match self.options.kind {
            Kind::File => Layout::new(0, self.length, 1)?,
            _ => Layout::new(self.offset, self.length, 1)?,
        };
        let mut report = self.report();
        let made = match self.options.kind {
            Kind::Private => self.private(layout, &mut report)?,
            Kind::Memfd | Kind::File => self.memfd(layout, &mut report)?,
            Kind::DmaBuf | Kind::Any => self.dma_buf(layout, &mut report)?,
        };
        report.cost_of_no_file(&before);
        report.refusals = made.refusals;
        report.buffer = Some(made.buffer.kind());
        let end = layout.data_offset + self.length;
        Ok(made.buffer.with_range(layout.data_offset..end).with_report(report))
    }

    /// Loads into a range of an existing buffer.
    pub(crate) fn load_into(&self, buf: &Shared, buf_offset: u64) -> Result<Report> {
        if let Some(backend) = self.options.backend {
            return Err(content::no_backend(backend));
        }
        content::check(self.content, self.offset, self.length)?;
        buf.check_range(buf_offset, self.length)?;
        if !buf.is_writable() {
            return Err(Error::ReadOnlyBuffer);
        }
        let before = Before::without_cache();
        let mut report = self.report();
        report.buffer = Some(buf.kind());
        if self.length > 0 {
            let mapping = buf.mapping(true)?;
            let access = CpuAccess::writing(buf)?;
            report.fetched = Some(self.fill(&mapping, buf_offset)?);
            access.end()?;
        }
        report.cost_of_no_file(&before);
        Ok(report)
    }

    /// Loads over the content of private memory that is long enough. Returns where the content starts.
    pub(crate) fn load_over(&self, mapping: &Mapping) -> Result<(u64, Report)> {
        if let Some(backend) = self.options.backend {
            return Err(content::no_backend(backend));
        }
        content::check(self.content, self.offset, self.length)?;
        let layout = Layout::new(self.offset, self.length, 1)?;
        crate::buffer::shared::check_range(mapping.len(), 0, layout.buffer)?;
        let before = Before::without_cache();
        let mut report = self.report();
        report.buffer = Some(Kind::Private);
        report.fetched = Some(self.fill(mapping, layout.data_offset)?);
        report.cost_of_no_file(&before);
        Ok((layout.data_offset, report))
    }

    fn private(&self, layout: Layout, report: &mut Report) -> Result<Made> {
        let mapping = Arc::new(self.options.private_memory(layout.buffer, Mapping::zeroed)?);
        report.fetched = Some(self.fill(&mapping, layout.data_offset)?);
        if self.options.lock {
            mapping.lock()?;
            report.locked = true;
        }
        self.note_pages(report, &mapping, || huge::private_huge_remedy().into());
        Ok(Made { buffer: Buffer::private(mapping), refusals: Vec::new() })
    }

    /// A memfd that ends where the content does.
    fn memfd(&self, layout: Layout, report: &mut Report) -> Result<Made> {
        if self.options.kind == Kind::File && !Path::new("/proc/self/fd").exists() {
            return Err(Error::NoProc);
        }
        let buf = self.fresh(layout.data_offset + self.length, layout, report)?;
        let buffer = settle(buf, self.options, report)?;
        Ok(Made { buffer, refusals: Vec::new() })
    }

    /// A dma-buf over a memfd or of the system heap; where neither can be had, a memfd if that is allowed.
    fn dma_buf(&self, layout: Layout, report: &mut Report) -> Result<Made> {
        let mut refusals = Vec::new();
        match udmabuf::ready(layout.buffer) {
            Ok(device) => {
                let memfd = self.fresh(layout.buffer, layout, report)?;
                // The content would have to be fetched again for a dma-buf of another kind.
                match udmabuf::make(device.as_fd(), &memfd) {
                    Ok(buf) => {
                        let buffer = settle(buf, self.options, report)?;
                        return Ok(Made { buffer, refusals });
                    }
                    Err(attempt) => refusals.push(attempt.into_refusal(Backend::Udmabuf)),
                }
                if self.options.kind == Kind::Any {
                    let buffer = settle(memfd, self.options, report)?;
                    return Ok(Made { buffer, refusals });
                }
            }
            Err(attempt) => {
                refusals.push(attempt.into_refusal(Backend::Udmabuf));
                match Shared::alloc(layout.buffer) {
                    Ok(buf) => {
                        let mapping = buf.mapping(true)?;
                        let access = CpuAccess::writing(&buf)?;
                        report.fetched = Some(self.fill(&mapping, layout.data_offset)?);
                        access.end()?;
                        let buffer = settle(buf, self.options, report)?;
                        return Ok(Made { buffer, refusals });
                    }
                    Err(error @ Error::NoMemory { .. }) => return Err(error),
                    Err(error) => refusals.push(Attempt::from(error).into_refusal(Backend::Heap)),
                }
                if self.options.kind == Kind::Any {
                    let made = self.memfd(layout, report)?;
                    return Ok(Made { refusals, ..made });
                }
            }
        }
        Err(Error::Unavailable { asked: None, kind: Some(Kind::DmaBuf), refusals })
    }

    /// A new memfd of `len` bytes with the content.
    fn fresh(&self, len: u64, layout: Layout, report: &mut Report) -> Result<Shared> {
        available::ensure(layout.buffer, Charged::Us)?;
        let place = self.options.place(layout.buffer)?;
        self.options.check_lock(layout.buffer)?;
        let (buf, mapping) = memfd::mapped(len, self.options.huge_pages, place.as_ref())?;
        report.fetched = Some(self.fill(&mapping, layout.data_offset)?);
        self.note_pages(report, &mapping, huge::shared_huge_remedy);
        Ok(buf)
    }

    /// Fetches into memory. The range is written from `start` on.
    fn fill(&self, mapping: &Mapping, start: u64) -> Result<Fetched> {
        let watch = Watch::start(self.control, self.length);
        let fill = Fill::new(mapping, start, self.name(), &watch);
        if self.length < huge_page() {
            return content::fill_all(self.content, self.offset, &fill);
        }
        let supply = Supply::default();
        std::thread::scope(|scope| {
            // Pages that are not there yet are allocated as they are written.
            threads::spawn(scope, || supply.run(mapping, start, start + self.length, STEP))?;
            let _stop = StopOnDrop(&supply);
            content::fill_all(self.content, self.offset, &fill)
        })
    }

    fn note_pages(&self, report: &mut Report, mapping: &Mapping, remedy: impl FnOnce() -> String) {
        if !self.options.reports_pages {
            return;
        }
        let pages = PageSizes::of(mapping);
        report.page_size = pages.map(|pages| pages.page_size);
        report.huge_bytes = pages.map(|pages| pages.huge_bytes);
        let asked = self.options.numa.is_some();
        report.nodes = asked.then(|| on_nodes(mapping, pages)).flatten();
        if self.options.huge_pages {
            report.notes.extend(huge::page_note(pages, mapping.len(), remedy));
        }
    }

    fn name(&self) -> &Path {
        self.content.name()
    }

    /// The report, before anything is measured.
    fn report(&self) -> Report {
        let evidence = "it is no file: neither storage nor the page cache was read for it";
        let mut report = Report::of_no_file(Direction::Load, Mode::Fetched, evidence, self.length);
        report.numa = self.options.numa;
        report.fetched = Some(Fetched::default());
        report
    }
}
