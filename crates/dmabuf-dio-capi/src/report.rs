// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports of what a transfer did.

use std::ffi::{CString, c_char, c_int};
use std::mem::size_of;

use dmabuf_dio::gather::GatherReport;
use serde::Serialize;

use crate::failure::{Failure, Outcome, guard};
use crate::names;
use crate::pointers::{c_string, exclusive, free, shared};
use crate::sized::{self, Grows};

/// A number of `struct dmabuf_dio_report_fields` that is unknown.
pub const DMABUF_DIO_UNKNOWN: u64 = u64::MAX;

/// The way in which data was transferred, and the cost. Several threads may read it at the same
/// time.
#[derive(Debug)]
pub struct Report {
    fields: ReportFields,
    line: CString,
    json: CString,
}

/// The fields of a report. Storage and CPU time are counted for the whole process and the page cache
/// for the whole file, including concurrent activity of other threads and processes. Can grow: see
/// `size`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReportFields {
    /// In: `sizeof(struct dmabuf_dio_report_fields)`. Additional fields of a larger structure, up to 4096
    /// bytes, are set to 0.
    pub size: usize,
    /// The backend that moved the data: `DMABUF_DIO_BACKEND_*`; 0 for one without a number.
    pub backend: u32,
    /// Kind of the buffer: `DMABUF_DIO_KIND_*`.
    pub kind: u32,
    /// How the data was transferred: `DMABUF_DIO_MODE_*`.
    pub mode: u32,
    /// Number of physically contiguous segments of the buffer; 0 if the backend does not report it.
    pub segments: u32,
    /// Bytes moved.
    pub bytes: u64,
    /// Bytes that the CPU copied.
    pub copied_bytes: u64,
    /// Bytes read from or written to storage, or `DMABUF_DIO_UNKNOWN`.
    pub storage_bytes: u64,
    /// Growth of the page cache of the file's range in bytes, negative if it shrank; `INT64_MIN` if
    /// unknown.
    pub page_cache_grown: i64,
    /// Page size of most of the buffer's memory in bytes, or `DMABUF_DIO_UNKNOWN`.
    pub page_size: u64,
    /// Bytes of the buffer's memory in huge pages, or `DMABUF_DIO_UNKNOWN`.
    pub huge_bytes: u64,
    /// Elapsed time in seconds, including the allocation of the buffer.
    pub seconds: f64,
    /// CPU time of the process in seconds, including the kernel's work on its behalf.
    pub cpu_seconds: f64,
    /// The NUMA nodes that the memory was to be on: `DMABUF_DIO_NUMA_*`; 0: left open.
    pub numa: u32,
    /// With `DMABUF_DIO_NUMA_NODE`: the number of the node.
    pub numa_node: u32,
    /// How many nodes the memory is on, as the kernel says after the load; 0: it does not, as for a dma-buf of a heap
    /// or of the module, or `numa` was left open. `dmabuf_dio_report_json` has the bytes on each.
    pub nodes: u32,
    /// Whether the memory stays in memory, as `DMABUF_DIO_LOCK` asked for: 1 or 0.
    pub locked: u32,
}

// SAFETY: numbers in the order of C, without padding.
unsafe impl Grows for ReportFields {
    const NAME: &'static str = "dmabuf_dio_report_fields";
    const FIRST: usize = 88;
}

const _: () = assert!(size_of::<ReportFields>() >= ReportFields::FIRST);

impl Report {
    pub(crate) fn of(report: &dmabuf_dio::Report) -> Outcome<Self> {
        Self::with(report, report)
    }

    pub(crate) fn of_gather(report: &GatherReport) -> Outcome<Self> {
        Self::with(&report.transfer, report)
    }

    fn with(report: &dmabuf_dio::Report, whole: &impl Serialize) -> Outcome<Self> {
        let fields = ReportFields {
            size: size_of::<ReportFields>(),
            backend: names::number_of(report.backend),
            kind: report.buffer.map_or(0, names::kind),
            mode: names::mode(report.mode),
            segments: report.segments.unwrap_or(0),
            bytes: report.bytes,
            copied_bytes: report.copied_bytes,
            storage_bytes: report.storage_bytes.unwrap_or(DMABUF_DIO_UNKNOWN),
            page_cache_grown: report.page_cache_grown.unwrap_or(i64::MIN),
            page_size: report.page_size.unwrap_or(DMABUF_DIO_UNKNOWN),
            huge_bytes: report.huge_bytes.unwrap_or(DMABUF_DIO_UNKNOWN),
            seconds: report.seconds,
            cpu_seconds: report.cpu_seconds,
            numa: names::number_of_numa(report.numa),
            numa_node: names::node_of(report.numa),
            nodes: report.nodes.as_ref().map_or(0, |nodes| nodes.len() as u32),
            locked: report.locked.into(),
        };
        Ok(Self { fields, line: c_string(report.to_string()), json: json(whole)? })
    }
}

pub(crate) fn json(what: &impl Serialize) -> Outcome<CString> {
    let text = serde_json::to_string(what);
    text.map(c_string).map_err(|error| Failure::new(libc::EIO, error.to_string(), ""))
}

/// Before a call that may fail: no report.
///
/// # Safety
///
/// Null, or an address for a pointer.
pub(crate) unsafe fn clear(out: *mut *mut Report) {
    // SAFETY: as the caller promises.
    if let Some(out) = unsafe { out.as_mut() } {
        *out = std::ptr::null_mut();
    }
}

/// Gives the report to a caller who wants one.
///
/// # Safety
///
/// Null, or an address for a pointer.
pub(crate) unsafe fn give(
    out: *mut *mut Report,
    make: impl FnOnce() -> Outcome<Report>,
) -> Outcome<()> {
    // SAFETY: as the caller promises.
    if let Some(out) = unsafe { out.as_mut() } {
        *out = crate::pointers::give(make()?);
    }
    Ok(())
}

/// Fills in the fields of a report, as many as the caller's structure has.
///
/// Returns 0; `-EINVAL` if `size` is too small; `-E2BIG` if it is more than 4096.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_report_fields(
    report: *const Report,
    fields: *mut ReportFields,
) -> c_int {
    guard(|| {
        // SAFETY: as the header demands.
        unsafe {
            let report = shared(report, "report")?;
            exclusive(fields.cast::<usize>(), "fields")?;
            sized::write(fields, &report.fields)?;
        }
        Ok(0)
    })
}

/// Returns the report as one line of text: bytes, backend, mode, time, rate. The string belongs to the
/// report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_report_line(report: *const Report) -> *const c_char {
    // SAFETY: a report, as the header demands.
    unsafe { report.as_ref() }.map_or(std::ptr::null(), |report| report.line.as_ptr())
}

/// Returns the whole report as a JSON object, with the evidence for the mode, notes, and why preferred
/// backends were not available. The string belongs to the report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_report_json(report: *const Report) -> *const c_char {
    // SAFETY: a report, as the header demands.
    unsafe { report.as_ref() }.map_or(std::ptr::null(), |report| report.json.as_ptr())
}

/// Frees a report and its strings. Does nothing for a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_report_free(report: *mut Report) {
    // SAFETY: the handle is not used any more, as the header demands.
    unsafe { free(report) };
}
