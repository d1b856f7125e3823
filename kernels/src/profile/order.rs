//! The order of one layer's K words.

/// The order of one layer's words, for each head. V words are always plane-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerOrder {
    /// `[head][place]`: the word with this place, as `channel * 8 + plane`. Empty for plane-major.
    heads: Vec<Vec<u16>>,
}

impl LayerOrder {
    /// Plane after plane, in each channel after channel.
    pub const fn plane_major() -> Self {
        Self { heads: Vec::new() }
    }

    /// The order in which each head's list names the channels: a channel's n-th mention is its n-th plane.
    /// On failure, the first head whose list doesn't name each of the `channels` exactly eight times.
    pub(crate) fn from_lists(channels: usize, lists: &[Vec<u8>]) -> Result<Self, usize> {
        let heads = lists.iter().enumerate();
        let heads = heads.map(|(head, list)| words(channels, list).ok_or(head));
        Ok(Self {
            heads: heads.collect::<Result<_, _>>()?,
        })
    }

    /// The lists that [`Self::from_lists`] takes.
    pub(crate) fn lists(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.heads.iter().map(|words| {
            let channels = words.iter().map(|word| u8::try_from(word / 8));
            channels
                .map(|channel| channel.expect("at most 256 channels"))
                .collect()
        })
    }

    /// The words of `head`'s K tiles in their order, as `channel * 8 + plane`; `None` for plane-major.
    ///
    /// # Panics
    /// Where the order is that of a shape with fewer heads.
    pub fn words(&self, head: usize) -> Option<&[u16]> {
        if self.heads.is_empty() {
            None
        } else {
            Some(&self.heads[head])
        }
    }
}

fn words(channels: usize, list: &[u8]) -> Option<Vec<u16>> {
    let mut planes = vec![0u16; channels];
    let words = list.iter().map(|&channel| {
        let plane = planes
            .get_mut(usize::from(channel))
            .filter(|plane| **plane < 8)?;
        *plane += 1;
        Some(u16::from(channel) * 8 + *plane - 1)
    });
    let words = words.collect::<Option<Vec<_>>>()?;
    (words.len() == channels * 8).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channels_mentions_are_its_planes() {
        let list = vec![1u8, 1, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0];
        let order = LayerOrder::from_lists(2, std::slice::from_ref(&list)).unwrap();
        let words = order.words(0).unwrap();
        assert_eq!(words[..4], [8, 9, 0, 10]);
        assert_eq!(words[8..], [15, 1, 2, 3, 4, 5, 6, 7]);
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
