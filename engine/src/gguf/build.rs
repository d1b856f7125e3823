//! Writes small model files for tests.

use crate::quant::TensorType;

/// A file under construction: version 3, alignment 32.
#[derive(Default)]
pub(crate) struct Builder {
    entries: u64,
    metadata: Vec<u8>,
    tensors: u64,
    list: Vec<u8>,
    data: Vec<u8>,
}

fn text(into: &mut Vec<u8>, text: &str) {
    into.extend((text.len() as u64).to_le_bytes());
    into.extend(text.as_bytes());
}

impl Builder {
    fn entry(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.entries += 1;
        text(&mut self.metadata, key);
        self.metadata.extend(kind.to_le_bytes());
        self.metadata.extend(value);
        self
    }

    pub(crate) fn string(self, key: &str, value: &str) -> Self {
        let mut bytes = Vec::new();
        text(&mut bytes, value);
        self.entry(key, 8, &bytes)
    }

    pub(crate) fn strings(self, key: &str, values: &[&str]) -> Self {
        let mut bytes = 8_u32.to_le_bytes().to_vec();
        bytes.extend((values.len() as u64).to_le_bytes());
        for value in values {
            text(&mut bytes, value);
        }
        self.entry(key, 9, &bytes)
    }

    pub(crate) fn unsigned(self, key: &str, value: u32) -> Self {
        self.entry(key, 4, &value.to_le_bytes())
    }

    pub(crate) fn float(self, key: &str, value: f32) -> Self {
        self.entry(key, 6, &value.to_le_bytes())
    }

    pub(crate) fn bool(self, key: &str, value: bool) -> Self {
        self.entry(key, 7, &[value.into()])
    }

    pub(crate) fn tensor(
        mut self,
        name: &str,
        kind: TensorType,
        shape: &[usize],
        bytes: &[u8],
    ) -> Self {
        self.data.resize(self.data.len().next_multiple_of(32), 0);
        let offset = self.data.len() as u64;
        self.data.extend(bytes);
        self.entry_for_tensor(name, kind.code(), shape, offset)
    }

    /// An entry of the tensor list whose data is wherever it says.
    pub(crate) fn entry_for_tensor(
        mut self,
        name: &str,
        code: u32,
        shape: &[usize],
        offset: u64,
    ) -> Self {
        self.tensors += 1;
        text(&mut self.list, name);
        self.list
            .extend(u32::try_from(shape.len()).unwrap().to_le_bytes());
        for &length in shape {
            self.list.extend((length as u64).to_le_bytes());
        }
        self.list.extend(code.to_le_bytes());
        self.list.extend(offset.to_le_bytes());
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(3_u32.to_le_bytes());
        file.extend(self.tensors.to_le_bytes());
        file.extend(self.entries.to_le_bytes());
        file.extend(&self.metadata);
        file.extend(&self.list);
        file.resize(file.len().next_multiple_of(32), 0);
        file.extend(&self.data);
        file
    }
}

impl TensorType {
    /// All types.
    pub(crate) const ALL: [Self; 11] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
    ];

    /// The type's number in a file.
    pub(crate) fn code(self) -> u32 {
        (0..64)
            .find(|&code| Self::from_code(code) == Some(self))
            .unwrap()
    }
}
