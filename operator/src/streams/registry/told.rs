//! What an agent was told, and what is news to it.

use lynx_proto::operator::v1::{Drain, FromOperator, Peers, Policy, from_operator};

/// What an agent was last told.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Told {
    pub(super) peers: Option<Peers>,
    pub(super) policy: Option<Policy>,
    pub(super) drain: Option<Drain>,
}

impl Told {
    /// What is to be said so that it knows what is `wanted`, with the look that it comes from.
    pub(super) fn news(&self, wanted: &Self, look: &str) -> Vec<FromOperator> {
        use from_operator::Kind;
        let mut news = Vec::new();
        if let Some(policy) = &wanted.policy
            && self.policy != wanted.policy
        {
            news.push(Kind::Policy(policy.clone()));
        }
        if let Some(peers) = &wanted.peers
            && self.peers != wanted.peers
        {
            news.push(Kind::Peers(peers.clone()));
        }
        match (&self.drain, &wanted.drain) {
            (None, Some(drain)) => news.push(Kind::Drain(*drain)),
            (Some(_), None) => news.push(Kind::Drain(Drain {
                deadline_ms: 0,
                cancel: true,
            })),
            _ => {}
        }
        news.into_iter()
            .map(|kind| FromOperator {
                kind: Some(kind),
                traceparent: look.to_owned(),
            })
            .collect()
    }
}
