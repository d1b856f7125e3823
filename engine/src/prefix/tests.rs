//! The cache against an oracle that knows what is truly in every block.

use std::collections::HashSet;

use super::*;

const BLOCKS: u32 = 12;

#[derive(Clone, Copy, Debug, bolero::TypeGenerator)]
enum Op {
    /// A request with a prompt of this kind and length, and room for this many more tokens.
    Start {
        kind: u8,
        length: u8,
        room: u8,
        reserve: u8,
        whole: bool,
    },
    /// The oldest (or so) request gets its next tokens, all exact, and publishes its whole blocks.
    Grow { which: u8, tokens: u8 },
    /// A request ends; its tail is kept where it asks for that.
    Finish { which: u8, retain: bool },
}

/// A sequence in use. Its tokens up to `written` are in its blocks.
#[derive(Debug)]
struct Sequence {
    tokens: Vec<TokenId>,
    prompt: usize,
    written: usize,
    published: usize,
    claim: Claim,
}

/// The truth: for every block, the whole prefix that each of its rows stands for.
struct World {
    cache: PrefixCache,
    contents: Vec<Vec<Vec<TokenId>>>,
    live: Vec<Sequence>,
}

/// Prompts that share beginnings: two families that part at token 70, 130 or not at all.
fn token(kind: u8, index: usize) -> TokenId {
    let parting = [70, 130, 20, usize::MAX][usize::from(kind % 4)];
    if index < parting { 1 } else { u32::from(kind) }
}

impl World {
    fn new() -> Self {
        Self {
            cache: PrefixCache::new(BLOCKS),
            contents: vec![vec![Vec::new(); BLOCK_TOKENS]; BLOCKS as usize],
            live: Vec::new(),
        }
    }

    fn start(&mut self, kind: u8, prompt: usize, (room, reserve): (usize, usize), matching: Match) {
        let tokens: Vec<_> = (0..prompt + room).map(|i| token(kind, i)).collect();
        let blocks = prompt.div_ceil(BLOCK_TOKENS);
        let available = self.cache.available();
        let probe = self.cache.probe(&tokens[..prompt], matching);
        let claim = self
            .cache
            .claim(&tokens[..prompt], blocks, reserve, matching);
        let Some(claim) = claim else {
            assert!(
                available < blocks + reserve,
                "a claim of {blocks} failed with {available} available, of which {reserve} are not for it"
            );
            assert_eq!(
                self.cache.available(),
                available,
                "a failed claim changes nothing"
            );
            return;
        };
        assert_eq!(claim.blocks.len(), blocks);
        assert!(self.cache.available() >= reserve);
        assert!(claim.cached() <= probe && claim.cached() <= prompt);
        if let Some(copy) = claim.copy {
            let from = self.contents[copy.from.0 as usize].clone();
            self.contents[claim.blocks[claim.shared].0 as usize] = from;
        }
        let sequence = Sequence {
            prompt,
            written: claim.cached(),
            published: claim.shared,
            tokens,
            claim,
        };
        self.check_contents(&sequence);
        self.check_ownership(&sequence);
        self.live.push(sequence);
    }

    /// Every row that the sequence would read holds the KV of exactly its own prefix.
    fn check_contents(&self, sequence: &Sequence) {
        for position in 0..sequence.written {
            let block = sequence.claim.blocks[position / BLOCK_TOKENS];
            let row = &self.contents[block.0 as usize][position % BLOCK_TOKENS];
            assert_eq!(row, &sequence.tokens[..=position]);
        }
    }

    /// A block of its own is nobody else's.
    fn check_ownership(&self, sequence: &Sequence) {
        let own: HashSet<_> = sequence.claim.blocks[sequence.claim.shared..]
            .iter()
            .collect();
        for other in &self.live {
            assert!(other.claim.blocks.iter().all(|block| !own.contains(block)));
        }
    }

