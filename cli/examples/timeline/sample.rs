//! Runs that look like real ones: a toy simulation of a prefill node, a link and a decode node.
//!
//! For working on the page and testing it without a model. Its figures are made up and prove nothing about Lynx.

use lynx::report::Page;
use lynx::run::{Class, Event, Method, RunResult, Scenario};

const PROMPT_TOKENS: u32 = 2048;
const CHUNKS: u32 = 4;
const LAYERS: u32 = 30;
const KV_BYTES: f64 = 47_185_920.0;
const LINK_BPS: u32 = 50_000_000;
const LAYER_S: f64 = 0.0165;
const DECODE_S: f64 = 0.026;
const VERIFY_S: f64 = 0.11;
const ANSWER_TOKENS: u32 = 80;
const MOST_DRAFTS: u32 = 64;

const ANSWER: &str = "The secret code of the Lisbon archive is 83823. The rest of the text is a long series of minutes: in \
    each meeting somebody opens the discussion of a subject, a colleague raises a worry or asks for a second offer, and it is \
    then agreed who will do what, by which day of the next month and with what budget, from a few hundred to several \
    thousand euros. Nobody objects for long, and the next meeting begins in another city.";

/// The page of all methods in both scenarios.
pub(crate) fn page() -> Page {
    let facts = [
        ("Model", "SmolLM2-135M-Instruct, BF16"),
        ("Link", "50.0 Mbit/s, emulated"),
        ("KV of the prompt", "45.0 MiB"),
        ("Anchor", "(4, 4) bits, profile 9f2c41d0"),
        ("Machine", "2 cores, AVX2"),
        ("Figures", "made up by an example"),
    ];
    Page {
        title: "One prompt, five ways to send its KV cache".to_owned(),
        facts: facts
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        runs: runs(),
        prompts: vec![(
            "needle-1".to_owned(),
            "<b>A prompt</b> with \"hostile\" marks & signs.".to_owned(),
        )],
    }
}

/// All methods in both scenarios.
fn runs() -> Vec<RunResult> {
    let scenarios = [Scenario::Cold, Scenario::Warm].into_iter();
    scenarios
        .flat_map(|scenario| Method::ALL.map(|method| run(method, scenario)))
        .collect()
}

/// The share of the KV's bytes that each level takes, the anchor first.
fn level_shares(method: Method) -> &'static [f64] {
    match method {
        Method::Bf16 => &[1.0],
        Method::Int8 => &[0.5156],
        Method::Int4 => &[0.2656],
        Method::LynxInt8 => &[0.295, 0.063, 0.063, 0.063, 0.063],
        Method::LynxExact => &[0.295, 0.063, 0.063, 0.063, 0.063, 0.142],
    }
}

/// How many of its drafts stand, and from which token its answer is not BF16's.
fn quality(method: Method) -> (u32, u32) {
    match method {
        Method::Bf16 => (0, u32::MAX),
        Method::Int8 => (0, 58),
        Method::Int4 => (0, 11),
        Method::LynxInt8 => (31, 58),
        Method::LynxExact => (44, u32::MAX),
    }
}

fn run(method: Method, scenario: Scenario) -> RunResult {
    let mut events = Vec::new();
    let ready = prefill(scenario, &mut events);
    let first = ready.last().copied().unwrap_or(0.0) + DECODE_S;
    token(&mut events, method, 0, first, false);
    let levels = send(method, &ready, &mut events);
    decode(method, first, &levels, &mut events);
    RunResult {
        method,
        scenario,
        prompt: "needle-1".to_owned(),
        prompt_tokens: PROMPT_TOKENS,
        link_bps: LINK_BPS.into(),
        memory_bytes: [Some(580 << 20), Some(612 << 20)],
        answer: answer(&events),
        events,
    }
}

/// Made-up token ids: equal for equal texts.
fn answer(events: &[Event]) -> Vec<u32> {
    let verified = events.iter().filter_map(|event| match event {
        Event::Token {
            text,
            provisional: false,
            ..
        } => Some(text),
        _ => None,
    });
    let id = |text: &String| {
        text.bytes()
            .fold(0, |id: u32, byte| id.wrapping_mul(31) + u32::from(byte))
    };
    verified.map(id).collect()
}

