//! Small model files: a vocabulary of both families, and a tensor.

/// A file under construction: version 3, alignment 32.
#[derive(Default)]
struct File {
    entries: u64,
    metadata: Vec<u8>,
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

impl File {
    fn entry(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.entries += 1;
        self.metadata.extend(text(key));
        self.metadata.extend(kind.to_le_bytes());
        self.metadata.extend(value);
        self
    }

    fn string(self, key: &str, value: &str) -> Self {
        self.entry(key, 8, &text(value))
    }

    fn number(self, key: &str, value: u32) -> Self {
        self.entry(key, 4, &value.to_le_bytes())
    }

    fn list(self, key: &str, kind: u32, values: &[Vec<u8>]) -> Self {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend((values.len() as u64).to_le_bytes());
        bytes.extend(values.concat());
        self.entry(key, 9, &bytes)
    }

    fn strings(self, key: &str, values: &[&str]) -> Self {
        let values: Vec<Vec<u8>> = values.iter().map(|value| text(value)).collect();
        self.list(key, 8, &values)
    }

    fn numbers(self, key: &str, values: &[u32]) -> Self {
        let values: Vec<Vec<u8>> = values.iter().map(|v| v.to_le_bytes().to_vec()).collect();
        self.list(key, 5, &values)
    }

    fn scores(self, key: &str, values: &[f32]) -> Self {
        let values: Vec<Vec<u8>> = values.iter().map(|v| v.to_le_bytes().to_vec()).collect();
        self.list(key, 6, &values)
    }

    /// The file, with one F32 tensor of three elements.
    fn bytes(self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(3_u32.to_le_bytes());
        file.extend(1_u64.to_le_bytes());
        file.extend(self.entries.to_le_bytes());
        file.extend(self.metadata);
        file.extend(text("norm"));
        file.extend(1_u32.to_le_bytes());
        file.extend(3_u64.to_le_bytes());
        file.extend(0_u32.to_le_bytes());
        file.extend(0_u64.to_le_bytes());
        file.resize(file.len().next_multiple_of(32), 0);
        file.extend([1; 12]);
        file
    }
}

fn llama() -> File {
    File::default()
        .string("general.architecture", "llama")
        .number("llama.block_count", 2)
        .number("llama.embedding_length", 128)
        .number("llama.feed_forward_length", 256)
        .number("llama.attention.head_count", 2)
        .number("llama.attention.head_count_kv", 1)
        .number("llama.context_length", 512)
        .entry(
            "llama.attention.layer_norm_rms_epsilon",
            6,
            &1e-5_f32.to_le_bytes(),
        )
}

pub(super) fn files() -> Vec<Vec<u8>> {
    let pieces = llama()
        .string("tokenizer.ggml.model", "llama")
        .strings(
            "tokenizer.ggml.tokens",
            &[
                "<unk>",
                "<s>",
                "</s>",
                "\u{2581}",
                "H",
                "e",
                "\u{2581}H",
                "<0x0A>",
            ],
        )
        .numbers("tokenizer.ggml.token_type", &[2, 3, 3, 1, 1, 1, 1, 6])
        .scores(
            "tokenizer.ggml.scores",
            &[0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -4.0, 0.0],
        )
        .number("tokenizer.ggml.bos_token_id", 1)
        .number("tokenizer.ggml.eos_token_id", 2)
        .number("tokenizer.ggml.unknown_token_id", 0)
        .string("fuzz.text", "He\nHe");
    let bytes = llama()
        .string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", "smollm")
        .strings(
            "tokenizer.ggml.tokens",
            &["<|endoftext|>", "H", "e", "l", "He", "Ġ", "1", "<|im_end|>"],
        )
        .numbers("tokenizer.ggml.token_type", &[3, 1, 1, 1, 1, 1, 1, 3])
        .strings("tokenizer.ggml.merges", &["H e"])
        .number("tokenizer.ggml.eos_token_id", 0)
        .string("fuzz.text", "Hell 1 <|im_end|>")
        .string("tokenizer.chat_template", "{{ messages }}");
    vec![pieces.bytes(), bytes.bytes()]
}
