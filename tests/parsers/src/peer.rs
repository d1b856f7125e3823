//! What agents ask and tell each other over peer control.

use lynx_agent::coding::Coding;
use lynx_agent::peers::asked_first;
use lynx_kernels::KvShape;
use lynx_proto::peer::v1::{Identity, PeerNews, TransferRequest};
use lynx_transport::{PeerInfo, Ticket};
use prost::Message as _;

use crate::bytes::Bytes;

/// A question for KV: what a prefill agent looks at before it asks its engine. Whatever stands there, it is judged; a coding
/// is of the prompt that came, and a ticket is what it was.
pub(crate) fn question(bytes: &[u8]) {
    let Ok(request) = TransferRequest::decode(bytes) else {
        return;
    };
    if let Some(ticket) = Ticket::parse(&request.link) {
        assert_eq!(ticket.secret(), request.link);
    }
    if let Some(caller) = &request.caller {
        let caller = info(caller);
        assert_eq!(caller.difference(&caller), None);
    }
    let Some(descriptor) = &request.coding else {
        return;
    };
    // As the agent does: a plan is as long as the descriptor says.
    if descriptor.prompt_tokens as usize != request.tokens.len() {
        return;
    }
    let shape = KvShape {
        layers: 2,
        kv_heads: 1,
        head_dim: 64,
    };
    if let Ok(coding) = Coding::new(shape, descriptor) {
        let end = coding.units().ranges().map(|range| range.end).max();
        assert!(end.is_none_or(|end| end <= descriptor.prompt_tokens));
    }
}

fn info(identity: &Identity) -> PeerInfo {
    let info = PeerInfo::new(&identity.name);
    let facts = identity.facts.iter();
    facts.fold(info, |info, (key, value)| info.with(key, value))
}

/// What two peers tell of their caches and their load: one of them is asked, whatever they say.
pub(crate) fn news(bytes: &[u8]) {
    let mut head = Bytes(bytes);
    let prompt_tokens = u32::from(head.u16());
    let prompt: Vec<u64> = (0..4).map(|_| u64::from(head.u8())).collect();
    let mut rest = head.0;
    let mut told = [Vec::new(), Vec::new()];
    for turn in 0..8 {
        let Ok(news) = PeerNews::decode_length_delimited(&mut rest) else {
            break;
        };
        told[turn % 2].push(news);
    }
    let first = asked_first(told.into(), &prompt, prompt_tokens);
    assert!(first.is_some_and(|first| first < 2));
}
