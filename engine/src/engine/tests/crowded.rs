//! Far more requests than there are blocks, through a queue as an agent has one, with transfers that take their time. Each
//! ends, and gives what it gives alone on an engine with blocks without end.

use super::fake::{VOCABULARY, engine, truth, write};
use super::*;

use std::collections::VecDeque;

const SEEDS: u64 = 24;
const REQUESTS: usize = 14;
/// No schedule takes half as many steps.
const MOST_STEPS: usize = 30_000;

/// Splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % end
    }

    fn number(&mut self, end: u32) -> u32 {
        u32::try_from(self.below(u64::from(end))).unwrap()
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// How far a transfer is. Only [`Complete`](Self::Complete) ones may be preempted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Transfer {
    Expected,
    Lent,
    Granted,
    Complete,
}

struct Case {
    request: Request,
    alone: (Vec<TokenId>, Vec<Logprobs>),
    id: Option<RequestId>,
    transfer: Transfer,
    /// The prompt's blocks, which stay the same ones while the transfer is under way.
    blocks: Vec<BlockId>,
}

struct World {
    random: Random,
    engine: Engine,
    clients: Clients,
    cases: Vec<Case>,
    waiting: VecDeque<usize>,
    now: Timestamp,
}

fn options(blocks: u32, room: u32) -> EngineOptions {
    EngineOptions {
        blocks,
        max_sequence: room * 64,
        chunk_tokens: 70,
        max_draft: 20,
        ..EngineOptions::default()
    }
}

fn request(random: &mut Random, room: u32) -> Request {
    // Some prompts have beginnings in common.
    let (kind, length) = (random.number(4), 1 + random.number(room * 40));
    let parting = [30, 64, 100, 150][kind as usize];
    let token = |i| 1 + (i * 7 + if i < parting { 0 } else { kind }) % (VOCABULARY - 1);
    Request {
        prompt: (0..length).map(token).collect(),
        max_tokens: [3, 40, 200, u32::MAX][random.number(4) as usize],
        sampling: if random.one_in(2) {
            Sampling::GREEDY
        } else {
            Sampling::new(0.9, 0, 0.95, random.below(1000)).unwrap()
        },
        adjust: Adjust {
            presence: if random.one_in(3) { 0.75 } else { 0.0 },
            ..Adjust::default()
        },
        top_logprobs: random.one_in(3).then_some(2),
        stop: Stop {
            ignore_eos: random.one_in(2),
            ..Stop::default()
        },
        kv: if random.one_in(2) {
            KvSource::Transfer
        } else {
            KvSource::Compute
        },
        retain: false,
    }
}

