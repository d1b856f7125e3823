//! Whose blocks are whose, against a list of all tables.

use std::sync::Arc;

use lynx_kernels::BLOCK_TOKENS;
use lynx_proto::engine::v1;

use super::*;
use crate::testing::{attach, make_pool, open_pool};

const BLOCKS: u32 = 6;

#[derive(Clone, Debug, bolero::TypeGenerator)]
enum Op {
    Read { blocks: Vec<u8> },
    Write { blocks: Vec<u8>, shared: u8 },
    Grant { table: u8, given: bool },
    End { table: u8 },
    Drop { table: u8 },
}

/// A table, and which blocks it has to itself or to read.
enum Table {
    Reads(
        #[expect(dead_code, reason = "held for its claim")] Readable,
        Vec<u32>,
    ),
    Writes(Writable, Vec<u32>),
}

impl Table {
    fn has(&self, block: u32) -> bool {
        let (Self::Reads(_, blocks) | Self::Writes(_, blocks)) = self;
        blocks.contains(&block)
    }

    fn writes(&self) -> bool {
        matches!(self, Self::Writes(..))
    }
}

fn named(blocks: &[u8]) -> Vec<u32> {
    let blocks = blocks.iter().take(4);
    blocks.map(|block| u32::from(*block) % BLOCKS).collect()
}

fn twice(blocks: &[u32]) -> bool {
    (1..blocks.len()).any(|at| blocks[..at].contains(&blocks[at]))
}

fn tokens(blocks: &[u32]) -> u32 {
    u32::try_from(blocks.len() * BLOCK_TOKENS).unwrap()
}

#[test]
fn any_tables_together_have_what_a_list_of_them_says() {
    let directory = tempfile::tempdir().unwrap();
    let attach = attach(v1::Role::Decode, BLOCKS);
    make_pool(directory.path(), &attach, 1);
    let pool = open_pool(directory.path(), &attach, Access::Write);
    bolero::check!().with_type::<Vec<Op>>().for_each(|ops| {
        let mut tables: Vec<Table> = Vec::new();
        for op in ops {
            apply(&pool, &mut tables, op);
        }
        tables.clear();
        assert!(pool.is_unclaimed(), "a claim leaked");
    });
}

fn apply(pool: &Arc<Pool>, tables: &mut Vec<Table>, op: &Op) {
    match op {
        Op::Read { blocks } => {
            let blocks = named(blocks);
            let taken = |block: &u32| {
                tables
                    .iter()
                    .any(|table| table.writes() && table.has(*block))
            };
            let free = !blocks.is_empty() && !twice(&blocks) && !blocks.iter().any(taken);
            let table = Readable::new(pool, blocks.clone(), tokens(&blocks), 0);
            assert_eq!(table.is_ok(), free, "{blocks:?}");
            tables.extend(table.ok().map(|table| Table::Reads(table, blocks)));
        }
        Op::Write { blocks, shared } => {
            let blocks = named(blocks);
            let from = usize::from(*shared) % (blocks.len() + 1);
            let own = &blocks[from..];
            let taken = |block: &u32| tables.iter().any(|table| table.has(*block));
            let free = !own.is_empty() && !twice(&blocks) && !own.iter().any(taken);
            let own = own.to_vec();
            let start = tokens(&blocks[..from]);
            let table = Writable::new(pool, blocks.clone(), tokens(&blocks), start);
            assert_eq!(table.is_ok(), free, "{blocks:?} from {from}");
            tables.extend(table.ok().map(|table| Table::Writes(table, own)));
        }
        Op::Grant { table, given } => {
            let Some(at) = usize::from(*table).checked_rem(tables.len()) else {
                return;
            };
            if let Table::Writes(table, blocks) = &mut tables[at] {
                table.grant().set(*given);
                // What has ended is not given again.
                let given = *given && !blocks.is_empty();
                assert_eq!(table.is_granted(), given);
                assert!(given || table.sink(0, lynx_kernels::Kind::K, 0..64).is_err());
            }
        }
        Op::End { table } => {
            if let Some(at) = usize::from(*table).checked_rem(tables.len())
                && let Table::Writes(table, blocks) = &mut tables[at]
            {
                table.grant().end();
                blocks.clear();
            }
        }
        Op::Drop { table } => {
            if let Some(at) = usize::from(*table).checked_rem(tables.len()) {
                tables.swap_remove(at);
            }
        }
    }
}