    fn grow(&mut self, which: u8, tokens: usize) {
        let Some(index) = usize::from(which).checked_rem(self.live.len()) else {
            return;
        };
        let mut sequence = self.live.swap_remove(index);
        let mut end = (sequence.written + tokens).min(sequence.tokens.len());
        while sequence.claim.blocks.len() * BLOCK_TOKENS < end {
            let available = self.cache.available();
            let Some(block) = self.cache.allocate() else {
                assert_eq!(available, 0);
                end = end.min(sequence.claim.blocks.len() * BLOCK_TOKENS);
                break;
            };
            assert_eq!(self.cache.available(), available - 1);
            let is_taken = |other: &Sequence| other.claim.blocks.contains(&block);
            assert!(!is_taken(&sequence) && !self.live.iter().any(is_taken));
            sequence.claim.blocks.push(block);
        }
        for position in sequence.written..end {
            let block = sequence.claim.blocks[position / BLOCK_TOKENS];
            self.contents[block.0 as usize][position % BLOCK_TOKENS] =
                sequence.tokens[..=position].to_vec();
        }
        sequence.written = end;
        while (sequence.published + 1) * BLOCK_TOKENS <= end {
            let start = sequence.published * BLOCK_TOKENS;
            let block = &mut sequence.claim.blocks[sequence.published];
            let tokens = &sequence.tokens[start..start + BLOCK_TOKENS];
            (sequence.claim.node, *block) = self.cache.publish(sequence.claim.node, tokens, *block);
            sequence.published += 1;
        }
        self.check_contents(&sequence);
        self.live.push(sequence);
    }

    fn finish(&mut self, which: u8, retain: bool) {
        let Some(index) = usize::from(which).checked_rem(self.live.len()) else {
            return;
        };
        let mut sequence = self.live.swap_remove(index);
        let tail = &sequence.tokens[sequence.published * BLOCK_TOKENS..sequence.written];
        if retain && !tail.is_empty() {
            let block = &mut sequence.claim.blocks[sequence.published];
            (_, *block) = self.cache.publish(sequence.claim.node, tail, *block);
        }
        self.cache.release(&sequence.claim.blocks);
    }

    fn check_counts(&self) {
        let used: HashSet<_> = self.live.iter().flat_map(|s| &s.claim.blocks).collect();
        assert_eq!(used.len() + self.cache.available(), BLOCKS as usize);
    }
}

#[test]
fn a_claim_finds_only_blocks_with_the_kv_of_its_own_prefix() {
    bolero::check!().with_type::<Vec<Op>>().for_each(|ops| {
        let mut world = World::new();
        for op in ops {
            match *op {
                Op::Start {
                    kind,
                    length,
                    room,
                    reserve,
                    whole,
                } => {
                    let matching = if whole { Match::Blocks } else { Match::Tokens };
                    world.start(
                        kind % 12,
                        usize::from(length) + 1,
                        (usize::from(room % 80), usize::from(reserve % 4)),
                        matching,
                    );
                }
                Op::Grow { which, tokens } => world.grow(which, usize::from(tokens)),
                Op::Finish { which, retain } => world.finish(which, retain),
            }
            world.check_counts();
        }
        while !world.live.is_empty() {
            world.finish(0, false);
        }
        assert_eq!(world.cache.available(), BLOCKS as usize);
    });
}

/// A sequence of `length` tokens that is claimed, computed, kept and released.
fn run_once(world: &mut World, kind: u8, length: usize) -> usize {
    world.start(kind, length, (0, 0), Match::Tokens);
    let cached = world.live.last().unwrap().written;
    let last = u8::try_from(world.live.len() - 1).unwrap();
    world.grow(last, length);
    let prompt = world.live.last().unwrap().prompt;
    assert_eq!(prompt, length);
    world.finish(last, true);
    cached
}

#[test]
fn a_prompt_asked_again_is_found_to_its_last_token() {
    let mut world = World::new();
    for length in [1, 63, 64, 65, 200] {
        run_once(&mut world, 3, length);
        let prompt: Vec<_> = (0..length).map(|i| token(3, i)).collect();
        for limit in [length - 1, length] {
            assert_eq!(world.cache.probe(&prompt[..limit], Match::Tokens), limit);
            assert_eq!(
                world.cache.probe(&prompt[..limit], Match::Blocks),
                limit / 64 * 64
            );
        }
    }
}

