//! Which words come first: a model's priority of K's code words, and its table of anchor widths.
//!
//! A few K channels carry most of what attention sees. A profile gives each (layer, head) one list in which every word
//! (channel, plane) has its place, so that *any* prefix of the list is the best anchor of that size. It is part of the format: both
//! peers must hold the same one, and name it by its hash.

mod json;
mod order;
mod weights;

use core::fmt;

use lynx_units::Width;
use sha2::{Digest, Sha256};

use crate::{Cuts, KvShape, ShapeError};

pub use order::LayerOrder;

/// The anchors that measured best with plane-major K, as (K, V) bits.
const UNIFORM_ANCHORS: [(u8, u8); 4] = [(4, 3), (4, 4), (5, 4), (6, 4)];
/// The anchors that measured best with K words by weight.
const WEIGHTED_ANCHORS: [(u8, u8); 3] = [(3, 4), (4, 4), (5, 4)];
/// The longest name.
const MAX_NAME: usize = 100;

/// A model's profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    name: String,
    shape: KvShape,
    anchors: Vec<Cuts>,
    layers: Vec<LayerOrder>,
}

/// The SHA-256 of a profile's content: its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileHash(pub [u8; 32]);

/// What is wrong with a profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The text isn't JSON of the expected form.
    #[error("the profile isn't the expected JSON")]
    Json(#[from] serde_json::Error),
    /// The text is JSON of another format or version.
    #[error("this is {0:?}, not a profile this version reads (\"{format}\"): calibrate anew", format = json::FORMAT)]
    Format(String),
    /// The shape isn't one the codec takes.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The name is empty, long or has characters outside printable ASCII.
    #[error("a profile's name must be 1 to {MAX_NAME} printable ASCII characters")]
    Name,
    /// The anchors aren't in ascending order of mean width, or one is impossible.
    #[error(
        "the profile's anchors must be 1 to 8 bits for K and V, in ascending order of their mean"
    )]
    Anchors,
    /// A count doesn't fit the shape.
    #[error("the profile has {found} {what}, but its shape has {expected}")]
    Count {
        /// What was counted.
        what: &'static str,
        /// How many the shape has.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A head's list doesn't name every channel exactly eight times.
    #[error(
        "layer {layer}, head {head}: the list must name each channel exactly eight times, as two hexadecimal digits"
    )]
    Order {
        /// The layer.
        layer: usize,
        /// The head.
        head: usize,
    },
    /// A weight is negative or not a number.
    #[error("weight {0} is negative or not finite")]
    Weight(usize),
}

impl Profile {
    /// The profile of a model that has none: plane-major K.
    ///
    /// # Errors
    /// Where the codec doesn't take the shape.
    pub fn uniform(shape: KvShape) -> Result<Self, ShapeError> {
        let layers = vec![LayerOrder::plane_major(); shape.check()?.layers];
        let anchors = anchors(&UNIFORM_ANCHORS);
        Ok(Self {
            name: "uniform".to_owned(),
            shape,
            anchors,
            layers,
        })
    }

    /// The profile that gives every K word its place by what it is worth. `weights` is `[layer][head][channel]`, flat:
    /// a channel's share of the error in attention, `E[q_c^2] * E[range_c^2]`, where q is the query's channel. Each next word is the one
    /// that lowers `sum(weight_c * 4^-bits_c)` most; every channel has its first bit before any has its second.
    ///
    /// # Errors
    /// Where the codec doesn't take the shape, the name isn't printable, or a weight is missing, negative or not finite.
    pub fn from_weights(name: &str, shape: KvShape, weights: &[f64]) -> Result<Self, ProfileError> {
        shape.check()?;
        let expected = shape.layers * shape.kv_heads * shape.head_dim;
        if weights.len() != expected {
            return Err(ProfileError::Count {
                what: "weights",
                expected,
                found: weights.len(),
            });
        }
        if let Some(bad) = weights.iter().position(|w| !w.is_finite() || *w < 0.0) {
            return Err(ProfileError::Weight(bad));
        }
        let heads: Vec<_> = weights
            .chunks(shape.head_dim)
            .map(weights::greedy)
            .collect();
        Self::from_lists(name, shape, anchors(&WEIGHTED_ANCHORS), &heads)
    }

