// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tensors of models, one by one.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

use dmabuf_dio_keep::resolve;
use dmabuf_dio_tensors::{ByteOrder, Model, Reader};

use crate::failure::{Failure, Outcome, guard};
use crate::pointers::path;

/// A tensor of a model, in memory of its own. It and what it points to belong to the library, which frees
/// them when the callback returns.
#[repr(C)]
#[derive(Debug)]
pub struct Tensor {
    /// The name: `name_length` bytes, which may have zeros among them, and a zero.
    pub name: *const c_char,
    /// Length of the name in bytes.
    pub name_length: usize,
    /// The type of the elements as the format spells it, such as "BF16" or "Q4_K".
    pub dtype: *const c_char,
    /// Elements in each dimension, the outermost first.
    pub shape: *const u64,
    /// How many dimensions there are; 0 for a scalar.
    pub dimensions: usize,
    /// The bytes, as in the file; they may be changed. A null pointer if there are none. Aligned to the type
    /// where the file aligns it.
    pub bytes: *mut c_void,
    /// Length in bytes.
    pub length: u64,
    /// 1 if numbers are big-endian, as in some GGUF files, else 0.
    pub big_endian: c_int,
}

/// Receives a tensor, and the pointer that was passed for it. Return 0 to continue; any other number ends
/// the call with `-ECANCELED`.
///
/// Called in the thread of the call. The function must return normally, not by an exception or longjmp(3).
pub type TensorCallback =
    Option<unsafe extern "C" fn(tensor: *const Tensor, data: *mut c_void) -> c_int>;

/// Reads the tensors of the model at `path`: a safetensors or GGUF file, an index, or a folder with a model.
/// Passes each to `each`, in the order of the files. Those that follow are read meanwhile, by direct I/O.
///
/// `names` are `count` names of the tensors to read, or a null pointer for all. `window` is how many bytes
/// are in memory at most before they are passed on, or one tensor; 0: chosen from the speed of the disk
/// and the free memory. So the model may be larger than the memory.
///
/// Returns 0. On error, tensors that were passed on before it were complete: `-ENOENT`, `-EACCES` and
/// others for the files, `-ENOENT` also for a name that the model does not have; `-EINVAL` for files that
/// are no model, or malformed; otherwise as for `dmabuf_dio_load`; `-ECANCELED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmabuf_dio_each_tensor(
    path: *const c_char,
    names: *const *const c_char,
    count: usize,
    window: u64,
    each: TensorCallback,
    data: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: as the header demands.
        let path = unsafe { self::path(path, "path") }?;
        let each = each.ok_or_else(|| Failure::null("each"))?;
        let model = Arc::new(Model::open(resolve(path)?)?);
        // SAFETY: as the header demands.
        let numbers = unsafe { numbers(&model, names, count) }?;
        let window = (window != 0).then_some(window);
        let reader = Reader::with(model, window, &dmabuf_dio::Options::default());
        for item in reader.iter_of(numbers) {
            let (tensor, mut memory) = item?;
            let (name, dtype) = (terminated(&tensor.name), terminated(tensor.dtype.name()));
            let bytes = memory.as_mut().and_then(dmabuf_dio::Buffer::bytes_mut);
            let passed = Tensor {
                name: name.as_ptr().cast(),
                name_length: tensor.name.len(),
                dtype: dtype.as_ptr().cast(),
                shape: tensor.shape.as_ptr(),
                dimensions: tensor.shape.len(),
                bytes: bytes.map_or(std::ptr::null_mut(), |bytes| bytes.as_mut_ptr().cast()),
                length: tensor.len(),
                big_endian: c_int::from(tensor.byte_order == ByteOrder::Big),
            };
            // SAFETY: a function of the caller; what it gets lives until it returns.
            if unsafe { each(&raw const passed, data) } != 0 {
                let message = format!("the callback ended the call at {:?}", tensor.name);
                return Err(Failure::new(libc::ECANCELED, message, "start again"));
            }
        }
        Ok(0)
    })
}

/// The places of the tensors with these names, in the order of the files.
///
/// # Safety
///
/// `names` is null, or has `count` strings.
unsafe fn numbers(model: &Model, names: *const *const c_char, count: usize) -> Outcome<Vec<usize>> {
    if names.is_null() {
        return Ok((0..model.tensors().len()).collect());
    }
    let number = |place| {
        // SAFETY: as the caller promises.
        let name = unsafe { *names.add(place) };
        if name.is_null() {
            return Err(Failure::null("a name"));
        }
        // SAFETY: as the caller promises.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let missing = || dmabuf_dio_tensors::Error::NoTensor { name: name.clone().into_owned() };
        Ok(model.index_of(&name).ok_or_else(missing)?)
    };
    let mut numbers = (0..count).map(number).collect::<Outcome<Vec<_>>>()?;
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

/// A text for C, with a zero at its end.
fn terminated(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}
