//! What a deployment wants of transfers: the configuration, with what the operator has said since over it.

use std::time::Duration;

use lynx_policy::{Fidelity, MAX_DEPTH};
use lynx_proto::operator::v1::{Fidelity as ToldFidelity, Policy};
use lynx_units::Width;

use crate::config::{Anchor, Transfer};
use crate::method::Method;

/// The terms of new transfers.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    configured: Transfer,
    policy: Policy,
}

impl Terms {
    /// What the file says.
    pub(super) fn new(configured: Transfer) -> Self {
        Self {
            configured,
            policy: Policy::default(),
        }
    }

    /// What the operator says; what it leaves out, the file says.
    pub(super) fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// How KV travels where a request doesn't say.
    pub(super) fn method(&self) -> Method {
        match self.fidelity() {
            Fidelity::Exact => Method::LynxExact,
            Fidelity::Int8 => Method::LynxInt8,
        }
    }

    /// How wide the anchor is on links of this class, where a request doesn't say. The operator's width stands for what
    /// this agent would choose. A class that the operator doesn't name is new: its links are like those of no class.
    pub(super) fn anchor(&self, class: &str) -> Anchor {
        let classes = &self.policy.widths;
        let of = |name: &str| classes.iter().find(|told| told.link_class == name);
        let told = of(class).or_else(|| of(""));
        let eighths = told.and_then(|class| u8::try_from(class.anchor_eighths).ok());
        match (
            self.configured.anchor,
            eighths.and_then(Width::from_eighths),
        ) {
            (Anchor::Adaptive(_), Some(width)) => Anchor::Fixed(width),
            (configured, _) => configured,
        }
    }

    /// What a width is chosen for.
    pub(super) fn objective(&self) -> lynx_policy::Objective {
        self.configured.objective
    }

    /// The deepest draft.
    pub(super) fn max_draft_tokens(&self) -> u32 {
        match self.policy.max_draft_tokens {
            0 => self.configured.max_draft_tokens,
            told => told,
        }
        .min(MAX_DEPTH)
    }

    /// When a transfer that isn't complete has failed.
    pub(super) fn deadline(&self) -> Duration {
        match self.policy.transfer_deadline_ms {
            0 => self.configured.deadline,
            told => Duration::from_millis(told),
        }
    }

    fn fidelity(&self) -> Fidelity {
        match self.policy.fidelity() {
            ToldFidelity::Unspecified => self.configured.fidelity,
            ToldFidelity::Exact => Fidelity::Exact,
            ToldFidelity::Int8 => Fidelity::Int8,
        }
    }
}

#[cfg(test)]
mod tests {
    use lynx_policy::{Bounds, Objective};
    use lynx_proto::operator::v1::ClassWidth;
    use lynx_units::Bytes;

    use super::*;

    fn width(bits: u8) -> Width {
        Width::from_bits(bits).unwrap()
    }

    fn terms(anchor: Anchor) -> Terms {
        Terms::new(Transfer {
            fidelity: Fidelity::Exact,
            objective: Objective::Verified,
            anchor,
            profile: None,
            max_draft_tokens: 32,
            allow_provisional: true,
            deadline: Duration::from_secs(600),
            receive_buffer: Bytes::from_mib(64),
            merge_buffer: Bytes::from_mib(64),
            send_buffer: Bytes::from_mib(64),
            per_peer: 1,
            message_memory: Bytes::default(),
            max_peers: 2,
            most: 1,
            prefix_blocks: 1000,
        })
    }

    fn adaptive() -> Anchor {
        Anchor::Adaptive(Bounds::new(width(3), width(8)).unwrap())
    }

    #[test]
    fn what_the_operator_leaves_out_the_file_says() {
        let mut terms = terms(adaptive());
        terms.set_policy(Policy::default());
        assert_eq!(terms.method(), Method::LynxExact);
        assert_eq!(terms.anchor(""), adaptive());
        assert_eq!(terms.max_draft_tokens(), 32);
        assert_eq!(terms.deadline(), Duration::from_secs(600));
    }

    #[test]
    fn what_the_operator_says_is_what_counts() {
        let mut terms = terms(adaptive());
        let class = |name: &str, anchor_eighths| ClassWidth {
            link_class: name.to_owned(),
            anchor_eighths,
        };
        terms.set_policy(Policy {
            fidelity: ToldFidelity::Int8.into(),
            widths: vec![class("cross", 24), class("", 40)],
            max_draft_tokens: 1000,
            allow_provisional: false,
            transfer_deadline_ms: 5000,
        });
        assert_eq!(terms.method(), Method::LynxInt8);
        assert_eq!(terms.anchor(""), Anchor::Fixed(width(5)));
        assert_eq!(terms.anchor("same"), Anchor::Fixed(width(5)));
        assert_eq!(terms.anchor("cross"), Anchor::Fixed(width(3)));
        assert_eq!(terms.max_draft_tokens(), MAX_DEPTH);
        assert_eq!(terms.deadline(), Duration::from_secs(5));
    }

    #[test]
    fn a_width_that_the_file_fixes_stays() {
        let mut terms = terms(Anchor::Fixed(width(6)));
        let widths = vec![ClassWidth {
            link_class: String::new(),
            anchor_eighths: 24,
        }];
        terms.set_policy(Policy {
            widths,
            ..Policy::default()
        });
        assert_eq!(terms.anchor(""), Anchor::Fixed(width(6)));
    }
}