    /// The profile with these lists of channels, `[layer * kv_heads + head]`; none at all for plane-major.
    fn from_lists(
        name: &str,
        shape: KvShape,
        anchors: Vec<Cuts>,
        lists: &[Vec<u8>],
    ) -> Result<Self, ProfileError> {
        shape.check()?;
        let printable = name.bytes().all(|b| (0x20..0x7f).contains(&b));
        if name.is_empty() || name.len() > MAX_NAME || !printable {
            return Err(ProfileError::Name);
        }
        if anchors.is_empty() || !anchors.is_sorted_by(|a, b| budget(*a) < budget(*b)) {
            return Err(ProfileError::Anchors);
        }
        let heads = shape.layers * shape.kv_heads;
        let layers = if lists.is_empty() {
            vec![LayerOrder::plane_major(); shape.layers]
        } else if lists.len() == heads {
            let layers = lists.chunks(shape.kv_heads).enumerate();
            layers
                .map(|(layer, lists)| {
                    LayerOrder::from_lists(shape.head_dim, lists)
                        .map_err(|head| ProfileError::Order { layer, head })
                })
                .collect::<Result<_, _>>()?
        } else {
            return Err(ProfileError::Count {
                what: "lists",
                expected: heads,
                found: lists.len(),
            });
        };
        Ok(Self {
            name: name.to_owned(),
            shape,
            anchors,
            layers,
        })
    }

    /// A name for people, such as the model's; it isn't part of the identity.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The shape of the caches that this profile is for.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// The order of `layer`'s words; plane-major for layers that the shape doesn't have.
    pub fn layer(&self, layer: usize) -> &LayerOrder {
        static PLANE_MAJOR: LayerOrder = LayerOrder::plane_major();
        self.layers.get(layer).unwrap_or(&PLANE_MAJOR)
    }

    /// The anchor of mean width `mean` over K and V that measured best: never wider, and as wide as the steps allow.
    /// Between two measured anchors, K takes the difference; beyond the widest, K and V share it; below the narrowest,
    /// both are narrow alike, with the odd bit in K. Below one bit it is one bit.
    pub fn cuts(&self, mean: Width) -> Cuts {
        let budget_wanted = u16::from(mean.eighths()) * 2;
        let measured = self
            .anchors
            .iter()
            .rposition(|cuts| budget(*cuts) <= budget_wanted);
        let Some(index) = measured else {
            let v = (budget_wanted / 16).clamp(1, 8);
            return cuts(budget_wanted.saturating_sub(v * 8), v);
        };
        let anchor = self.anchors[index];
        let spare = budget_wanted - budget(anchor);
        let for_v = if index + 1 == self.anchors.len() {
            spare / 16
        } else {
            0
        };
        let k = u16::from(anchor.k().eighths()) + spare - for_v * 8;
        let beyond_k = k.saturating_sub(64) / 8;
        cuts(k, (u16::from(anchor.v()) + for_v + beyond_k).min(8))
    }

    /// The identity: equal for two profiles exactly if they code alike.
    pub fn hash(&self) -> ProfileHash {
        let mut hash = Sha256::new();
        hash.update(b"lynx profile 1");
        for count in [self.shape.layers, self.shape.kv_heads, self.shape.head_dim] {
            hash.update((count as u64).to_le_bytes());
        }
        for cuts in &self.anchors {
            hash.update([cuts.k().eighths(), cuts.v()]);
        }
        hash.update([0]);
        for list in self.lists() {
            hash.update(list);
        }
        ProfileHash(hash.finalize().into())
    }

    /// The lists of channels, `[layer * kv_heads + head]`; none for plane-major.
    fn lists(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.layers.iter().flat_map(LayerOrder::lists)
    }
}

impl fmt::Display for ProfileHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The eighths of a bit that an anchor spends on a K and a V channel together: twice its mean.
fn budget(cuts: Cuts) -> u16 {
    u16::from(cuts.k().eighths()) + 8 * u16::from(cuts.v())
}

fn anchors(bits: &[(u8, u8)]) -> Vec<Cuts> {
    bits.iter()
        .map(|&(k, v)| cuts(u16::from(k) * 8, u16::from(v)))
        .collect()
}

