//! A pool in a file is a pool, and what lies where in it is as it says.

use super::*;
use crate::testing::test_model;

fn pattern(layer: usize, block: u32, head: usize, row: usize) -> u16 {
    u16::try_from((layer * 7 + block as usize * 131 + head * 17 + row) % 60_000).unwrap()
}

fn fill(pool: &mut KvPool, block: u32) {
    for layer in 0..pool.layers {
        for head in 0..pool.kv_heads {
            let keys = pool.k_mut(layer, BlockId(block), head);
            for (row, value) in keys.iter_mut().enumerate() {
                *value = pattern(layer, block, head, row);
            }
            let values = pool.v_mut(layer, BlockId(block), head);
            for (row, value) in values.iter_mut().enumerate() {
                *value = pattern(layer, block, head, row) + 1;
            }
        }
    }
}

fn same(one: &KvPool, other: &KvPool) -> bool {
    (0..u32::try_from(one.blocks).unwrap())
        .map(BlockId)
        .all(|block| {
            (0..one.layers).all(|layer| {
                (0..one.kv_heads).all(|head| {
                    one.k(layer, block, head) == other.k(layer, block, head)
                        && one.v(layer, block, head) == other.v(layer, block, head)
                })
            })
        })
}

#[test]
fn a_pool_in_a_file_is_written_read_and_copied_as_one_in_memory() {
    let model = test_model();
    let file = tempfile::tempfile().unwrap();
    let mut own = KvPool::new(model.config(), 3);
    let mut shared = KvPool::shared(model.config(), 3, &file).unwrap();
    assert!(same(&own, &shared), "not zeroed");
    for pool in [&mut own, &mut shared] {
        fill(pool, 1);
        pool.copy_block(BlockId(1), BlockId(2));
    }
    assert!(same(&own, &shared));
    assert_eq!(own.bytes(), shared.bytes());
    assert_eq!(file.metadata().unwrap().len(), shared.bytes() as u64);
    let other_view = KvPool::shared(model.config(), 3, &file).unwrap();
    assert!(same(&own, &other_view), "the file does not hold the pool");
}

#[test]
fn the_layout_says_where_in_the_file_things_lie() {
    let model = test_model();
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut pool = KvPool::shared(model.config(), 2, file.as_file()).unwrap();
    fill(&mut pool, 1);
    let bytes = std::fs::read(file.path()).unwrap();
    let at = |offset: u64| {
        let offset = usize::try_from(offset).unwrap();
        u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
    };
    let layout = pool.layout();
    for (layer, head) in [(0, 0), (3, 1), (29, 2)] {
        let keys = layout.block + layer as u64 * layout.layer + head as u64 * layout.head;
        // Of keys the 6th token of channel 5, of values channel 6 of the 5th token.
        let offset = 2 * (5 * 64 + 6);
        let expected = pattern(layer, 1, head, 5 * 64 + 6);
        assert_eq!(at(keys + offset), expected);
        assert_eq!(at(keys + layout.values + offset), expected + 1);
    }
    assert_eq!(layout.block * 2, bytes.len() as u64);
}

#[test]
#[should_panic(expected = "rows from")]
fn a_block_that_a_file_does_not_have_is_not_read() {
    let model = test_model();
    let pool = KvPool::shared(model.config(), 2, &tempfile::tempfile().unwrap()).unwrap();
    assert!(pool.k(0, BlockId(2), 0).is_empty());
}

#[test]
fn a_pool_that_can_not_be_says_what_to_do() {
    let model = test_model();
    let shared = |blocks, file: &File| KvPool::shared(model.config(), blocks, file).unwrap_err();
    let file = tempfile::NamedTempFile::new().unwrap();
    let none = shared(0, file.as_file());
    assert!(none.to_string().contains("at least one"), "{none}");
    let too_many = shared(usize::MAX / 100, file.as_file());
    assert!(too_many.to_string().contains("no more than"), "{too_many}");
    let read_only = File::open(file.path()).unwrap();
    let message = shared(1, &read_only).to_string();
    assert!(message.contains("can't have"), "{message}");
}
