//! What a peer sends as KV, and a profile's file.

use lynx_kernels::{
    Blocks, Codec, Cuts, Kind, KvShape, LayerOrder, Profile, RawTokens, Simd, UnitBuffer, UnitPlan,
};
use lynx_units::Width;

/// Not what an encoder makes of zeros, so that untouched values are told from written ones.
const UNTOUCHED: u16 = 0x7fa5;

/// Segments of any content: the decoder answers, writes nothing outside the unit, and gives the same at every SIMD level.
pub(crate) fn decode_unit(data: &[u8]) {
    let Some((header, rest)) = data.split_first_chunk::<8>() else {
        return;
    };
    let Some((plan, profile)) = plan(header) else {
        return;
    };
    let unit = segments(&plan, header[7], rest);
    for steps in 1..=plan.steps() {
        same_everywhere(&plan, |codec, sink| {
            codec
                .merge(&plan, profile.layer(0), &unit, steps, sink)
                .is_ok()
        });
    }
    same_everywhere(&plan, |codec, sink| {
        codec
            .decode_tail(&plan, profile.layer(0), &unit, sink)
            .is_ok()
    });
}

/// A small unit.
fn plan(header: &[u8; 8]) -> Option<(UnitPlan, Profile)> {
    let [kind, channels, start, len, k, v, sinks, _] = *header;
    let shape = KvShape {
        layers: 1,
        kv_heads: 1,
        head_dim: 8 + usize::from(channels % 17) * 8,
    };
    let kind = Kind::ALL[usize::from(kind % 2)];
    let start = u32::from(start % 80);
    let cuts = Cuts::new(Width::from_eighths(k % 65)?, v % 9).ok()?;
    let tokens = start..start + u32::from(len % 100);
    let plan = UnitPlan::new(
        shape,
        kind,
        tokens,
        RawTokens::new(u32::from(sinks), u32::MAX),
        cuts,
    )
    .ok()?;
    let profile = if k % 2 == 0 {
        Profile::uniform(shape).ok()?
    } else {
        let weights: Vec<f64> = (0u32..)
            .take(shape.head_dim)
            .map(|c| f64::from(c * 7 % 5))
            .collect();
        Profile::from_weights("fuzz", shape, &weights).ok()?
    };
    Some((plan, profile))
}

/// Mostly segments of the right lengths, as others are refused at once; an even `style` starts from a real encoding.
fn segments(plan: &UnitPlan, style: u8, data: &[u8]) -> UnitBuffer {
    let mut unit = UnitBuffer::default();
    let source = Blocks::new(plan.shape(), plan.kind(), plan.tokens());
    let order = LayerOrder::plane_major();
    Codec::detect().split(plan, &order, &source, &mut unit);
    Codec::detect().encode_tail(plan, &source, &mut unit.tail);
    let mut data = data.iter().copied();
    for index in 0..plan.segments() {
        let Some(segment) = unit.segment_mut(index) else {
            continue;
        };
        for byte in segment.iter_mut() {
            let Some(next) = data.next() else { break };
            *byte = if style.is_multiple_of(2) {
                *byte ^ next
            } else {
                next
            };
        }
    }
    let last = if style & 2 == 0 {
        &mut unit.tail
    } else {
        &mut unit.head
    };
    last.extend(data);
    unit
}

fn same_everywhere(plan: &UnitPlan, mut decode: impl FnMut(Codec, &mut Blocks) -> bool) {
    let mut expected = None;
    for codec in Simd::ALL.into_iter().filter_map(Codec::with_simd) {
        let mut sink = Blocks::new(plan.shape(), plan.kind(), plan.tokens());
        sink.data_mut().fill(UNTOUCHED);
        let accepted = decode(codec, &mut sink);
        let written = sink
            .data()
            .iter()
            .filter(|bits| **bits != UNTOUCHED)
            .count();
        assert!(written <= plan.bf16_bytes() / 2);
        let result = accepted.then_some(sink);
        assert!(
            *expected.get_or_insert(result.clone()) == result,
            "levels differ"
        );
    }
}

/// Profiles of any content: what is accepted is written and read back as the same.
pub(crate) fn profile_json(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let Ok(profile) = Profile::from_json(text) else {
        return;
    };
    let written = profile
        .to_json()
        .expect("an accepted profile can be written");
    let read = Profile::from_json(&written).expect("a written profile can be read");
    assert_eq!(read, profile);
    assert_eq!(read.hash(), profile.hash());
    for eighths in 0..=64 {
        let mean = Width::from_eighths(eighths).expect("up to eight bits");
        assert!(profile.cuts(mean).mean() <= mean.bits().max(1.0));
    }
}
