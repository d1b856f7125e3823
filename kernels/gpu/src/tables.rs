//! K's tables in GPU memory: where words go, and which bits of a channel are known.

use lynx_kernels::{Kind, KvShape, LayerOrder, UnitPlan};

/// Where the kernels put each of a layer's K words in shared memory: `[head][plane][channel]`, in bytes. Words lie there in the
/// profile's order, but for 16-byte units, which are exchanged within 128 bytes so that four planes' words, which are
/// written at once, lie in different banks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places(pub Vec<u16>);

/// What a merge of some steps knows of each K channel: `[head][channel]`, the mask of the known bits of a code in the low byte,
/// and the midpoint's bit in the high one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut(pub Vec<u16>);

impl Places {
    /// The places of a layer's words.
    pub fn new(shape: KvShape, order: &LayerOrder) -> Self {
        let mut places = vec![0; shape.kv_heads * shape.head_dim * 8];
        for (head, places) in places.chunks_mut(shape.head_dim * 8).enumerate() {
            for (place, word) in (0u16..).zip(words(shape, order, head)) {
                let (channel, plane) = (usize::from(word / 8), usize::from(word % 8));
                places[plane * shape.head_dim + channel] = in_shared_memory(place);
            }
        }
        Self(places)
    }
}

impl Cut {
    /// What the first `steps` steps hold of a layer.
    pub fn new(plan: &UnitPlan, order: &LayerOrder, steps: usize) -> Self {
        let shape = plan.shape();
        let eighths = plan.cuts().width(Kind::K, steps).eighths();
        let present = shape.head_dim * usize::from(eighths) / 8;
        let mut cuts = Vec::with_capacity(shape.kv_heads * shape.head_dim);
        for head in 0..shape.kv_heads {
            let mut widths = vec![0u16; shape.head_dim];
            for word in words(shape, order, head).take(present) {
                // A channel's words come in ascending planes, so the last one counts.
                widths[usize::from(word / 8)] = word % 8 + 1;
            }
            cuts.extend(widths.into_iter().map(|width| {
                let known = 0xff & !(0xff >> width);
                known | (0x80 >> width) << 8
            }));
        }
        Self(cuts)
    }
}

/// A head's words in their order, as `channel * 8 + plane`.
fn words<'a>(
    shape: KvShape,
    order: &'a LayerOrder,
    head: usize,
) -> Box<dyn Iterator<Item = u16> + 'a> {
    match order.words(head) {
        Some(words) => Box::new(words.iter().copied()),
        None => {
            let channels = u16::try_from(shape.head_dim).unwrap_or(u16::MAX);
            Box::new((0..8).flat_map(move |plane| (0..channels).map(move |c| c * 8 + plane)))
        }
    }
}

/// Where the word with this place lies: `Words::moved` of `kernels/cuda/k.cuh`.
fn in_shared_memory(place: u16) -> u16 {
    let unit = place / 2;
    let moved = unit ^ (unit >> 6 & 7);
    moved * 16 + place % 2 * 8
}
