// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared helpers of the tests: writers of model files, and folders for them.
//!
//! `DMABUF_DIO_TEST_DIR` is the folder for test files; it should be on a file system with
//! `O_DIRECT`.

#![allow(dead_code)]

mod bytes;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmabuf_dio_tensors::{Dtype, Model};
use tempfile::TempDir;

pub(crate) use self::bytes::content;

/// A folder for one test.
pub(crate) fn folder() -> TempDir {
    let parent = std::env::var_os("DMABUF_DIO_TEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    std::fs::create_dir_all(&parent).expect("the folder of all tests");
    tempfile::Builder::new().prefix("dio-").tempdir_in(parent).expect("a folder for the test")
}

/// Whether the module is required, and with it dma-bufs.
pub(crate) fn needs_dma_bufs() -> bool {
    std::env::var("DMABUF_DIO_REQUIRE").is_ok_and(|all| all.contains("module"))
}

/// Writes a file and drops its page cache.
pub(crate) fn write(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).expect("create a test file");
    file.write_all(bytes).expect("write a test file");
    file.sync_all().expect("sync a test file");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("drop its cache");
}

/// A tensor to write, and its expected entry.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
}

impl Sample {
    pub(crate) fn new(name: &str, dtype: Dtype, shape: &[u64]) -> Self {
        let len = dtype.byte_len(shape).expect("whole blocks") as usize;
        let seed = name.bytes().fold(7, |sum: u64, byte| sum.wrapping_mul(31) + u64::from(byte));
        Self { name: name.into(), dtype, shape: shape.into(), bytes: content(len, seed) }
    }
}

/// All types of safetensors.
pub(crate) const SAFETENSORS: [(Dtype, safetensors::Dtype); 22] = {
    use safetensors::Dtype as Theirs;
    [
        (Dtype::Bool, Theirs::BOOL),
        (Dtype::F4, Theirs::F4),
        (Dtype::F6E2M3, Theirs::F6_E2M3),
        (Dtype::F6E3M2, Theirs::F6_E3M2),
        (Dtype::U8, Theirs::U8),
        (Dtype::I8, Theirs::I8),
        (Dtype::F8E5M2, Theirs::F8_E5M2),
        (Dtype::F8E4M3, Theirs::F8_E4M3),
        (Dtype::F8E8M0, Theirs::F8_E8M0),
        (Dtype::F8E4M3Fnuz, Theirs::F8_E4M3FNUZ),
        (Dtype::F8E5M2Fnuz, Theirs::F8_E5M2FNUZ),
        (Dtype::I16, Theirs::I16),
        (Dtype::U16, Theirs::U16),
        (Dtype::F16, Theirs::F16),
        (Dtype::Bf16, Theirs::BF16),
        (Dtype::I32, Theirs::I32),
        (Dtype::U32, Theirs::U32),
        (Dtype::F32, Theirs::F32),
        (Dtype::C64, Theirs::C64),
        (Dtype::F64, Theirs::F64),
        (Dtype::I64, Theirs::I64),
        (Dtype::U64, Theirs::U64),
    ]
};

/// A safetensors file, written by the `safetensors` crate.
pub(crate) fn safetensors(samples: &[Sample]) -> Vec<u8> {
    let views = samples.iter().map(|sample| {
        let (_, theirs) =
            SAFETENSORS.iter().find(|(ours, _)| *ours == sample.dtype).expect("a type it has");
        let shape = sample.shape.iter().map(|dim| *dim as usize).collect();
        let view = safetensors::tensor::TensorView::new(*theirs, shape, &sample.bytes);
        (sample.name.clone(), view.expect("a tensor"))
    });
    let metadata = [("format", "pt"), ("author", "ü")];
    let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
    safetensors::serialize(views, Some(metadata.into())).expect("serialise")
}

/// Writes GGUF, with no check: hostile files, too.
#[derive(Clone, Debug)]
pub(crate) struct Gguf {
    pub(crate) version: u32,
    pub(crate) alignment: u64,
    /// Keys with their types and values
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) tensors: Vec<Vec<u8>>,
    pub(crate) data: Vec<u8>,
    pub(crate) big_endian: bool,
}

impl Default for Gguf {
    fn default() -> Self {
        Self {
            version: 3,
            alignment: 32,
            keys: vec![],
            tensors: vec![],
            data: vec![],
            big_endian: false,
        }
    }
}

