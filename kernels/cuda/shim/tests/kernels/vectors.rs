//! The committed vectors.

use std::fs;
use std::path::Path;

use lynx_gpu::Pages;
use lynx_kernels::vectors::{Vector, bytes_of};
use lynx_kernels::{Blocks, Kind, checksum};

use crate::common::Random;
use crate::device::{Build, Cache, Format, merge, split};

const BF16: Format = Format {
    to_cache: |bits| bits,
};

#[test]
fn the_committed_vectors_come_out_bit_for_bit() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    let mut random = Random::new(8);
    let mut checked = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let vector = Vector::from_json(&fs::read_to_string(&path).unwrap()).unwrap();
        let (plan, order) = (vector.plan().unwrap(), vector.order().unwrap());
        let expected = vector.segments().unwrap();
        let channels = plan.shape().head_dim;
        let name = match plan.kind() {
            Kind::K if channels < 64 => format!("K{channels}"),
            Kind::K => format!("k{channels}"),
            Kind::V => format!("v{channels}"),
        };
        let build = Build {
            name: &name,
            seed: 5,
        };
        let pages = Pages::hnd(plan.shape(), 32).unwrap();
        let mut source = Blocks::new(plan.shape(), plan.kind(), plan.tokens());
        let values = vector.values().unwrap();
        let mut values = values
            .chunks_exact(2)
            .map(|b| u16::from_le_bytes([b[0], b[1]]));
        for position in plan.tokens() {
            for head in 0..plan.shape().kv_heads {
                for channel in 0..channels {
                    let index = source.index(position, head, channel);
                    source.data_mut()[index] = values.next().unwrap();
                }
            }
        }
        let mut cache = Cache::empty(&plan, pages, &mut random);
        cache.fill(&plan, &source, BF16);
        let found = split(build, &plan, &order, &mut [cache]).unwrap().remove(0);
        assert!(found == expected, "{}", path.display());
        for (steps, sum) in (1..).zip(vector.merged().unwrap()) {
            let mut caches = [Cache::empty(&plan, pages, &mut random)];
            let units = [expected.clone()];
            merge(build, &plan, &order, steps, (&units, &mut caches)).unwrap();
            let merged = caches[0].read(&plan);
            assert_eq!(
                checksum(&bytes_of(&plan, &merged)),
                sum,
                "{} {steps}",
                path.display()
            );
        }
        checked += 1;
    }
    assert!(checked >= 8, "{checked} vectors");
}
