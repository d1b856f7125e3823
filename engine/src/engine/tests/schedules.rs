//! Many requests, transfers that end in every way, and few blocks: what is committed is what each request alone gives.

use super::fake::{VOCABULARY, engine, logits, next_row, read, truth, write};
use super::*;

const BLOCKS: u32 = 10;

#[derive(Clone, Copy, Debug, bolero::TypeGenerator)]
enum Op {
    Submit {
        kind: u8,
        length: u8,
        max_tokens: u8,
        seed: u8,
        transfer: bool,
        retain: bool,
    },
    Steps(u8),
    FirstToken(u8),
    Anchor {
        which: u8,
        depth: u8,
    },
    Full {
        which: u8,
        exact: bool,
    },
    Failed(u8),
    Abort(u8),
    Release(u8),
}

/// A request and all that is true about it.
struct Case {
    id: RequestId,
    request: Request,
    /// The output of plain decoding, and what its logits say of it.
    plain: Vec<TokenId>,
    logprobs: Vec<Logprobs>,
    /// Whether it was told that the KV is complete when it was not exact.
    quantised: bool,
}

struct World {
    engine: Engine,
    clients: Clients,
    cases: Vec<Case>,
    now: Timestamp,
}

/// Prompts with beginnings in common.
fn prompt(kind: u8, length: usize) -> Vec<TokenId> {
    let parting = [40, 64, 100, usize::MAX][usize::from(kind % 4)];
    let token = |i: usize| {
        let own = if i < parting {
            0
        } else {
            u32::from(kind / 4 % 3)
        };
        1 + (u32::try_from(i).unwrap() * 7 + own) % (VOCABULARY - 1)
    };
    (0..length).map(token).collect()
}

/// Nothing for most requests; for the others a token that is forbidden and ones that are wanted, and penalties that often
/// decide.
fn adjust(seed: u8) -> Adjust {
    if seed % 5 < 3 {
        return Adjust::default();
    }
    Adjust {
        bias: [(1, -100.0), (2, 1.5), (3, 2.0)].into(),
        presence: 0.75,
        frequency: f32::from(seed % 4) / 2.0 - 0.5,
    }
}

/// Plain decoding, without an engine.
fn decode(request: &Request, max_tokens: u32) -> (Vec<TokenId>, Vec<Logprobs>) {
    let mut tokens = request.prompt.clone();
    let mut rows = truth(&tokens);
    let (mut output, mut known) = (Vec::new(), Vec::new());
    loop {
        let mut logits = logits(&rows, *tokens.last().unwrap());
        let position = u32::try_from(tokens.len()).unwrap();
        let raw = logits.clone();
        request.adjust.apply(&mut logits, &output);
        let token = request.sampling.sample(&logits, position);
        output.push(token);
        let top = request.top_logprobs;
        known.extend(top.map(|top| Logprobs::new(&raw, token, top)));
        if token == 0 || output.len() == max_tokens as usize {
            return (output, known);
        }
        rows.push(next_row(&rows, token));
        tokens.push(token);
    }
}

impl World {
    fn new() -> Self {
        Self {
            engine: engine(EngineOptions {
                blocks: BLOCKS,
                chunk_tokens: 50,
                max_draft: 9,
                ..EngineOptions::default()
            }),
            clients: Clients::default(),
            cases: Vec::new(),
            now: Timestamp::ORIGIN,
        }
    }

    fn submit(&mut self, request: Request) {
        let probe = self.engine.probe(&request.prompt, request.kv);
        let Ok(id) = self.engine.submit(request.clone()) else {
            return;
        };
        let cached = self.engine.cached_tokens(id).unwrap() as usize;
        assert!(cached <= probe && cached < request.prompt.len());
        let kv = self.engine.kv(id).unwrap();
        let rows = truth(&request.prompt);
        for (position, row) in rows.iter().enumerate().take(cached) {
            assert_eq!(read(&kv, position), *row, "a cached row is wrong");
        }
        self.clients.0.insert(id, Client::default());
        let room = BLOCKS * 64 - u32::try_from(request.prompt.len()).unwrap();
        let (plain, logprobs) = decode(&request, request.max_tokens.min(room));
        self.cases.push(Case {
            id,
            plain,
            logprobs,
            request,
            quantised: false,
        });
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(10);
        let events = self.engine.step(self.now, &mut ()).unwrap();
        self.clients.see(events);
    }

