//! The order of things in a file: header, metadata, tensor list, tensor data.

use std::collections::BTreeMap;

use super::reader::{Reader, malformed};
use super::{Array, GgufError, Tensor, Value};
use crate::quant::TensorType;

const MAGIC: [u8; 4] = *b"GGUF";
const DEFAULT_ALIGNMENT: u64 = 32;
/// A metadata entry is at least a key's length, a type and one byte.
const MIN_ENTRY: u64 = 13;
/// A tensor entry is at least a name's length, a dimension count, one dimension, a type and an offset.
const MIN_TENSOR: u64 = 32;

type Metadata = BTreeMap<String, Value>;
type Tensors = BTreeMap<String, Tensor>;

pub(super) fn parse(bytes: &[u8]) -> Result<(Metadata, Tensors), GgufError> {
    let mut reader = Reader::new(bytes);
    if !bytes.starts_with(&MAGIC) {
        let start = bytes.iter().take(4).copied().collect();
        return Err(GgufError::NotGguf { start });
    }
    reader.take(MAGIC.len() as u64, "the header")?;
    let version = reader.u32("the header")?;
    if !(2..=3).contains(&version) {
        return Err(GgufError::Version { version });
    }
    let tensors = reader.count(MIN_TENSOR, "the number of tensors")?;
    let entries = reader.count(MIN_ENTRY, "the number of metadata entries")?;
    let metadata = parse_metadata(&mut reader, entries)?;
    let tensors = parse_tensors(&mut reader, tensors)?;
    let tensors = place(tensors, &metadata, reader.position(), bytes.len())?;
    Ok((metadata, tensors))
}

fn parse_metadata(reader: &mut Reader<'_>, entries: usize) -> Result<Metadata, GgufError> {
    let mut metadata = Metadata::new();
    for index in 0..entries {
        let key = reader.string(&format!("the key of metadata entry {index}"))?;
        let what = format!("metadata {key}");
        let kind = reader.u32(&what)?;
        let value = parse_value(reader, kind, &what)?;
        if metadata.insert(key, value).is_some() {
            return Err(malformed(&what, "the key occurs twice"));
        }
    }
    Ok(metadata)
}

fn parse_value(reader: &mut Reader<'_>, kind: u32, what: &str) -> Result<Value, GgufError> {
    Ok(match kind {
        0 | 2 | 4 | 10 => Value::Unsigned(unsigned(reader, kind, what)?),
        1 | 3 | 5 | 11 => Value::Signed(signed(reader, kind, what)?),
        6 | 12 => Value::Float(float(reader, kind, what)?),
        7 => Value::Bool(truth(reader, what)?),
        8 => Value::String(reader.string(what)?),
        9 => Value::Array(parse_array(reader, what)?),
        _ => return Err(malformed(what, format!("value type {kind} does not exist"))),
    })
}

fn parse_array(reader: &mut Reader<'_>, what: &str) -> Result<Array, GgufError> {
    let kind = reader.u32(what)?;
    let item = match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        8 | 10..=12 => 8,
        _ => {
            return Err(malformed(
                what,
                format!("a list of type {kind} cannot be read"),
            ));
        }
    };
    let count = reader.count(item, what)?;
    Ok(match kind {
        0 | 2 | 4 | 10 => Array::Unsigned(list(count, || unsigned(reader, kind, what))?),
        1 | 3 | 5 | 11 => Array::Signed(list(count, || signed(reader, kind, what))?),
        6 | 12 => Array::Float(list(count, || float(reader, kind, what))?),
        7 => Array::Bool(list(count, || truth(reader, what))?),
        _ => Array::String(list(count, || reader.string(what))?),
    })
}

fn list<T>(
    count: usize,
    mut next: impl FnMut() -> Result<T, GgufError>,
) -> Result<Vec<T>, GgufError> {
    (0..count).map(|_| next()).collect()
}

fn unsigned(reader: &mut Reader<'_>, kind: u32, what: &str) -> Result<u64, GgufError> {
    Ok(match kind {
        0 => u64::from(u8::from_le_bytes(reader.array(what)?)),
        2 => u64::from(u16::from_le_bytes(reader.array(what)?)),
        4 => u64::from(reader.u32(what)?),
        _ => reader.u64(what)?,
    })
}

