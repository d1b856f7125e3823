use super::build::Builder;
use super::{Array, Gguf, GgufError, Value};
use crate::quant::TensorType;

/// A file with one of everything.
fn small() -> Builder {
    Builder::default()
        .string("general.architecture", "llama")
        .unsigned("llama.block_count", 2)
        .float("llama.rope.freq_base", 500.0)
        .bool("tokenizer.ggml.add_bos_token", true)
        .strings("tokenizer.ggml.tokens", &["a", "Ġb", ""])
        .tensor("first", TensorType::Q8_0, &[32, 2], &[7; 68])
        .tensor("second", TensorType::F32, &[3], &[1; 12])
}

fn refusal(bytes: Vec<u8>) -> String {
    Gguf::from_bytes(bytes).unwrap_err().to_string()
}

#[test]
fn a_small_file_is_read_back() {
    let gguf = Gguf::from_bytes(small().bytes()).unwrap();
    assert_eq!(gguf.string("general.architecture"), Some("llama"));
    assert_eq!(gguf.unsigned("llama.block_count"), Some(2));
    assert_eq!(gguf.float("llama.rope.freq_base"), Some(500.0));
    assert_eq!(gguf.bool("tokenizer.ggml.add_bos_token"), Some(true));
    let tokens = gguf.strings("tokenizer.ggml.tokens").unwrap();
    assert_eq!(tokens, ["a", "Ġb", ""]);
    assert!(matches!(
        gguf.value("tokenizer.ggml.tokens"),
        Some(Value::Array(Array::String(_)))
    ));
    let first = gguf.tensor("first").unwrap();
    assert_eq!(
        (first.shape.as_slice(), first.kind),
        ([32, 2].as_slice(), TensorType::Q8_0)
    );
    assert_eq!(gguf.tensor_bytes(first), [7; 68]);
    assert_eq!(gguf.tensor_bytes(gguf.tensor("second").unwrap()), [1; 12]);
}

#[test]
fn a_key_of_another_kind_is_no_answer() {
    let gguf = Gguf::from_bytes(small().bytes()).unwrap();
    assert_eq!(gguf.unsigned("general.architecture"), None);
    assert_eq!(gguf.string("llama.block_count"), None);
    assert_eq!(gguf.strings("nowhere"), None);
}

#[test]
fn a_file_that_is_cut_short_anywhere_is_refused() {
    let bytes = small().bytes();
    for length in 4..bytes.len() {
        let error = Gguf::from_bytes(bytes[..length].to_vec()).unwrap_err();
        assert!(
            matches!(error, GgufError::Truncated { .. }),
            "{length}: {error}"
        );
    }
}

#[test]
fn a_mutated_file_is_read_or_refused_but_never_panics() {
    let original = small().bytes();
    bolero::check!()
        .with_type::<Vec<(u16, u8)>>()
        .for_each(|changes| {
            let mut bytes = original.clone();
            for &(at, value) in changes {
                let at = usize::from(at) % bytes.len();
                bytes[at] = value;
            }
            if let Ok(gguf) = Gguf::from_bytes(bytes) {
                for tensor in gguf.tensors().values() {
                    assert_eq!(gguf.tensor_bytes(tensor).len(), tensor.byte_len());
                }
            }
        });
}

#[test]
fn arbitrary_bytes_never_panic() {
    bolero::check!().for_each(|bytes: &[u8]| {
        _ = Gguf::from_bytes(bytes.to_vec());
        _ = Gguf::from_bytes([b"GGUF\x03\0\0\0", bytes].concat());
    });
}

#[test]
fn a_count_beyond_the_file_is_refused_before_memory_is_reserved() {
    for at in [8, 16] {
        let mut bytes = small().bytes();
        bytes[at..at + 8].copy_from_slice(&(u64::MAX / 64).to_le_bytes());
        assert!(refusal(bytes).contains("the file ends inside the number of"));
    }
}

#[test]
fn another_kind_of_file_is_named() {
    assert!(refusal(b"PK\x03\x04 and so on".to_vec()).contains("not a GGUF file"));
    assert!(refusal(Vec::new()).contains("not a GGUF file"));
    let mut old = small().bytes();
    old[4] = 1;
    assert!(refusal(old).contains("version 1 is not known"));
}

#[test]
fn what_contradicts_the_format_is_named() {
    let twice = small().unsigned("llama.block_count", 3);
    assert!(refusal(twice.bytes()).contains("metadata llama.block_count: the key occurs twice"));
    let twice = small().tensor("first", TensorType::F32, &[1], &[0; 4]);
    assert!(refusal(twice.bytes()).contains("tensor first: the name occurs twice"));
    let odd = small().tensor("odd", TensorType::Q8_0, &[33], &[0; 68]);
    assert!(refusal(odd.bytes()).contains("tensor odd: the shape [33] does not fit type Q8_0"));
    let huge = small().entry_for_tensor("huge", 0, &[usize::MAX, 2], 0);
    assert!(refusal(huge.bytes()).contains("tensor huge: the shape"));
    let unaligned = small().entry_for_tensor("unaligned", 0, &[1], 4);
    assert!(refusal(unaligned.bytes()).contains("offset 4 is not a multiple of 32"));
    let beyond = small().entry_for_tensor("beyond", 0, &[1], 1 << 40);
    assert!(refusal(beyond.bytes()).contains("the file ends inside tensor beyond"));
    let unknown = small().entry_for_tensor("unknown", 10, &[256], 0);
    assert!(refusal(unknown.bytes()).contains("tensor unknown has storage type 10"));
    let alignment = small().unsigned("general.alignment", 7);
    assert!(refusal(alignment.bytes()).contains("general.alignment"));
}

#[test]
fn a_missing_file_is_named() {
    let error = Gguf::open("no/such/model.gguf".as_ref()).unwrap_err();
    assert!(error.to_string().contains("cannot read no/such/model.gguf"));
}