#[test]
fn prompts_that_part_within_a_block_share_what_they_have_in_common() {
    let mut world = World::new();
    run_once(&mut world, 4, 150);
    // Kinds 4 and 8 are equal up to token 69.
    assert_eq!(run_once(&mut world, 8, 150), 70);
    assert_eq!(run_once(&mut world, 8, 151), 150);
}

#[test]
fn equal_blocks_computed_twice_are_kept_once() {
    let mut world = World::new();
    world.start(3, 128, (0, 0), Match::Tokens);
    world.start(3, 128, (0, 0), Match::Tokens);
    assert_eq!(world.cache.available(), BLOCKS as usize - 4);
    world.grow(0, 128);
    world.grow(0, 128);
    assert_eq!(world.cache.available(), BLOCKS as usize - 2);
    assert_eq!(world.live[0].claim.blocks, world.live[1].claim.blocks);
}

#[test]
fn the_least_recently_used_goes_first_and_leaves_before_parents() {
    let mut world = World::new();
    run_once(&mut world, 2, 6 * 64);
    run_once(&mut world, 1, 6 * 64);
    // All but the first 20 tokens of kind 2 are its own. Asking for its first two blocks makes those young again.
    world.start(2, 128, (0, 0), Match::Blocks);
    world.finish(0, false);
    world.start(6, 4 * 64, (0, 0), Match::Blocks);
    let left = |kind| {
        let prompt: Vec<_> = (0..6 * 64).map(|i| token(kind, i)).collect();
        world.cache.probe(&prompt, Match::Blocks)
    };
    assert_eq!((left(2), left(1)), (2 * 64, 6 * 64));
}

#[test]
fn a_claim_larger_than_what_is_available_changes_nothing() {
    let mut world = World::new();
    world.start(1, 64 * 10, (0, 0), Match::Tokens);
    world.start(2, 64 * 3, (0, 0), Match::Tokens);
    assert_eq!(world.live.len(), 1);
    assert_eq!(world.cache.available(), 2);
}

/// The prefixes, block by block, that somebody who was told of changes knows of.
fn known(told: &mut std::collections::BTreeMap<u64, Vec<TokenId>>, changes: PrefixChanges) {
    if changes.reset {
        told.clear();
    }
    for block in changes.added {
        let mut prefix = match block.parent {
            0 => Vec::new(),
            parent => told[&parent].clone(),
        };
        assert_eq!(block.tokens.len(), BLOCK_TOKENS);
        prefix.extend(block.tokens);
        assert!(told.insert(block.number, prefix).is_none());
    }
    for number in changes.removed {
        assert!(told.remove(&number).is_some());
    }
}

#[test]
fn a_watcher_knows_the_whole_blocks_that_a_prompt_would_find() {
    let mut world = World::new();
    let mut told = std::collections::BTreeMap::new();
    run_once(&mut world, 3, 150);
    world.cache.watch();
    // Enough for evictions, which come before and after what they make room for.
    for (kind, length) in [(1, 200), (2, 300), (3, 64), (5, 640), (6, 700), (1, 200)] {
        run_once(&mut world, kind, length);
        known(&mut told, world.cache.take_changes());
        for kind in 1..7 {
            let prompt: Vec<_> = (0..768).map(|i| token(kind, i)).collect();
            let found = world.cache.probe(&prompt, Match::Blocks);
            let longest = told.values().filter(|prefix| prompt.starts_with(prefix));
            let longest = longest.map(Vec::len).max().unwrap_or(0);
            assert_eq!(longest, found, "kind {kind}");
        }
    }
    assert!(world.cache.take_changes().is_empty());
    world.cache = world.cache.emptied();
    known(&mut told, world.cache.take_changes());
    assert!(told.is_empty());
    world.cache.unwatch();
    run_once(&mut world, 3, 150);
    assert!(world.cache.take_changes().is_empty(), "nobody asked");
}
