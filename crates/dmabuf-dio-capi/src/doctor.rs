// SPDX-License-Identifier: MIT OR Apache-2.0
//! The features of a system.

use std::ffi::{CString, c_char, c_int};

use dmabuf_dio::probe::{self, FileFacts, System};
use serde::Serialize;

use crate::failure::guard;
use crate::pointers::{self, exclusive};
use crate::report;

/// The JSON that `dmabuf-dio doctor --json` prints.
#[derive(Debug, Serialize)]
struct Found<'a> {
    schema: u32,
    #[serde(flatten)]
    system: &'a System,
    file: Option<&'a FileFacts>,
}

/// Tests what this kernel and its devices support and, unless `path` is a null pointer, what the
/// file or block device there supports. Stores the result as a JSON object in `json`, to be freed
/// with `dmabuf_dio_string_free`: what works, what does not, and the remedies. `dmabuf-dio doctor
/// --json` prints the same. Blocks for some milliseconds and changes nothing.
///
/// Returns 0; `-ENOENT`, `-EACCES`, `-EINVAL` and others for the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_doctor(path: *const c_char, json: *mut *mut c_char) -> c_int {
    guard(|| {
        // SAFETY: an address for a pointer, as the header demands.
        let json = unsafe { exclusive(json, "json") }?;
        *json = std::ptr::null_mut();
        let file = if path.is_null() {
            None
        } else {
            // SAFETY: a string, as the header demands.
            Some(probe::file(unsafe { pointers::path(path, "path") }?)?)
        };
        let found = Found { schema: 1, system: &probe::system(), file: file.as_ref() };
        *json = report::json(&found)?.into_raw();
        Ok(0)
    })
}

/// Frees a string that the library has returned for the caller to free. Does nothing for a null
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_string_free(string: *mut c_char) {
    if !string.is_null() {
        // SAFETY: it comes from `CString::into_raw`, as the header demands.
        drop(unsafe { CString::from_raw(string) });
    }
}
