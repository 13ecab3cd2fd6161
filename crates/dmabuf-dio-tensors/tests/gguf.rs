// SPDX-License-Identifier: MIT OR Apache-2.0
//! GGUF files that other readers open: text that is not UTF-8, and the other byte order.

mod common;

use common::{Gguf, Sample, assert_lists, folder, string, write};
use dmabuf_dio::Kind;
use dmabuf_dio_tensors::{Array, ByteOrder, Dtype, GgmlType, Model, Value};

#[test]
fn text_that_is_not_utf8_stays_bytes() {
    let folder = folder();
    let path = folder.path().join("tokens.gguf");
    let tokens: [&[u8]; 4] = [b"<s>", b"\x80", "ß".as_bytes(), b"\xc3"];
    let list = tokens.map(string).concat();
    let sample = Sample::new("a", Dtype::F32, &[5]);
    let file = Gguf::default()
        .key("general.name", 8, &string(b"gr\xf6\xdfe"))
        .key("tokens", 9, &[&8u32.to_le_bytes()[..], &4u64.to_le_bytes(), &list].concat())
        .tensor(&sample);
    write(&path, &file.bytes());
    let model = Model::open(&path).expect("a model");
    let name = model.metadata().get("general.name");
    assert_eq!(name, Some(&Value::Bytes(b"gr\xf6\xdfe".to_vec())));
    assert_eq!(name.and_then(Value::as_str), None);
    let Some(Value::Array(Array::String(found))) = model.metadata().get("tokens") else { panic!() };
    assert_eq!(found.iter().collect::<Vec<_>>(), tokens);
    assert_lists(&model, &[sample]);
}

#[test]
fn big_endian_files_are_read() {
    let folder = folder();
    let path = folder.path().join("big.gguf");
    let samples = [
        Sample::new("f32", Dtype::F32, &[2, 35]),
        Sample::new("bf16", Dtype::Bf16, &[7]),
        Sample::new("blocks", Dtype::Ggml(GgmlType::ALL[0]), &[3, 256]),
    ];
    let file = Gguf::big_endian();
    let text = file.string("größe");
    let list =
        [&5u32.to_be_bytes()[..], &2u64.to_be_bytes(), &(-2i32).to_be_bytes(), &7i32.to_be_bytes()];
    let words =
        [&8u32.to_be_bytes()[..], &2u64.to_be_bytes(), &file.string("a"), &file.string("bc")];
    let file = file
        .key("u16", 2, &513u16.to_be_bytes())
        .key("i64", 10, &9u64.to_be_bytes())
        .key("f64", 12, &2.5f64.to_be_bytes())
        .key("bool", 7, &[1])
        .key("text", 8, &text)
        .key("list", 9, &list.concat())
        .key("words", 9, &words.concat())
        .key("general.alignment", 4, &32u32.to_be_bytes());
    for version in [2, 3] {
        let file = Gguf { version, ..file.clone() };
        write(&path, &samples.iter().fold(file, Gguf::tensor).bytes());
        let model = Model::open(&path).expect("a model");
        assert_lists(&model, &samples);
        let values: Vec<_> = model.metadata().iter().map(|(_, value)| value.clone()).collect();
        let numbers = [Value::U16(513), Value::U64(9), Value::F64(2.5), Value::Bool(true)];
        assert_eq!(values[..4], numbers);
        assert_eq!(values[4], Value::String("größe".into()));
        assert_eq!(values[5], Value::Array(Array::I32(vec![-2, 7])));
        let Value::Array(Array::String(words)) = &values[6] else { panic!("{:?}", values[6]) };
        assert_eq!(words.iter().collect::<Vec<_>>(), [&b"a"[..], b"bc"]);
        assert!(model.tensors().iter().all(|tensor| tensor.byte_order == ByteOrder::Big));
        // The bytes are the file's.
        let loaded = model.loader().kind(Kind::Memfd).load().expect("loaded");
        for sample in &samples {
            assert!(
                loaded.to_vec(&sample.name).expect("its bytes") == sample.bytes,
                "{}",
                sample.name
            );
            assert_eq!(loaded.view(&sample.name).expect("a view").byte_order, ByteOrder::Big);
        }
    }
}
