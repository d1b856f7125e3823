use lynx_proto::engine::v1::{self as engine, CachedBlock, CachedBlocks};

use super::*;
use crate::pool::Layout;
use crate::testing;

fn salt(generation: &str) -> Salt {
    let attach = testing::attach(engine::Role::Prefill, 4);
    let layout = Layout::parse(attach.layout.as_ref().unwrap()).unwrap();
    let profile = lynx_kernels::Profile::uniform(layout.shape()).unwrap();
    Salt::of(&Identity::new("a", &attach, &layout, &profile, generation))
}

fn prompt(length: u32) -> Vec<u32> {
    (0..length).collect()
}

/// Blocks of a prompt as an engine tells them, numbered from `first` on.
fn told(first: u64, tokens: &[u32]) -> Vec<CachedBlock> {
    let blocks = tokens.as_chunks::<BLOCK_TOKENS>().0.iter().zip(first..);
    let told = blocks.map(|(tokens, block)| CachedBlock {
        block,
        parent: if block == first { 0 } else { block - 1 },
        tokens: tokens.to_vec(),
    });
    told.collect()
}

fn added(blocks: Vec<CachedBlock>) -> CachedBlocks {
    CachedBlocks {
        added: blocks,
        ..CachedBlocks::default()
    }
}

/// Has a peer hear all that there is.
fn hear(journal: &Journal, position: &mut Position, known: &mut Known, most: usize) {
    while let Some(since) = journal.since(position, most) {
        assert!(since.added.len() + since.removed.len() <= most);
        if since.reset {
            known.clear();
        }
        known.add(since.added);
        known.remove(since.removed);
    }
}

#[test]
fn prompts_share_names_as_far_as_they_share_whole_blocks() {
    let salt = salt("1");
    let one = names(salt, &prompt(200));
    let mut other = prompt(300);
    assert_eq!(one.len(), 3);
    assert_eq!(names(salt, &other)[..3], one);
    other[70] = 9999;
    let other = names(salt, &other);
    assert_eq!(one[0], other[0]);
    assert!(one[1] != other[1] && one[2] != other[2], "all that follows");
    assert!(names(salt, &prompt(63)).is_empty());
}

#[test]
fn blocks_of_different_models_or_generations_have_different_names() {
    let tokens = prompt(64);
    assert_ne!(names(salt("1"), &tokens), names(salt("2"), &tokens));
}

#[test]
fn names_are_the_same_in_every_release_that_pairs() {
    let salt = Salt(BlockName(7));
    let names: Vec<String> = names(salt, &prompt(128))
        .iter()
        .map(BlockName::to_string)
        .collect();
    assert_eq!(names, ["e59b43ba38a3914d", "651cc3b229315f40"]);
}

#[test]
fn a_peer_knows_what_the_engine_told() {
    let salt = salt("1");
    let (mut index, mut journal) = (Index::new(salt, 100), Journal::new(100));
    let (mut position, mut known) = (Position::default(), Known::new(100));
    let tokens = prompt(64 * 5);
    let names = names(salt, &tokens);
    let mut blocks = told(10, &tokens);
    let late = blocks.split_off(2);
    index.take(&added(blocks), &mut journal);
    hear(&journal, &mut position, &mut known, 1);
    assert_eq!(known.tokens_of(&names), 128);
    index.take(&added(late), &mut journal);
    index.take(
        &CachedBlocks {
            removed: vec![14],
            ..CachedBlocks::default()
        },
        &mut journal,
    );
    hear(&journal, &mut position, &mut known, 2);
    assert_eq!(known.tokens_of(&names), 64 * 4);
    let reset = CachedBlocks {
        reset: true,
        ..CachedBlocks::default()
    };
    index.take(&reset, &mut journal);
    hear(&journal, &mut position, &mut known, 2);
    assert_eq!((known.tokens_of(&names), known.len()), (0, 0));
}

#[test]
fn what_does_not_fit_is_forgotten_oldest_first_on_both_sides() {
    let salt = salt("1");
    let (mut index, mut journal) = (Index::new(salt, 3), Journal::new(3));
    let (one, two) = (prompt(64 * 2), vec![5; 64 * 2]);
    index.take(&added(told(1, &one)), &mut journal);
    index.take(&added(told(8, &two)), &mut journal);
    assert_eq!(journal.len(), 3);
    let (mut position, mut known) = (Position::default(), Known::new(2));
    hear(&journal, &mut position, &mut known, 10);
    assert_eq!(known.len(), 2, "its own limit");
    let mut whole = Known::new(10);
    hear(&journal, &mut Position::default(), &mut whole, 10);
    assert_eq!(whole.tokens_of(&names(salt, &two)), 128);
    assert_eq!(whole.tokens_of(&names(salt, &one)), 0);
    // A block whose parent is forgotten has no name.
    let orphan = CachedBlock {
        block: 3,
        parent: 1,
        tokens: prompt(64),
    };
    index.take(&added(vec![orphan]), &mut journal);
    assert_eq!(journal.len(), 3);
    let mut off = Index::new(salt, 0);
    let mut nothing = Journal::new(0);
    off.take(&added(told(1, &one)), &mut nothing);
    assert_eq!(nothing.len(), 0);
}

/// What happens to an index, and who hears of it.
#[derive(Clone, Copy, Debug, bolero::TypeGenerator)]
enum Op {
    /// A block of this content after one of those that are there, or at the beginning.
    Add {
        content: u8,
        parent: u8,
    },
    Remove(u8),
    Reset,
    /// A peer hears one word of at most so many blocks.
    Hear {
        peer: bool,
        most: u8,
    },
    /// A peer's stream is lost, and begins anew.
    Lose(bool),
}

#[test]
fn peers_that_listen_at_their_own_pace_come_to_know_the_same() {
    bolero::check!()
        .with_type::<Vec<Op>>()
        .for_each(|ops| replay(ops));
}

fn replay(ops: &[Op]) {
    let salt = Salt(BlockName(1));
    let (mut index, mut journal) = (Index::new(salt, 6), Journal::new(4));
    let mut peers = [(); 2].map(|()| (Position::default(), Known::new(100)));
    let mut live: Vec<u64> = Vec::new();
    for (number, op) in (1..).zip(ops) {
        let mut told = CachedBlocks::default();
        match *op {
            Op::Add { content, parent } => {
                let parent = live.get(usize::from(parent)).copied().unwrap_or(0);
                live.push(number);
                told.added.push(CachedBlock {
                    block: number,
                    parent,
                    tokens: vec![u32::from(content % 4); BLOCK_TOKENS],
                });
            }
            Op::Remove(which) if !live.is_empty() => {
                let which = usize::from(which) % live.len();
                told.removed.push(live.remove(which));
            }
            Op::Reset => {
                told.reset = true;
                live.clear();
            }
            Op::Hear { peer, most } => {
                let (position, known) = &mut peers[usize::from(peer)];
                if let Some(since) = journal.since(position, usize::from(most % 4) + 1) {
                    if since.reset {
                        known.clear();
                    }
                    known.add(since.added);
                    known.remove(since.removed);
                }
            }
            Op::Lose(peer) => peers[usize::from(peer)].0 = Position::default(),
            Op::Remove(_) => {}
        }
        index.take(&told, &mut journal);
    }
    let mut oracle = Known::new(100);
    hear(&journal, &mut Position::default(), &mut oracle, 3);
    for (position, known) in &mut peers {
        hear(&journal, position, known, 3);
        assert_eq!(known, &oracle);
        assert_eq!(known.len(), journal.len());
    }
}