/// The cuts nearest to these widths (K in eighths) that are possible.
fn cuts(k: u16, v: u16) -> Cuts {
    let eighths = u8::try_from(k.clamp(8, 64)).unwrap_or(64);
    let k = Width::from_eighths(eighths).unwrap_or(Width::FULL);
    let v = u8::try_from(v.clamp(1, 8)).unwrap_or(8);
    Cuts::new(k, v).expect("both were brought into range")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: KvShape = KvShape {
        layers: 2,
        kv_heads: 2,
        head_dim: 16,
    };

    fn chosen(profile: &Profile, mean: &str) -> (f64, u8) {
        let cuts = profile.cuts(mean.parse().unwrap());
        (cuts.k().bits(), cuts.v())
    }

    #[test]
    fn a_mean_width_becomes_the_anchor_that_measured_best() {
        let uniform = Profile::uniform(SHAPE).unwrap();
        for (mean, anchor) in [
            ("0", (1.0, 1)),
            ("2", (2.0, 2)),
            ("2.5", (3.0, 2)),
            ("3", (3.0, 3)),
            ("3.5", (4.0, 3)),
            ("4", (4.0, 4)),
            ("4.25", (4.5, 4)),
            ("4.5", (5.0, 4)),
            ("5", (6.0, 4)),
            ("6", (7.0, 5)),
            ("7", (8.0, 6)),
            ("7.5", (8.0, 7)),
            ("8", (8.0, 8)),
        ] {
            assert_eq!(chosen(&uniform, mean), anchor, "{mean}");
        }
        let weighted = Profile::from_weights("w", SHAPE, &[1.0; 64]).unwrap();
        assert_eq!(chosen(&weighted, "3.5"), (3.0, 4));
        assert_eq!(chosen(&weighted, "3.75"), (3.5, 4));
        assert_eq!(chosen(&weighted, "5"), (6.0, 4));
    }

    #[test]
    fn no_anchor_is_wider_than_asked_for() {
        let profile = Profile::uniform(SHAPE).unwrap();
        for eighths in 8..=64 {
            let mean = Width::from_eighths(eighths).unwrap();
            let got = profile.cuts(mean).mean();
            assert!(
                got <= mean.bits() && got > mean.bits() - 0.51,
                "{mean} {got}"
            );
        }
    }

    #[test]
    fn profiles_are_told_apart_by_what_they_code() {
        let mut weights = vec![1.0; 64];
        let even = Profile::from_weights("a", SHAPE, &weights).unwrap();
        weights[17] = 5.0;
        let uneven = Profile::from_weights("a", SHAPE, &weights).unwrap();
        let renamed = Profile::from_weights("b", SHAPE, &weights).unwrap();
        let uniform = Profile::uniform(SHAPE).unwrap();
        assert_ne!(even.hash(), uneven.hash());
        assert_ne!(even.hash(), uniform.hash());
        assert_eq!(uneven.hash(), renamed.hash());
        assert_eq!(uniform.hash().to_string().len(), 64);
    }

    #[test]
    fn a_width_of_whole_bits_takes_the_same_words_of_even_weights_as_plane_major() {
        let even = Profile::from_weights("even", SHAPE, &[1.0; 64]).unwrap();
        let words = even.layer(0).lists().next().unwrap();
        let plane: Vec<u8> = (0..16).collect();
        assert!(words.chunks(16).all(|chunk| chunk == plane));
    }

    #[test]
    fn impossible_profiles_are_refused() {
        let weights = [1.0; 64];
        let bad = |index: usize, weight: f64| {
            let mut weights = weights;
            weights[index] = weight;
            Profile::from_weights("w", SHAPE, &weights)
        };
        assert!(matches!(bad(3, f64::NAN), Err(ProfileError::Weight(3))));
        assert!(matches!(bad(63, -1.0), Err(ProfileError::Weight(63))));
        assert!(matches!(
            Profile::from_weights("w", SHAPE, &[1.0; 63]),
            Err(ProfileError::Count { .. })
        ));
        assert!(matches!(
            Profile::from_weights("", SHAPE, &weights),
            Err(ProfileError::Name)
        ));
        let odd = KvShape {
            head_dim: 12,
            ..SHAPE
        };
        assert!(Profile::uniform(odd).is_err());
    }
}