fn signed(reader: &mut Reader<'_>, kind: u32, what: &str) -> Result<i64, GgufError> {
    Ok(match kind {
        1 => i64::from(i8::from_le_bytes(reader.array(what)?)),
        3 => i64::from(i16::from_le_bytes(reader.array(what)?)),
        5 => i64::from(i32::from_le_bytes(reader.array(what)?)),
        _ => i64::from_le_bytes(reader.array(what)?),
    })
}

fn float(reader: &mut Reader<'_>, kind: u32, what: &str) -> Result<f64, GgufError> {
    Ok(match kind {
        6 => f64::from(f32::from_le_bytes(reader.array(what)?)),
        _ => f64::from_le_bytes(reader.array(what)?),
    })
}

fn truth(reader: &mut Reader<'_>, what: &str) -> Result<bool, GgufError> {
    match reader.array(what)? {
        [0] => Ok(false),
        [1] => Ok(true),
        [other] => Err(malformed(what, format!("{other} is not a truth value"))),
    }
}

/// A tensor whose offset still counts from the start of the data section, which is known only after the last entry.
struct Entry {
    name: String,
    shape: Vec<usize>,
    kind: TensorType,
    bytes: usize,
    offset: u64,
}

fn parse_tensors(reader: &mut Reader<'_>, count: usize) -> Result<Vec<Entry>, GgufError> {
    list(count, || {
        let name = reader.string("the name of a tensor")?;
        let what = format!("tensor {name}");
        let dimensions = reader.u32(&what)?;
        if !(1..=4).contains(&dimensions) {
            return Err(malformed(&what, format!("{dimensions} dimensions")));
        }
        let shape: Vec<usize> = list(dimensions as usize, || {
            let length = reader.u64(&what)?;
            usize::try_from(length)
                .map_err(|_| malformed(&what, format!("a dimension of {length}")))
        })?;
        let code = reader.u32(&what)?;
        let kind = TensorType::from_code(code).ok_or_else(|| GgufError::TensorType {
            tensor: name.clone(),
            code,
        })?;
        let bytes = kind.bytes_for(&shape).ok_or_else(|| {
            malformed(
                &what,
                format!("the shape {shape:?} does not fit type {kind}"),
            )
        })?;
        let offset = reader.u64(&what)?;
        Ok(Entry {
            name,
            shape,
            kind,
            bytes,
            offset,
        })
    })
}

/// Turns offsets within the data section into places in the file, and checks that all of each tensor is there.
fn place(
    entries: Vec<Entry>,
    metadata: &Metadata,
    header_end: usize,
    file: usize,
) -> Result<Tensors, GgufError> {
    let alignment = match metadata.get("general.alignment") {
        None => DEFAULT_ALIGNMENT,
        Some(Value::Unsigned(alignment))
            if alignment.is_power_of_two() && *alignment <= 1 << 20 =>
        {
            *alignment
        }
        Some(other) => {
            return Err(malformed(
                "metadata general.alignment",
                format!("{other:?} is no alignment"),
            ));
        }
    };
    let data = (header_end as u64).next_multiple_of(alignment);
    let mut tensors = Tensors::new();
    for Entry {
        name,
        shape,
        kind,
        bytes,
        offset,
    } in entries
    {
        let what = format!("tensor {name}");
        if !offset.is_multiple_of(alignment) {
            return Err(malformed(
                &what,
                format!("offset {offset} is not a multiple of {alignment}"),
            ));
        }
        let start = data.saturating_add(offset);
        let end = start.saturating_add(bytes as u64);
        let (Ok(start), true) = (usize::try_from(start), end <= file as u64) else {
            return Err(GgufError::Truncated {
                what,
                need: bytes as u64,
                left: (file as u64).saturating_sub(start),
            });
        };
        let tensor = Tensor {
            shape,
            kind,
            start,
            bytes,
        };
        if tensors.insert(name, tensor).is_some() {
            return Err(malformed(&what, "the name occurs twice"));
        }
    }
    Ok(tensors)
}
