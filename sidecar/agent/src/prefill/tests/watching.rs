//! What a decode agent hears before it asks.

use lynx_proto::engine::v1::{CachedBlock, CachedBlocks, from_engine};
use lynx_proto::peer::v1::{Load, PeerNews, WatchRequest};
use tonic::{Code, Streaming};

use super::peer::{Peer, identity};
use super::*;
use crate::method::Method;
use crate::prefix::{Salt, names};

fn prompt() -> Vec<u32> {
    (0..200).collect()
}

/// The prompt's blocks, numbered from 1 on.
fn cached() -> CachedBlocks {
    let prompt = prompt();
    let blocks = prompt.as_chunks::<64>().0.iter().zip(1..);
    let added = blocks.map(|(tokens, block)| CachedBlock {
        block,
        parent: block - 1,
        tokens: tokens.to_vec(),
    });
    CachedBlocks {
        reset: true,
        added: added.collect(),
        removed: Vec::new(),
    }
}

async fn watch(peer: &mut Peer) -> Streaming<PeerNews> {
    let caller = Some(peer.identity.to_proto());
    let watch = peer.client.watch(WatchRequest { caller });
    soon(watch).await.unwrap().into_inner()
}

/// Hears until the load is so.
async fn hear_until(news: &mut Streaming<PeerNews>, is_so: impl Fn(&Load) -> bool) -> Load {
    loop {
        let heard = soon(news.message()).await.unwrap().unwrap();
        if let Some(load) = heard.load.filter(|load| is_so(load)) {
            return load;
        }
    }
}

#[tokio::test]
async fn a_peer_hears_by_name_what_the_engine_has_cached() {
    let (agent, engine) = Agent::with_engine().await;
    let mut peer = Peer::meet(&agent).await;
    let names = names(Salt::of(&peer.identity), &prompt());
    let names: Vec<u64> = names.iter().map(|name| name.0).collect();
    let mut news = watch(&mut peer).await;
    let first = soon(news.message()).await.unwrap().unwrap();
    assert!(first.reset && first.added.is_empty() && first.load.is_some());
    engine.say(from_engine::Kind::CachedBlocks(cached()));
    let mut added = Vec::new();
    while added.len() < names.len() {
        let heard = soon(news.message()).await.unwrap().unwrap();
        added.extend(heard.added);
    }
    added.sort_unstable();
    let mut all = names.clone();
    all.sort_unstable();
    assert_eq!(added, all);
    engine.say(from_engine::Kind::CachedBlocks(CachedBlocks {
        removed: vec![3],
        ..CachedBlocks::default()
    }));
    loop {
        let heard = soon(news.message()).await.unwrap().unwrap();
        if !heard.removed.is_empty() {
            assert_eq!(heard.removed, [names[2]]);
            break;
        }
    }
    // Who comes later hears what is there now.
    let mut late = watch(&mut peer).await;
    let first = soon(late.message()).await.unwrap().unwrap();
    assert!(first.reset);
    assert_eq!(first.added.len(), 2);
}

#[tokio::test]
async fn a_peer_hears_what_is_ahead_and_what_a_token_takes() {
    let (agent, mut engine) = Agent::with_engine().await;
    let mut peer = Peer::meet(&agent).await;
    let mut news = watch(&mut peer).await;
    let asked = peer.ask(Method::Bf16, 100, 0);
    let _events = peer.transfer(&asked).await.unwrap();
    let load = hear_until(&mut news, |load| load.transfers == 1).await;
    assert_eq!((load.queued_tokens, load.token_time_ns), (100, 0));
    let prefill = engine.hear_prefill().await;
    engine.start(prefill.request, &[3, 4], 0);
    engine.publish(prefill.request, 0..100);
    engine.done(prefill.request, 5);
    let is_computed = |load: &Load| load.queued_tokens == 0 && load.pending_bytes > 0;
    let load = hear_until(&mut news, is_computed).await;
    // Two layers of a microsecond each for 100 tokens.
    assert_eq!(load.token_time_ns, 20);
    agent.drain.begin(Duration::from_secs(60));
    hear_until(&mut news, |load| load.draining).await;
}

#[tokio::test]
async fn a_peer_that_does_not_fit_hears_nothing_and_an_engine_that_goes_ends_the_stream() {
    let (agent, engine) = Agent::with_engine().await;
    let mut peer = Peer::meet(&agent).await;
    let other = identity(&engine::Attach {
        model_fingerprint: vec![9; 32],
        ..prefill_engine()
    });
    let caller = Some(other.to_proto());
    let refused = soon(peer.client.watch(WatchRequest { caller })).await;
    assert_eq!(refused.unwrap_err().code(), Code::FailedPrecondition);
    let mut news = watch(&mut peer).await;
    drop(engine);
    while soon(news.message()).await.unwrap().is_some() {}
}
