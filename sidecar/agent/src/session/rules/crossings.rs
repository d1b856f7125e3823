//! An engine that keeps the rules is never sent away, whatever overtakes what on the way, and is never written over.
//!
//! Three queues lie between an engine and a role: what the agent has said, what the engine has said, and what is checked
//! and waits for the role, whose clients' wishes overtake it there.

use std::collections::{BTreeMap, VecDeque};

use lynx_kernels::Kind as Half;
use lynx_proto::engine::v1::{
    Abort, AnchorReady, Forget, Forgotten, FullReady, GrantReturned, KvFailed, Role, Submit,
    WantGrant, WriteGrant,
};

use super::*;
use crate::pool::Access;
use crate::testing::{Random, attach, make_pool, open_pool};

const BLOCKS: u32 = 3;

/// Whose a request's blocks are, as its engine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Agents,
    Lent {
        wanted: bool,
    },
    Granted,
    /// The agent has said its last word about the KV.
    Own,
    /// Finished while the blocks were the agent's.
    Ended,
}

/// An engine that hands a freed block to the next request.
struct Model {
    own_front: bool,
    free: Vec<u32>,
    /// Submitted, and not announced.
    pending: Vec<u64>,
    running: BTreeMap<u64, (Vec<u32>, View)>,
    next: u64,
    said: VecDeque<from_engine::Kind>,
}

impl Model {
    fn say(&mut self, kind: from_engine::Kind) {
        self.said.push_back(kind);
    }

    fn finished(&mut self, request: u64) {
        self.say(from_engine::Kind::Finished(Finished {
            request,
            ..Finished::default()
        }));
    }

    fn free(&mut self, request: u64) {
        if let Some((blocks, _)) = self.running.remove(&request) {
            self.free.extend(blocks);
        }
    }

    fn abort(&mut self, request: u64) {
        let pending = self.pending.iter().position(|one| *one == request);
        if let Some(at) = pending {
            self.pending.remove(at);
            return self.finished(request);
        }
        let Some((_, view)) = self.running.get(&request) else {
            return;
        };
        if *view != View::Ended {
            self.finished(request);
        }
        self.free(request);
    }

    /// The agent gives the blocks back.
    fn take_back(&mut self, request: u64, to: View) {
        match self.running.get_mut(&request) {
            Some((_, View::Ended)) => self.free(request),
            Some((_, view)) => *view = to,
            // It has crossed the end.
            None => {}
        }
    }

    fn hear(&mut self, kind: &from_agent::Kind) {
        use from_agent::Kind;
        let lent = View::Lent { wanted: false };
        match kind {
            Kind::Submit(submit) => self.pending.push(submit.request),
            Kind::Abort(abort) => self.abort(abort.request),
            Kind::WantGrant(want) => {
                if let Some((_, View::Lent { wanted })) = self.running.get_mut(&want.request) {
                    *wanted = true;
                }
            }
            Kind::AnchorReady(ready) => self.take_back(ready.request, lent),
            Kind::GrantReturned(returned) => self.take_back(returned.request, lent),
            Kind::FullReady(ready) => self.take_back(ready.request, View::Own),
            Kind::KvFailed(failed) => self.take_back(failed.request, View::Own),
            Kind::Forget(_) => {
                let pending = std::mem::take(&mut self.pending);
                pending.into_iter().for_each(|one| self.finished(one));
                let running: Vec<u64> = self.running.keys().copied().collect();
                running.into_iter().for_each(|one| self.abort(one));
                self.say(from_engine::Kind::Forgotten(Forgotten {}));
            }
            other => panic!("{other:?}"),
        }
    }

    fn announce(&mut self, random: &mut Random) {
        let count = 1 + random.below(2) as usize;
        if self.free.len() < count || (self.pending.is_empty() && !self.own_front) {
            return;
        }
        if self.own_front {
            self.next += 1;
            self.pending.push(ENGINES | self.next);
        }
        let request = self.pending.remove(0);
        let blocks = self.free.split_off(self.free.len() - count);
        self.running.insert(request, (blocks.clone(), View::Agents));
        self.say(from_engine::Kind::Expect(Expect {
            request,
            tokens: vec![0; count * BLOCK_TOKENS],
            blocks,
            ..Expect::default()
        }));
    }