/// A string of a little-endian GGUF file.
pub(crate) fn string(text: impl AsRef<[u8]>) -> Vec<u8> {
    let text = text.as_ref();
    [&(text.len() as u64).to_le_bytes(), text].concat()
}

impl Gguf {
    pub(crate) fn big_endian() -> Self {
        Self { big_endian: true, ..Self::default() }
    }

    /// A number in the byte order of the file, from its little-endian bytes.
    pub(crate) fn number<const N: usize>(&self, mut bytes: [u8; N]) -> [u8; N] {
        if self.big_endian {
            bytes.reverse();
        }
        bytes
    }

    pub(crate) fn string(&self, text: impl AsRef<[u8]>) -> Vec<u8> {
        let text = text.as_ref();
        [&self.number((text.len() as u64).to_le_bytes()), text].concat()
    }

    /// `value` is in the byte order of the file.
    pub(crate) fn key(mut self, name: &str, kind: u32, value: &[u8]) -> Self {
        let kind = self.number(kind.to_le_bytes());
        self.keys.push([&self.string(name)[..], &kind, value].concat());
        self
    }

    pub(crate) fn raw_tensor(mut self, name: &str, shape: &[u64], kind: u32, offset: u64) -> Self {
        let mut bytes = self.string(name);
        bytes.extend(self.number((shape.len() as u32).to_le_bytes()));
        bytes.extend(shape.iter().rev().flat_map(|dim| self.number(dim.to_le_bytes())));
        bytes.extend(self.number(kind.to_le_bytes()));
        bytes.extend(self.number(offset.to_le_bytes()));
        self.tensors.push(bytes);
        self
    }

    pub(crate) fn tensor(mut self, sample: &Sample) -> Self {
        let offset = self.data.len() as u64;
        self.data.extend(&sample.bytes);
        self.data.resize(self.data.len().next_multiple_of(self.alignment as usize), 0);
        self.raw_tensor(&sample.name, &sample.shape, ggml_id(sample.dtype), offset)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(self.number(self.version.to_le_bytes()));
        bytes.extend(self.number((self.tensors.len() as u64).to_le_bytes()));
        bytes.extend(self.number((self.keys.len() as u64).to_le_bytes()));
        bytes.extend(self.keys.concat());
        bytes.extend(self.tensors.concat());
        bytes.resize(bytes.len().next_multiple_of(self.alignment as usize), 0);
        bytes.extend(&self.data);
        bytes
    }
}

pub(crate) fn ggml_id(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::F32 => 0,
        Dtype::F16 => 1,
        Dtype::I8 => 24,
        Dtype::I16 => 25,
        Dtype::I32 => 26,
        Dtype::I64 => 27,
        Dtype::F64 => 28,
        Dtype::Bf16 => 30,
        Dtype::Ggml(ggml) => ggml.id(),
        other => panic!("{other} is not in GGUF"),
    }
}

/// Fails unless a model has exactly these tensors.
pub(crate) fn assert_lists(model: &Model, samples: &[Sample]) {
    assert_eq!(model.tensors().len(), samples.len());
    for sample in samples {
        let tensor = model.tensor(&sample.name).expect("listed");
        assert_eq!((tensor.dtype, &tensor.shape), (sample.dtype, &sample.shape), "{}", sample.name);
        let file = std::fs::read(model.files()[tensor.file].path()).expect("read");
        let range = tensor.range.start as usize..tensor.range.end as usize;
        assert!(file[range] == sample.bytes, "{}: its range", sample.name);
    }
}

/// A model in two files, and what is in it in the order of its tensors. Sizes are odd.
pub(crate) fn in_two_files(lens: &[u64]) -> (TempDir, Arc<Model>, Vec<Sample>) {
    let folder = folder();
    let samples: Vec<_> = lens
        .iter()
        .enumerate()
        .map(|(number, len)| Sample::new(&format!("t{number:03}"), Dtype::U8, &[*len]))
        .collect();
    let (one, two) = samples.split_at(lens.len() / 2);
    write(&folder.path().join("model-00001-of-00002.safetensors"), &safetensors(one));
    write(&folder.path().join("model-00002-of-00002.safetensors"), &safetensors(two));
    let model = Model::open(folder.path()).expect("a model");
    let ordered = model.tensors().iter().map(|tensor| {
        samples.iter().find(|sample| sample.name == tensor.name).expect("a sample").clone()
    });
    let samples = ordered.collect();
    (folder, Arc::new(model), samples)
}