/// When each unit (one layer of one chunk) is there.
fn prefill(scenario: Scenario, events: &mut Vec<Event>) -> Vec<f64> {
    let mut now = 0.012;
    let mut ready = Vec::new();
    for chunk in 0..CHUNKS {
        for layer in 0..LAYERS {
            if scenario == Scenario::Cold {
                let start = now;
                now += LAYER_S * (1.0 + 0.12 * f64::from(chunk));
                events.push(Event::PrefillLayer {
                    chunk,
                    layer,
                    start,
                    end: now,
                });
            }
            ready.push(now);
        }
    }
    ready
}

/// Sends unit after unit, those of a lower level first; returns when each level is complete.
fn send(method: Method, ready: &[f64], events: &mut Vec<Event>) -> Vec<f64> {
    let shares = level_shares(method);
    let mut next = vec![0; shares.len()];
    let mut sent = [0_u64; 2];
    let (mut now, mut complete) = (0.0_f64, vec![0.0; shares.len()]);
    while let Some(level) = (0..shares.len())
        .filter(|&level| next[level] < ready.len())
        .min_by(|&l, &r| {
            let start = |level: usize| now.max(ready[next[level]]);
            start(l).total_cmp(&start(r)).then(l.cmp(&r))
        })
    {
        let bytes = KV_BYTES * shares[level] / f64::from(CHUNKS * LAYERS);
        now = now.max(ready[next[level]]) + bytes * 8.0 / (0.95 * f64::from(LINK_BPS));
        next[level] += 1;
        let class = usize::from(level > 0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "made-up bytes, positive and small"
        )]
        let bytes = bytes as u64;
        sent[class] += bytes;
        events.push(Event::Sent {
            priority: [Class::Anchor, Class::Residual][class],
            bytes: sent[class],
            t: now,
        });
        if next[level] == ready.len() {
            complete[level] = now;
            let level = u32::try_from(level).unwrap_or(0);
            events.push(Event::LevelComplete { level, t: now });
        }
    }
    complete
}

/// Drafts from the anchor until all is there, verifies, and decodes the rest.
fn decode(method: Method, first: f64, levels: &[f64], events: &mut Vec<Event>) {
    let merge = 0.008;
    let full = levels.iter().copied().fold(first, f64::max) + merge;
    let mut now = first.max(levels.first().copied().unwrap_or(0.0)) + merge;
    let mut index = 1;
    if method.drafts() {
        events.push(Event::AnchorReady { t: now });
        for (level, t) in levels.iter().enumerate().skip(1) {
            let level = u32::try_from(level).unwrap_or(0);
            events.push(Event::Refined {
                level,
                t: t + merge,
            });
        }
        while now < full && index <= MOST_DRAFTS {
            let start = now;
            now += DECODE_S;
            events.push(Event::Draft {
                index,
                start,
                end: now,
            });
            token(events, method, index, now, true);
            index += 1;
        }
    }
    now = now.max(full);
    events.push(Event::FullReady { t: full });
    let drafted = index - 1;
    if drafted > 0 {
        let accepted = quality(method).0.min(drafted);
        let start = now;
        now += VERIFY_S;
        events.push(Event::Verify {
            tokens: drafted,
            accepted,
            start,
            end: now,
        });
        if accepted < drafted {
            events.push(Event::Retracted {
                from_index: accepted + 1,
                t: now,
            });
        }
        // The pass over the drafts also gives the token after the last one that stands.
        for verified in 1..=accepted + 1 {
            token(events, method, verified, now, false);
        }
        index = accepted + 2;
    }
    for index in index..ANSWER_TOKENS {
        let start = now;
        now += DECODE_S;
        events.push(Event::Decode {
            index,
            start,
            end: now,
        });
        token(events, method, index, now, false);
    }
    events.push(Event::Finished { t: now });
}

fn token(events: &mut Vec<Event>, method: Method, index: u32, t: f64, provisional: bool) {
    let place = usize::try_from(index).unwrap_or(0);
    let mut words = ANSWER.split_inclusive(' ').cycle().skip(place);
    let wrong_draft = provisional && index > quality(method).0;
    let text = match words.next() {
        _ if index >= quality(method).1 => ["perhaps ", "so ", "it ", "goes "][place % 4],
        _ if wrong_draft => "<b>maybe</b> ",
        word => word.unwrap_or(""),
    };
    events.push(Event::Token {
        index,
        token: index,
        text: text.to_owned(),
        t,
        provisional,
    });
}
