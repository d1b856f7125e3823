//! Streams over several cards of the model, some of which fail at any moment.

use std::io::{self, IoSlice, IoSliceMut};

use super::super::outgoing::LONGEST;
use super::super::stream::Remote;
use super::super::stream::tests::ends;
use crate::emulate::Fabric;
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
        match from.write(&[IoSlice::new(&part)]) {
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

/// A stream between both ends, with these cards failing one after the other.
async fn carry(seed: u64, failing: &[u8]) -> Carried {
    let fabric = Fabric::with_cards(seed, CARDS);
    let mut draws = Draws(seed);
    let [mut here, mut there] = ends(&fabric).await;
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
        let works = forth.write(&mut here, much)
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

#[tokio::test]
async fn without_a_rail_the_stream_has_ended() {
    for seed in 0..20 {
        let Carried { ways, usable, .. } = carry(seed, &[1, 0, 2]).await;
        assert!(usable.contains(&0), "seed {seed}");
        assert!(!ways.iter().all(|way| way.is_over()) || usable.contains(&0));
    }
}
