//! Streams over several cards of the model, some of which fail at any moment.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use super::super::Lending;
use super::super::outgoing::LONGEST;
use super::super::stream::Remote;
use super::super::stream::tests::{ends, ends_by};
use crate::emulate::{Fabric, LentPool};
use crate::wire::Wire;

const CARDS: u8 = 3;
/// More than enough looks at a card for all that is written here: who needs more stands still.
const LOOKS: usize = 20_000;

/// Numbers of a seed.
struct Draws(u64);

impl Draws {
    /// Below `end`, which isn't 0.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

/// One direction of a stream: how many bytes are to go, and how far it is at both ends.
#[derive(Clone, Copy)]
struct Way {
    bytes: usize,
    written: usize,
    read: usize,
}

/// The byte at a place of a stream.
fn byte(place: usize) -> u8 {
    (place % 251).to_le_bytes()[0]
}

impl Way {
    fn is_over(self) -> bool {
        self.read == self.bytes
    }

    /// Writes up to so many bytes; whether the stream still works.
    fn write(&mut self, from: &mut Remote, most: usize) -> bool {
        let end = self.bytes.min(self.written + most);
        let part: Vec<u8> = (self.written..end).map(byte).collect();
        self.wrote(from.write(&[IoSlice::new(&part)]))
    }

    /// The same, all but the first `before` of which lie in a piece of memory that the card was lent, where one is free.
    fn write_lent(&mut self, from: &mut Remote, most: usize, before: usize, of: &Lent) -> bool {
        let end = self.bytes.min(self.written + most.min(LONGEST));
        let cut = end.min(self.written + before);
        let filled = |piece: &mut [u8]| {
            let bytes = piece.iter_mut().zip(cut..end);
            bytes.for_each(|(place, at)| *place = byte(at));
        };
        let Some(payload) = of.take(end - cut, filled) else {
            return self.write(from, most);
        };
        let part: Vec<u8> = (self.written..cut).map(byte).collect();
        let (control, header) = part.split_at(part.len() / 2);
        self.wrote(from.write_chunk([control, header].map(IoSlice::new), &payload))
    }

