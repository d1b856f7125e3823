use super::Model;
use super::build::Tiny;
use crate::gguf::Gguf;
use crate::gguf::build::Builder;
use crate::quant::TensorType;

const TINY: Tiny = Tiny {
    kind: TensorType::Q8_0,
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    untied: true,
};

fn open(file: &Builder) -> Result<Model, String> {
    let gguf = Gguf::from_bytes(file.bytes()).unwrap();
    Model::from_gguf(&gguf).map_err(|error| error.to_string())
}

fn refusal(file: &Builder) -> String {
    open(file).unwrap_err()
}

#[test]
fn a_models_numbers_are_read() {
    let model = open(&TINY.file()).unwrap();
    let config = model.config();
    assert_eq!(config.name, "tiny");
    assert_eq!(
        (config.layers, config.vocab, config.context),
        (2, 100, 1000)
    );
    assert_eq!(
        (
            config.heads,
            config.kv_heads,
            config.head_dim,
            config.group()
        ),
        (4, 2, 64, 2)
    );
    assert_eq!((config.embedding, config.feed_forward), (256, 512));
    assert_eq!(config.rope_theta, 10_000.0);
}

#[test]
fn the_fingerprint_tells_files_apart_that_differ_in_one_bit() {
    let mut bytes = TINY.file().bytes();
    let print = |bytes: &[u8]| {
        let gguf = Gguf::from_bytes(bytes.to_vec()).unwrap();
        Model::from_gguf(&gguf).unwrap().fingerprint()
    };
    let before = print(&bytes);
    assert_eq!(before, print(&bytes));
    *bytes.last_mut().unwrap() ^= 1;
    assert_ne!(before, print(&bytes));
    assert_eq!(before.to_string().len(), 64);
}

#[test]
fn another_architecture_is_named() {
    let file = Builder::default().string("general.architecture", "qwen3");
    assert!(refusal(&file).contains("architecture \"qwen3\" cannot be run, only \"llama\""));
}

#[test]
fn features_that_are_not_there_are_refused_by_name() {
    for (file, name) in [
        (
            TINY.file().string("llama.rope.scaling.type", "yarn"),
            "llama.rope.scaling.type = yarn",
        ),
        (
            TINY.file().float("llama.rope.scaling.factor", 8.0),
            "llama.rope.scaling.factor",
        ),
        (
            TINY.file().unsigned("llama.attention.sliding_window", 4096),
            "llama.attention.sliding_window",
        ),
        (
            TINY.file().unsigned("llama.expert_count", 8),
            "llama.expert_count",
        ),
        (
            TINY.file().unsigned("llama.rope.dimension_count", 32),
            "llama.rope.dimension_count",
        ),
        (
            TINY.file()
                .tensor("rope_freqs.weight", TensorType::F32, &[32], &[0; 128]),
            "tensor rope_freqs.weight",
        ),
        (
            TINY.file()
                .tensor("blk.0.attn_q.bias", TensorType::F32, &[256], &[0; 1024]),
            "tensor blk.0.attn_q.bias",
        ),
        (
            Tiny {
                head_dim: 32,
                heads: 8,
                ..TINY
            }
            .file(),
            "heads of 32 channels",
        ),
    ] {
        let refusal = refusal(&file);
        assert!(refusal.contains(name), "{refusal}");
    }
}

#[test]
fn missing_and_misshapen_tensors_are_named() {
    let mut deeper = TINY.file().bytes();
    let key = b"llama.block_count";
    let at = deeper
        .windows(key.len())
        .position(|window| window == key)
        .unwrap()
        + key.len()
        + 4;
    deeper[at] = 3;
    let gguf = Gguf::from_bytes(deeper).unwrap();
    let error = Model::from_gguf(&gguf).unwrap_err().to_string();
    assert!(error.contains("blk.2.attn_norm.weight"), "{error}");

    let wider = Tiny {
        kv_heads: 4,
        ..TINY
    }
    .file()
    .bytes();
    let key = b"llama.attention.head_count_kv";
    let at = wider
        .windows(key.len())
        .position(|window| window == key)
        .unwrap()
        + key.len()
        + 4;
    let mut wider = wider;
    wider[at] = 2;
    let gguf = Gguf::from_bytes(wider).unwrap();
    let error = Model::from_gguf(&gguf).unwrap_err().to_string();
    assert!(
        error.contains("blk.0.attn_k.weight: its shape is [256, 256]"),
        "{error}"
    );
}

#[test]
fn a_file_with_altered_metadata_is_run_or_refused_but_never_panics() {
    let original = TINY.file().bytes();
    bolero::check!()
        .with_iterations(200)
        .with_type::<Vec<(u16, u8)>>()
        .for_each(|changes| {
            let mut bytes = original.clone();
            for &(at, value) in changes {
                let at = usize::from(at) % 2000;
                bytes[at] = value;
            }
            if let Ok(gguf) = Gguf::from_bytes(bytes) {
                _ = Model::from_gguf(&gguf);
            }
        });
}
