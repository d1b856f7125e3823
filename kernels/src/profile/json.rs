//! A profile as a file: JSON, parsed strictly.

use serde::{Deserialize, Serialize};

use super::{Profile, ProfileError};
use crate::hex::{from_hex, to_hex};
use crate::{Cuts, KvShape};

/// What a file says it is.
pub(super) const FORMAT: &str = "lynx profile 1";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: String,
    name: String,
    layers: usize,
    kv_heads: usize,
    head_dim: usize,
    anchors: Vec<Anchor>,
    /// `[layer][head]`: the channels in order, two hexadecimal digits each. Empty for plane-major.
    orders: Vec<Vec<String>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Anchor {
    k: String,
    v: u8,
}

impl Profile {
    /// The profile as the text of a file.
    ///
    /// # Errors
    /// Never in practice: the form has nothing that JSON can't hold.
    pub fn to_json(&self) -> Result<String, ProfileError> {
        let lists: Vec<String> = self.lists().map(|list| to_hex(&list)).collect();
        let anchor = |cuts: &Cuts| Anchor {
            k: cuts.k().to_string(),
            v: cuts.v(),
        };
        let file = File {
            format: FORMAT.to_owned(),
            name: self.name.clone(),
            layers: self.shape.layers,
            kv_heads: self.shape.kv_heads,
            head_dim: self.shape.head_dim,
            anchors: self.anchors.iter().map(anchor).collect(),
            orders: lists
                .chunks(self.shape.kv_heads)
                .map(<[_]>::to_vec)
                .collect(),
        };
        Ok(serde_json::to_string_pretty(&file)? + "\n")
    }

    /// The profile that a file holds.
    ///
    /// # Errors
    /// Where anything is missing, unknown, of the wrong count, or impossible.
    pub fn from_json(text: &str) -> Result<Self, ProfileError> {
        let file: File = serde_json::from_str(text)?;
        if file.format != FORMAT {
            return Err(ProfileError::Format(file.format));
        }
        let shape = KvShape {
            layers: file.layers,
            kv_heads: file.kv_heads,
            head_dim: file.head_dim,
        };
        shape.check()?;
        let anchors = file.anchors.iter().map(|Anchor { k, v }| {
            let k = k.parse().map_err(|_| ProfileError::Anchors)?;
            Cuts::new(k, *v).map_err(|_| ProfileError::Anchors)
        });
        let anchors = anchors.collect::<Result<_, _>>()?;
        let mut lists = Vec::new();
        for (layer, heads) in file.orders.iter().enumerate() {
            if heads.len() != shape.kv_heads {
                let (what, expected, found) = ("heads in a layer", shape.kv_heads, heads.len());
                return Err(ProfileError::Count {
                    what,
                    expected,
                    found,
                });
            }
            for (head, text) in heads.iter().enumerate() {
                lists.push(from_hex(text).ok_or(ProfileError::Order { layer, head })?);
            }
        }
        Self::from_lists(&file.name, shape, anchors, &lists)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: KvShape = KvShape {
        layers: 2,
        kv_heads: 1,
        head_dim: 8,
    };

    fn sample() -> Profile {
        let weights: Vec<f64> = (0..16).map(|i| f64::from(i * 7 % 5)).collect();
        Profile::from_weights("tiny", SHAPE, &weights).unwrap()
    }

    #[test]
    fn a_profile_comes_back_from_its_file() {
        for profile in [sample(), Profile::uniform(SHAPE).unwrap()] {
            let read = Profile::from_json(&profile.to_json().unwrap()).unwrap();
            assert_eq!(read, profile);
            assert_eq!(read.hash(), profile.hash());
        }
    }

    #[test]
    fn a_changed_file_is_refused_or_another_profile() {
        let profile = sample();
        let text = profile.to_json().unwrap();
        for (from, to) in [
            ("lynx profile 1", "lynx profile 2"),
            ("\"layers\": 2", "\"layers\": 3"),
            ("\"kv_heads\": 1", "\"kv_heads\": 2"),
            ("\"kv_heads\": 1", "\"kv_heads\": 0"),
            ("\"head_dim\": 8", "\"head_dim\": 16"),
            ("\"name\"", "\"nom\""),
            ("\"name\": \"tiny\"", "\"name\": \"\\u0007\""),
            ("\"k\": \"3\"", "\"k\": \"5\""),
            ("\"k\": \"3\"", "\"k\": \"0\""),
            ("\"v\": 4", "\"v\": 9"),
            ("0", "g"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            assert!(Profile::from_json(&changed).is_err(), "{from} -> {to}");
        }
        let extra = text.replacen('{', "{\"extra\": 1,", 1);
        assert!(Profile::from_json(&extra).is_err());
        assert!(Profile::from_json(&text[..text.len() / 2]).is_err());
    }
}