    /// Grants what is wanted, or ends a request.
    fn step(&mut self, random: &mut Random) {
        let among = random.below(3) as usize;
        let Some((&request, (_, view))) = self.running.iter_mut().nth(among) else {
            return;
        };
        match *view {
            View::Lent { wanted: true } if random.below(2) == 0 => {
                *view = View::Granted;
                self.say(from_engine::Kind::WriteGrant(WriteGrant { request }));
            }
            View::Agents | View::Granted if random.below(3) == 0 => {
                *view = View::Ended;
                self.finished(request);
            }
            View::Lent { .. } | View::Own => {
                self.finished(request);
                self.free(request);
            }
            View::Agents | View::Granted | View::Ended => {}
        }
    }
}

/// Whose a request's blocks are, as the role sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Agent,
    Engine,
    Asked,
    Granted,
}

struct World {
    rules: Rules,
    engine: Model,
    to_engine: VecDeque<from_agent::Kind>,
    inbox: VecDeque<Message>,
    /// Requests that are wanted.
    wanted: Vec<u64>,
    held: BTreeMap<u64, (Writable, u32, Owner)>,
    next: u64,
}

impl World {
    fn new(rules: Rules) -> Self {
        let engine = Model {
            own_front: rules.own_front,
            free: (0..BLOCKS).collect(),
            pending: Vec::new(),
            running: BTreeMap::new(),
            next: 0,
            said: VecDeque::new(),
        };
        Self {
            rules,
            engine,
            to_engine: VecDeque::new(),
            inbox: VecDeque::new(),
            wanted: Vec::new(),
            held: BTreeMap::new(),
            next: 0,
        }
    }

    fn say(&mut self, kind: from_agent::Kind) {
        self.rules.said(&kind);
        self.to_engine.push_back(kind);
    }

    fn submit(&mut self) {
        if self.engine.own_front || self.wanted.len() >= 4 {
            return;
        }
        self.next += 1;
        self.wanted.push(self.next);
        self.say(from_agent::Kind::Submit(Submit {
            request: self.next,
            transfer: true,
            ..Submit::default()
        }));
    }

    /// The client goes.
    fn leave(&mut self, random: &mut Random) {
        if let Some(at) = (random.below(4) as usize).checked_rem(self.wanted.len()) {
            let request = self.wanted.remove(at);
            self.held.remove(&request);
            self.say(from_agent::Kind::Abort(Abort { request }));
        }
    }

    fn forget(&mut self) {
        if self.held.is_empty() {
            self.say(from_agent::Kind::Forget(Forget {}));
        }
    }

    fn hear(&mut self) {
        if let Some(kind) = self.engine.said.pop_front() {
            let heard = self.rules.heard(kind.clone());
            let heard = heard.unwrap_or_else(|broken| panic!("{broken}, by {kind:?}"));
            self.inbox.extend(heard);
        }
    }

    fn handle(&mut self) {
        match self.inbox.pop_front() {
            Some(Message::Expect(expected)) if expected.blocks.is_granted() => {
                let tokens = u32::try_from(expected.tokens.len()).unwrap();
                let held = (expected.blocks, tokens, Owner::Agent);
                self.held.insert(expected.request, held);
            }
            Some(Message::WriteGrant { request }) => {
                if let Some((_, _, owner)) = self.held.get_mut(&request) {
                    assert_eq!(*owner, Owner::Asked);
                    *owner = Owner::Granted;
                }
            }
            Some(Message::Finished(Finished { request, .. })) => {
                self.wanted.retain(|one| *one != request);
                if self.held.remove(&request).is_some() {
                    self.say(from_agent::Kind::Abort(Abort { request }));
                }
            }
            _ => {}
        }
    }