/// The oracle: blocks without end, and nobody else.
fn alone(request: &Request, room: u32) -> (Vec<TokenId>, Vec<Logprobs>) {
    let mut engine = engine(options(1000, room));
    let id = engine
        .submit(Request {
            kv: KvSource::Compute,
            ..request.clone()
        })
        .unwrap();
    let mut clients = run(&mut engine);
    assert_eq!(engine.preemptions(), 0);
    let client = clients.0.remove(&id).unwrap();
    (client.committed, client.logprobs)
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let blocks = 4 + random.number(8);
        let cases = (0..REQUESTS).map(|_| {
            let request = request(&mut random, blocks);
            Case {
                alone: alone(&request, blocks),
                request,
                id: None,
                transfer: Transfer::Expected,
                blocks: Vec::new(),
            }
        });
        Self {
            cases: cases.collect(),
            engine: engine(options(blocks, blocks)),
            random,
            clients: Clients::default(),
            waiting: (0..REQUESTS).collect(),
            now: Timestamp::ORIGIN,
        }
    }

    /// Submits what comes next in the queue, as far as the engine takes it.
    fn submit(&mut self) {
        while let Some(&index) = self.waiting.front() {
            let case = &mut self.cases[index];
            let id = match self.engine.submit(case.request.clone()) {
                Ok(id) => id,
                Err(error) => return assert!(error.is_retryable(), "{error}"),
            };
            self.waiting.pop_front();
            case.id = Some(id);
            if case.request.kv == KvSource::Transfer {
                self.engine.hold(id, self.now).unwrap();
                let blocks = case.request.prompt.len().div_ceil(64);
                case.blocks = self.engine.blocks(id).unwrap()[..blocks].to_vec();
            } else {
                case.transfer = Transfer::Complete;
            }
        }
    }

    fn is_running(&self, index: usize) -> bool {
        let Some(id) = self.cases[index].id else {
            return false;
        };
        let client = self.clients.0.get(&id);
        client.is_none_or(|client| client.finished.is_none())
    }

    /// Writes a prompt's rows; on an anchor, some are wrong.
    fn write(&mut self, id: RequestId, prompt: &[TokenId], exact: bool) {
        let cached = self.engine.cached_tokens(id).unwrap() as usize;
        let mut kv = self.engine.kv_mut(id).unwrap();
        let rows = truth(prompt).into_iter().enumerate();
        for (position, row) in rows.skip(cached) {
            let wrong = !exact && position % 5 == 0;
            write(&mut kv, position, if wrong { row.map(|v| !v) } else { row });
        }
    }

    /// The transfer's next word, whatever it may be by the rules of the engine API.
    fn transfer(&mut self, index: usize) {
        let case = &self.cases[index];
        let (Some(id), prompt) = (case.id, case.request.prompt.clone()) else {
            return;
        };
        if !self.is_running(index) {
            // Its first token was its last: its blocks are given back now.
            self.engine.unhold(id).ok();
            self.cases[index].transfer = Transfer::Complete;
            return;
        }
        let first = case.alone.0[0];
        let logprobs = case.alone.1.first().cloned();
        let (before, word) = (case.transfer, self.random.below(8));
        let next = match (before, word) {
            (Transfer::Complete, _) => return,
            (_, 0) => {
                // Also where the request has ended by that.
                return self.engine.first_token(id, first, logprobs).unwrap();
            }
            (Transfer::Lent, 1..=5) => {
                self.engine.hold(id, self.now).unwrap();
                Transfer::Granted
            }
            (_, 1..=5) => {
                self.write(id, &prompt, false);
                self.engine.unhold(id).unwrap();
                let anchor = AnchorInfo {
                    residual_due: None,
                    depth_limit: self.random.number(20),
                };
                self.engine.anchor_ready(id, anchor).unwrap();
                self.engine.redraft(id).unwrap();
                Transfer::Lent
            }
            (_, 6) => {
                self.engine.unhold(id).unwrap();
                let reason = "the peer is gone".to_owned();
                self.engine.kv_failed(id, reason).unwrap();
                Transfer::Complete
            }
            _ => {
                self.write(id, &prompt, true);
                self.engine.unhold(id).unwrap();
                self.engine.full_ready(id, Exactness::Exact).unwrap();
                // Where it has one, a second first token is nothing.
                self.engine.first_token(id, first, logprobs).unwrap();
                Transfer::Complete
            }
        };
        self.cases[index].transfer = next;
    }

    fn check_blocks(&self, index: usize) {
        let case = &self.cases[index];
        if case.transfer == Transfer::Complete {
            return;
        }
        let blocks = self.engine.blocks(case.id.unwrap()).unwrap();
        assert!(
            blocks.starts_with(&case.blocks),
            "blocks that somebody outside writes were given away"
        );
    }

    fn run(&mut self) {
        for _ in 0..MOST_STEPS {
            self.submit();
            for index in 0..REQUESTS {
                if self.random.one_in(30) {
                    self.transfer(index);
                    let events = self.engine.take_events();
                    self.clients.see(events);
                }
            }
            for index in (0..REQUESTS).filter(|i| self.is_running(*i)) {
                self.check_blocks(index);
            }
            self.now += Duration::from_millis(10);
            let events = self.engine.step(self.now, &mut ()).unwrap();
            self.clients.see(events);
            let running = (0..REQUESTS).filter(|i| self.is_running(*i)).count();
            if self.waiting.is_empty() && running == 0 {
                return;
            }
        }
        panic!("{} wait, and the rest has not ended", self.waiting.len());
    }

    fn check(&mut self) {
        for case in &self.cases {
            let id = case.id.unwrap();
            let client = self.clients.of(id);
            assert_eq!(client.committed, case.alone.0);
            assert_eq!(client.logprobs, case.alone.1);
            // Where its first token was its last.
            self.engine.unhold(id).ok();
        }
        let blocks = self.engine.options().blocks as usize;
        assert_eq!(self.engine.free_blocks(), blocks, "blocks were lost");
    }
}

#[test]
fn every_request_ends_with_what_it_gives_where_blocks_have_no_end() {
    let mut preemptions = 0;
    for seed in 0..SEEDS {
        // Said where one of them fails.
        println!("seed {seed}");
        let mut world = World::new(seed);
        world.run();
        world.check();
        preemptions += world.engine.preemptions();
    }
    assert!(preemptions > 2 * SEEDS, "{preemptions} preemptions");
}
