//! The places of one layer's K words.

use crate::rows::Size;

/// The order of one layer's words, for each head. V words are always plane-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerOrder {
    /// `[head][channel][plane]`: the word's place among the head's `channels * 8`. Empty for plane-major.
    heads: Vec<Vec<[u16; 8]>>,
}

/// Where the words of one tile are, counted in words.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// Plane after plane, in each group after group.
    PlaneMajor {
        /// The groups of a plane.
        groups: u16,
    },
    /// `[group][plane]`.
    Listed(&'a [[u16; 8]]),
}

impl LayerOrder {
    /// Plane after plane, in each channel after channel.
    pub const fn plane_major() -> Self {
        Self { heads: Vec::new() }
    }

    /// The order in which each head's list names the channels: a channel's n-th mention is its n-th plane.
    /// On failure, the first head whose list doesn't name each of the `channels` exactly eight times.
    pub(super) fn from_lists(channels: usize, lists: &[Vec<u8>]) -> Result<Self, usize> {
        let heads = lists.iter().enumerate();
        let heads = heads.map(|(head, list)| places(channels, list).ok_or(head));
        Ok(Self {
            heads: heads.collect::<Result<_, _>>()?,
        })
    }

    /// The lists that [`Self::from_lists`] takes.
    pub(super) fn lists(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.heads.iter().map(|places| {
            let mut list = vec![0; places.len() * 8];
            for (channel, places) in (0..=u8::MAX).zip(places) {
                for &place in places {
                    list[usize::from(place)] = channel;
                }
            }
            list
        })
    }

    /// The places of the words of `head`'s K tile.
    ///
    /// # Panics
    /// Where the order is that of a shape with fewer heads.
    pub(crate) fn place(&self, head: usize, size: Size) -> Place<'_> {
        if self.heads.is_empty() {
            Place::plane_major(size)
        } else {
            Place::Listed(&self.heads[head][..size.groups])
        }
    }
}

impl Place<'_> {
    /// Plane after plane.
    pub(crate) fn plane_major(size: Size) -> Self {
        let groups = u16::try_from(size.groups).expect("a tile has at most 256 groups");
        Self::PlaneMajor { groups }
    }

    /// The places of a group's eight words, most significant plane first, ascending.
    #[inline(always)]
    pub(crate) fn of(&self, group: usize) -> [u16; 8] {
        match self {
            #[expect(clippy::cast_possible_truncation, reason = "at most 256 groups")]
            Self::PlaneMajor { groups } => {
                [0, 1, 2, 3, 4, 5, 6, 7].map(|plane| plane * groups + group as u16)
            }
            Self::Listed(places) => places[group],
        }
    }
}

fn places(channels: usize, list: &[u8]) -> Option<Vec<[u16; 8]>> {
    let mut places = vec![[0; 8]; channels];
    let mut planes = vec![0usize; channels];
    if list.len() != channels * 8 {
        return None;
    }
    for (place, &channel) in (0u16..).zip(list) {
        let channel = usize::from(channel);
        let plane = planes.get_mut(channel)?;
        *places.get_mut(channel)?.get_mut(*plane)? = place;
        *plane += 1;
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channels_mentions_are_its_planes() {
        let mut list = vec![1u8; 8];
        list.extend([0; 8]);
        let order = LayerOrder::from_lists(2, &[list.clone()]).unwrap();
        let place = order.place(
            0,
            Size {
                groups: 2,
                lanes: 16,
            },
        );
        assert_eq!(place.of(1), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(place.of(0), [8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(order.lists().collect::<Vec<_>>(), [list]);
    }

    #[test]
    fn a_list_with_a_wrong_count_is_refused() {
        let good = vec![0u8, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1];
        assert!(LayerOrder::from_lists(2, std::slice::from_ref(&good)).is_ok());
        let mut nine = good.clone();
        nine[1] = 0;
        let mut unknown = good.clone();
        unknown[3] = 2;
        for bad in [nine, unknown, good[..15].to_vec(), Vec::new()] {
            assert_eq!(LayerOrder::from_lists(2, &[good.clone(), bad]), Err(1));
        }
    }
}