    fn wrote(&mut self, wrote: io::Result<usize>) -> bool {
        match wrote {
            Ok(bytes) => self.written += bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
        true
    }

    /// Reads what is there, and looks at it; whether the stream still works.
    fn read(&mut self, to: &mut Remote, most: usize) -> bool {
        let mut part = vec![0; most];
        match to.read(&mut [IoSliceMut::new(&mut part)]) {
            Ok(bytes) => {
                let there = part[..bytes].iter().copied();
                assert!(
                    there.eq((self.read..self.read + bytes).map(byte)),
                    "bytes in order, each once"
                );
                self.read += bytes;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
        true
    }
}

/// What a stream has come to.
struct Carried {
    ways: [Way; 2],
    /// How many rails are left at each end.
    usable: [usize; 2],
    /// How many both ends said that they had lost.
    lost: u64,
}

type Lent = Arc<LentPool>;

/// Memory of so many pieces, each for a message, and both ends of a stream of which one is lent it.
async fn lending(fabric: &Fabric, pieces: usize) -> (Lent, [Remote; 2]) {
    let lent = LentPool::new(pieces, LONGEST);
    let lender = Lending::new(fabric.adapter(), Arc::clone(&lent) as _);
    let ends = ends_by([Arc::new(lender), fabric.adapter()]).await;
    (lent, ends)
}

/// A stream between both ends, with these cards failing one after the other.
async fn carry(seed: u64, failing: &[u8]) -> Carried {
    let fabric = Fabric::with_cards(seed, CARDS);
    let ends = ends(&fabric).await;
    carry_by(&fabric, ends, None, (seed, failing)).await
}

async fn carry_by(
    fabric: &Fabric,
    [mut here, mut there]: [Remote; 2],
    lent: Option<&Lent>,
    (seed, failing): (u64, &[u8]),
) -> Carried {
    let mut draws = Draws(seed);
    let mut ways = [3_000_000, 50_000].map(|bytes| Way {
        bytes,
        written: 0,
        read: 0,
    });
    let mut moments: Vec<usize> = failing.iter().map(|_| draws.below(ways[0].bytes)).collect();
    moments.sort_unstable();
    let mut coming = failing.iter().zip(moments).peekable();
    for _ in 0..LOOKS {
        while let Some((card, _)) = coming.next_if(|(_, moment)| *moment <= ways[0].written) {
            fabric.fail_card(*card);
        }
        let [forth, back] = &mut ways;
        let [much, little] = [1 + draws.below(2 * LONGEST), 1 + draws.below(300)];
        let wrote = match lent {
            Some(lent) => forth.write_lent(&mut here, much, draws.below(300), lent),
            None => forth.write(&mut here, much),
        };
        let works = wrote
            && forth.read(&mut there, much)
            && back.write(&mut there, little)
            && back.read(&mut here, little);
        let is_quiet = coming.peek().is_none() && ways.iter().all(|way| way.is_over());
        if !works || is_quiet {
            return Carried {
                ways,
                usable: [here.usable(), there.usable()],
                lost: fabric.counts().lost,
            };
        }
    }
    panic!("seed {seed}, {failing:?}: a stream stands still");
}

#[tokio::test]
async fn a_stream_goes_by_every_rail_and_arrives_in_order() {
    for seed in 0..20 {
        let Carried { ways, usable, lost } = carry(seed, &[]).await;
        assert!(ways.iter().all(|way| way.is_over()), "seed {seed}");
        assert_eq!(usable, [usize::from(CARDS); 2], "seed {seed}");
        assert_eq!(lost, 0, "seed {seed}");
    }
}

#[tokio::test]
async fn as_long_as_a_rail_is_left_no_byte_is_lost_and_none_comes_twice() {
    for seed in 0..25 {
        for failing in [&[1][..], &[0], &[2, 0], &[0, 1]] {
            let Carried { ways, lost, .. } = carry(seed, failing).await;
            let are_over = ways.iter().all(|way| way.is_over());
            assert!(are_over, "seed {seed}, {failing:?}");
            // By the end that it failed at, or by both; the other one may not have heard of it yet.
            let cards = failing.len() as u64;
            assert!(
                (cards..=2 * cards).contains(&lost),
                "seed {seed}, {failing:?}: {lost}"
            );
        }
    }
}

/// Pieces are spoilt as soon as they are given back, and soon others'.
#[tokio::test]
async fn what_lies_in_lent_memory_arrives_as_it_was_and_all_of_it_is_given_back() {
    for seed in 0..20 {
        for failing in [&[][..], &[1], &[2, 0]] {
            let fabric = Fabric::with_cards(seed, CARDS);
            let (lent, ends) = lending(&fabric, 5).await;
            let Carried { ways, .. } = carry_by(&fabric, ends, Some(&lent), (seed, failing)).await;
            assert!(
                ways.iter().all(|way| way.is_over()),
                "seed {seed}, {failing:?}"
            );
            assert!(fabric.counts().lent > 500_000, "{:?}", fabric.counts());
            assert_eq!(lent.free(), 5, "seed {seed}, {failing:?}");
        }
    }
}

/// It may be read until the card says that it reads nothing any more, or until there is no queue pair, whatever has become of the message.
#[tokio::test]
async fn what_a_failed_card_had_is_given_back_once_it_reads_nothing_any_more() {
    for seed in 0..20 {
        let fabric = Fabric::with_cards(seed, 2);
        fabric.hold_flushes(true);
        let (lent, [mut here, mut there]) = lending(&fabric, 2).await;
        while [here.usable(), there.usable()] != [2, 2] {
            let mut none = [0; 1];
            for end in [&mut here, &mut there] {
                let nothing = end.read(&mut [IoSliceMut::new(&mut none)]).unwrap_err();
                assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
            }
        }
        let mut way = Way {
            bytes: 2 * LONGEST,
            written: 0,
            read: 0,
        };
        fabric.set_longest(Some(1));
        while way.written < way.bytes {
            assert!(way.write_lent(&mut here, LONGEST, 28, &lent), "seed {seed}");
        }
        fabric.set_longest(None);
        fabric.fail_card(1);
        let mut until = |free: usize| {
            for _ in 0..LOOKS {
                assert!(way.read(&mut there, LONGEST) && way.write(&mut here, 0));
                if way.is_over() && here.usable() == 1 && lent.free() == free {
                    break;
                }
            }
            assert!(way.is_over(), "seed {seed}");
            assert_eq!(lent.free(), free, "seed {seed}");
        };
        // One of two cards has done its.
        until(1);
        if seed % 2 == 0 {
            fabric.hold_flushes(false);
            until(2);
        }
        drop(here);
        assert_eq!(lent.free(), 2, "seed {seed}");
    }
}

#[tokio::test]
async fn without_a_rail_the_stream_has_ended() {
    for seed in 0..20 {
        let Carried { ways, usable, .. } = carry(seed, &[1, 0, 2]).await;
        assert!(usable.contains(&0), "seed {seed}");
        assert!(!ways.iter().all(|way| way.is_over()) || usable.contains(&0));
    }
}