    /// Writes what came of a prompt: all of it, or an anchor, on which every few rows are wrong.
    fn write(&mut self, index: usize, exact: bool) {
        let case = &self.cases[index];
        let Ok(cached) = self.engine.cached_tokens(case.id) else {
            return;
        };
        let Ok(mut kv) = self.engine.kv_mut(case.id) else {
            return;
        };
        for (position, row) in truth(&case.request.prompt).into_iter().enumerate() {
            if position >= cached as usize {
                let wrong = !exact && position % 5 == 0;
                write(&mut kv, position, if wrong { row.map(|v| !v) } else { row });
            }
        }
    }

    fn pick(&self, which: u8) -> Option<usize> {
        usize::from(which).checked_rem(self.cases.len())
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Submit {
                kind,
                length,
                max_tokens,
                seed,
                transfer,
                retain,
            } => self.submit(Request {
                prompt: prompt(kind, usize::from(length) + 1),
                // Often more than all blocks hold.
                max_tokens: 1 + u32::from(max_tokens % 32).pow(2),
                sampling: if seed % 2 == 0 {
                    Sampling::GREEDY
                } else {
                    Sampling::new(0.9, 0, 0.95, u64::from(seed)).unwrap()
                },
                adjust: adjust(seed),
                top_logprobs: seed.is_multiple_of(3).then_some(u32::from(seed % 7)),
                stop: Stop::default(),
                kv: if transfer {
                    KvSource::Transfer
                } else {
                    KvSource::Compute
                },
                retain,
            }),
            Op::Steps(n) => (0..n % 24).for_each(|_| self.step()),
            Op::FirstToken(which) => self.signal(which, |engine, case| {
                engine.first_token(case.id, case.plain[0], case.logprobs.first().cloned())
            }),
            Op::Anchor { which, depth } => {
                if let Some(index) = self.pick(which) {
                    self.write(index, false);
                }
                let anchor = AnchorInfo {
                    residual_due: None,
                    depth_limit: u32::from(depth % 16),
                };
                self.signal(which, |engine, case| engine.anchor_ready(case.id, anchor));
            }
            Op::Full { which, exact } => self.full(which, exact),
            Op::Failed(which) => self.signal(which, |engine, case| {
                engine.kv_failed(case.id, "the peer is gone".to_owned())
            }),
            Op::Abort(which) => self.signal(which, |engine, case| engine.abort(case.id)),
            Op::Release(which) => self.signal(which, |engine, case| engine.release(case.id)),
        }
        let events = self.engine.take_events();
        self.clients.see(events);
    }

    fn full(&mut self, which: u8, exact: bool) {
        let Some(index) = self.pick(which) else {
            return;
        };
        self.write(index, exact);
        let case = &mut self.cases[index];
        if !exact && self.engine.kv_mut(case.id).is_ok() {
            case.quantised = true;
        }
        let exactness = if exact {
            Exactness::Exact
        } else {
            Exactness::Quantised
        };
        self.signal(which, |engine, case| engine.full_ready(case.id, exactness));
    }

    /// Signals may come when the request has ended: nothing happens then.
    fn signal(
        &mut self,
        which: u8,
        act: impl FnOnce(&mut Engine, &Case) -> Result<(), UnknownRequest>,
    ) {
        if let Some(index) = self.pick(which) {
            _ = act(&mut self.engine, &self.cases[index]);
        }
    }

    fn finish(&mut self) {
        for index in 0..self.cases.len() {
            let which = u8::try_from(index).unwrap();
            self.apply(Op::Failed(which));
        }
        for _ in 0..20_000 {
            if self.engine.is_idle(self.now) {
                break;
            }
            self.step();
        }
        for case in &self.cases {
            // A transfer that is complete but lacks its first token.
            if self.clients.of(case.id).finished.is_none() {
                self.engine.abort(case.id).unwrap();
            }
            _ = self.engine.release(case.id);
        }
        let events = self.engine.take_events();
        self.clients.see(events);
    }

    fn check(&self) {
        for case in &self.cases {
            let client = self.clients.of(case.id);
            match client.finished {
                None => panic!("request {} did not end", case.id),
                _ if case.quantised => {}
                Some(FinishReason::Aborted) => {
                    assert!(case.plain.starts_with(&client.committed));
                    assert!(case.logprobs.starts_with(&client.logprobs));
                }
                Some(_) => {
                    assert_eq!(client.committed, case.plain);
                    assert_eq!(client.logprobs, case.logprobs, "what the model alone says");
                }
            }
        }
        assert_eq!(
            self.engine.free_blocks(),
            BLOCKS as usize,
            "blocks were lost"
        );
    }
}

#[test]
fn every_request_gets_what_it_would_get_alone() {
    bolero::check!().with_type::<Vec<Op>>().for_each(|ops| {
        let mut world = World::new();
        for op in ops.iter().take(100) {
            world.apply(*op);
        }
        world.finish();
        world.check();
    });
}