    /// Writes where that may be, and says something about it.
    fn work(&mut self, random: &mut Random) {
        let among = random.below(3) as usize;
        let Some((&request, (table, tokens, owner))) = self.held.iter_mut().nth(among) else {
            return;
        };
        if matches!(owner, Owner::Agent | Owner::Granted) {
            assert!(table.sink(1, Half::V, 0..*tokens).is_ok());
            let (_, view) = &self.engine.running[&request];
            let is_the_agents = matches!(view, View::Agents | View::Granted | View::Ended);
            assert!(is_the_agents, "{view:?}");
        }
        let kind = match (*owner, random.below(4)) {
            (Owner::Agent | Owner::Granted, 0) => {
                *owner = Owner::Engine;
                from_agent::Kind::AnchorReady(AnchorReady {
                    request,
                    ..AnchorReady::default()
                })
            }
            (Owner::Granted, 1) => {
                *owner = Owner::Engine;
                from_agent::Kind::GrantReturned(GrantReturned { request })
            }
            (Owner::Engine, 0 | 1) => {
                *owner = Owner::Asked;
                from_agent::Kind::WantGrant(WantGrant { request })
            }
            (Owner::Agent | Owner::Granted, 2) => {
                self.held.remove(&request);
                let exact = true;
                from_agent::Kind::FullReady(FullReady { request, exact })
            }
            (_, 3) => {
                self.held.remove(&request);
                let reason = String::new();
                from_agent::Kind::KvFailed(KvFailed { request, reason })
            }
            _ => return,
        };
        self.say(kind);
    }

    fn act(&mut self, random: &mut Random) {
        match random.below(16) {
            0 | 1 => self.submit(),
            2 if random.below(2) == 0 => self.leave(random),
            3 if random.below(4) == 0 => self.forget(),
            2..6 => self.work(random),
            6 => self.handle(),
            7..10 => self.hear(),
            10 | 11 => self.engine.announce(random),
            12 => self.engine.step(random),
            _ => {
                if let Some(kind) = self.to_engine.pop_front() {
                    self.engine.hear(&kind);
                }
            }
        }
    }

    /// Everything that is on its way arrives, and nobody wants anything more.
    fn settle(&mut self) {
        while !self.wanted.is_empty() {
            self.leave(&mut Random(1));
        }
        for _ in 0..200 {
            if let Some(kind) = self.to_engine.pop_front() {
                self.engine.hear(&kind);
            }
            self.hear();
            self.handle();
        }
        self.held.clear();
        self.forget();
        assert!(self.rules.pool.is_unclaimed(), "a claim leaked");
    }
}

#[test]
fn an_engine_that_keeps_the_rules_is_never_sent_away() {
    let directory = tempfile::tempdir().unwrap();
    let attach = attach(Role::Decode, BLOCKS);
    make_pool(directory.path(), &attach, 1);
    let pool = open_pool(directory.path(), &attach, Access::Write);
    bolero::check!()
        .with_type::<(bool, u64)>()
        .for_each(|&(own_front, seed)| {
            let mut random = Random(seed);
            let rules = Rules::new(Arc::clone(&pool), attach.context_tokens, own_front);
            let mut world = World::new(rules);
            for _ in 0..2000 {
                world.act(&mut random);
            }
            world.settle();
        });
}

/// The client went while its Expect waited for the role: its blocks were the next request's, which ended the session.
#[test]
fn a_claim_that_waits_for_the_role_ends_with_the_request() {
    type Leaves = fn(&mut World);
    let ends: [Leaves; 3] = [
        |world| world.leave(&mut Random(1)),
        World::forget,
        // The engine has ended it by itself, and waits for the agent's word.
        |world| {
            world.engine.finished(1);
            world.hear();
            world.leave(&mut Random(1));
        },
    ];
    for leaves in ends {
        let directory = tempfile::tempdir().unwrap();
        let attach = attach(Role::Decode, BLOCKS);
        make_pool(directory.path(), &attach, 1);
        let pool = open_pool(directory.path(), &attach, Access::Write);
        let mut world = World::new(Rules::new(pool, attach.context_tokens, false));
        world.submit();
        world.engine.pending.push(1);
        world.engine.announce(&mut Random(1));
        world.hear();
        leaves(&mut world);
        assert!(world.rules.pool.is_unclaimed());
        let Some(Message::Expect(expected)) = world.inbox.pop_front() else {
            panic!("no Expect")
        };
        assert!(!expected.blocks.is_granted());
    }
}
