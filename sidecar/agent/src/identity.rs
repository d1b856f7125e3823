//! What must be the same on both sides of a transfer, and what to say where it isn't.

use std::collections::BTreeMap;

use lynx_kernels::{CODEC_VERSION, Profile};
use lynx_proto::engine::v1::Attach;
use lynx_proto::peer::v1;
use lynx_transport::PeerInfo;

use crate::pool::Layout;

/// An agent's name and the facts that decide whether it can work with another. The same facts go over peer control, before
/// a link is dialled, and over the link's own handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    name: String,
    facts: BTreeMap<String, String>,
}

impl Identity {
    /// The identity of the agent `name` with its engine attached. The layout's strides are nobody else's affair: only the
    /// shape is compared.
    pub fn new(
        name: &str,
        engine: &Attach,
        layout: &Layout,
        profile: &Profile,
        generation: &str,
    ) -> Self {
        let (rank, size) = engine.layout.as_ref().map_or((0, 1), |layout| {
            (layout.tensor_parallel_rank, layout.tensor_parallel_size)
        });
        let facts = [
            ("codec", CODEC_VERSION.to_string()),
            ("model", model(engine)),
            ("layout", values(layout)),
            ("tensor-parallel rank", format!("{rank} of {size}")),
            ("profile", profile_name(profile)),
            ("generation", generation.to_owned()),
        ];
        let facts = facts.map(|(key, value)| (key.to_owned(), value));
        Self {
            name: name.to_owned(),
            facts: facts.into(),
        }
    }

    /// The agent's name: what its links are known by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What must be equal on both sides, in order.
    pub(crate) fn facts(&self) -> impl Iterator<Item = (&str, &str)> {
        let facts = self.facts.iter();
        facts.map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// What differs between this side and the peer, as a sentence; `None` where they fit.
    pub fn difference(&self, peer: &v1::Identity) -> Option<String> {
        let mut info = PeerInfo::new(&peer.name);
        for (key, value) in &peer.facts {
            info = info.with(key, value);
        }
        self.to_peer_info().difference(&info)
    }

    /// For a link's handshake.
    pub fn to_peer_info(&self) -> PeerInfo {
        let info = PeerInfo::new(&self.name);
        self.facts
            .iter()
            .fold(info, |info, (key, value)| info.with(key, value))
    }

    /// For peer control.
    pub fn to_proto(&self) -> v1::Identity {
        v1::Identity {
            name: self.name.clone(),
            facts: self.facts.clone().into_iter().collect(),
        }
    }
}

/// The profile's name in a descriptor: enough of its hash to tell profiles apart, and to read aloud.
pub fn profile_name(profile: &Profile) -> String {
    let hash = hex(&profile.hash().0, 8);
    format!("{} ({hash})", profile.name())
}

/// The weights' own name and enough of their hash: what clients call the model is no matter here.
fn model(engine: &Attach) -> String {
    let name = if engine.weights.is_empty() {
        &engine.model
    } else {
        &engine.weights
    };
    format!("{name} ({})", hex(&engine.model_fingerprint, 16))
}

/// Shape and elements: FP16 and BF16 can't stand for each other.
fn values(layout: &Layout) -> String {
    let elements = if layout.is_half() { " of FP16" } else { "" };
    format!("{}{elements}", layout.shape())
}

/// The first `most` bytes.
fn hex(bytes: &[u8], most: usize) -> String {
    let bytes = bytes.iter().take(most);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use lynx_proto::engine::v1 as engine;

    use super::*;
    use crate::testing;

    fn identity(name: &str, change: impl FnOnce(&mut Attach)) -> Identity {
        let mut attach = testing::attach(engine::Role::Prefill, 4);
        change(&mut attach);
        let layout = Layout::parse(attach.layout.as_ref().unwrap()).unwrap();
        let profile = Profile::uniform(layout.shape()).unwrap();
        Identity::new(name, &attach, &layout, &profile, "gen-1")
    }

    #[test]
    fn equal_engines_fit_whatever_their_agents_are_called() {
        let (a, b) = (identity("a", |_| {}), identity("b", |_| {}));
        assert_eq!(a.difference(&b.to_proto()), None);
        assert_eq!(a.to_peer_info().difference(&b.to_peer_info()), None);
    }

    #[test]
    fn another_model_is_named_with_both_sides() {
        let here = identity("prefill-0", |_| {});
        let there = identity("decode-0", |attach| {
            attach.model_fingerprint = vec![0xff; 32];
        });
        assert_eq!(
            here.difference(&there.to_proto()).unwrap(),
            "model is tiny (07070707070707070707070707070707) on prefill-0 and tiny (ffffffffffffffffffffffffffffffff) on decode-0"
        );
    }

    #[test]
    fn a_fact_that_only_one_side_knows_is_a_difference() {
        let here = identity("a", |_| {});
        let mut there = identity("b", |_| {}).to_proto();
        there.facts.remove("profile");
        assert!(here.difference(&there).unwrap().contains("not given on b"));
    }
}
