//! Two pools as queues: prompts are computed one after the other by each prefill pod, answers together by each decode pod.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use lynx_governor::replicas::{Decision, Load, Pool, Scaler, Settings};
use lynx_units::Timestamp;

use super::random::Random;

/// Four hours.
const SECONDS: usize = 4 * 3600;
const TICK: usize = 2;
/// Seconds for which a prompt is computed, in the mean, and for which its KV travels.
const PROMPT: f64 = 0.35;
const TRANSFER: f64 = 0.2;
/// Verified tokens of an answer in the mean, and of a pod's answer in a second.
const TOKENS: f64 = 200.0;
const PER_SECOND: f64 = 33.0;
/// Answers that a decode pod gives at once.
const AT_ONCE: usize = 16;
/// After so long a steady load has found its pods.
const SETTLED: usize = 2400;
/// Seconds to an anchor beyond which it is late: twice the target.
const SLOW: f64 = 2.0 * 1.5;

#[derive(Clone)]
pub(crate) struct World {
    settings: Settings,
    /// Requests in a second.
    load: Rc<dyn Fn(usize) -> f64>,
    begin: [usize; 2],
    start: usize,
    lost: f64,
    places: usize,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) changes_an_hour: f64,
    pub(crate) changes_once_settled: usize,
    /// More, fewer and more again within the window that fewer take.
    pub(crate) swings: usize,
    /// Longest time for which prompts were late or answers waited, in seconds.
    pub(crate) slow_for: usize,
    /// Share of requests whose anchor was slow.
    pub(crate) slow_share: f64,
    /// GPU seconds beyond the budget.
    pub(crate) over_budget: usize,
    /// Pods on average, over those that the work alone takes.
    pub(crate) pods_over_work: f64,
}

impl Outcome {
    pub(crate) fn worse(&self, other: &Self) -> Self {
        Self {
            changes_an_hour: self.changes_an_hour.max(other.changes_an_hour),
            changes_once_settled: self.changes_once_settled.max(other.changes_once_settled),
            swings: self.swings.max(other.swings),
            slow_for: self.slow_for.max(other.slow_for),
            slow_share: self.slow_share.max(other.slow_share),
            over_budget: self.over_budget.max(other.over_budget),
            pods_over_work: self.pods_over_work.max(other.pods_over_work),
        }
    }
}

#[derive(Clone, Default)]
struct Pod {
    /// When it is ready; `None` where it has no place.
    ready: Option<usize>,
    since: usize,
    draining: bool,
    /// Seconds of work that are left, of each request.
    work: VecDeque<f64>,
    report: Option<(Load, usize)>,
    anchors: (f64, f64),
    verified: f64,
    /// Seconds of computing since the last report.
    busy: f64,
}

#[derive(Default)]
struct Run {
    pools: [Vec<Pod>; 2],
    /// Seconds of computing, and when the request came.
    prompts: VecDeque<(f64, f64)>,
    /// When the KV is there, tokens to make.
    travelling: VecDeque<(f64, f64)>,
    spec: [u32; 2],
    changes: [Vec<(usize, u32)>; 2],
    slow: usize,
    served: usize,
    slow_since: Option<usize>,
    outcome: Outcome,
    pod_seconds: f64,
    work: f64,
}

impl World {
    pub(crate) fn new(settings: Settings, load: impl Fn(usize) -> f64 + 'static) -> Self {
        Self {
            settings,
            load: Rc::new(load),
            begin: [1, 1],
            start: 120,
            lost: 0.0,
            places: 1000,
        }
    }

    pub(crate) fn begin(self, prefill: usize, decode: usize) -> Self {
        Self {
            begin: [prefill, decode],
            ..self
        }
    }

    /// Seconds until a new pod is ready.
    pub(crate) fn start(self, start: usize) -> Self {
        Self { start, ..self }
    }

    /// This share of reports; from the end of the first hour on, all for ten minutes.
    pub(crate) fn lost(self, lost: f64) -> Self {
        Self { lost, ..self }
    }

    pub(crate) fn places(self, places: usize) -> Self {
        Self { places, ..self }
    }

    pub(crate) fn run(&self, seed: u64) -> Outcome {
        let mut random = Random(seed);
        let mut run = Run::default();
        let mut scaler = Scaler::default();
        for (pool, count) in self.begin.into_iter().enumerate() {
            run.spec[pool] = u32::try_from(count).unwrap();
            run.pools[pool] = vec![
                Pod {
                    ready: Some(0),
                    ..Pod::default()
                };
                count
            ];
        }
        for second in 0..SECONDS {
            let mut at = 0.0;
            loop {
                at -= libm::log(1.0 - random.unit()) / (self.load)(second);
                if at >= 1.0 {
                    break;
                }
                let compute = -PROMPT * libm::log(1.0 - random.unit());
                run.work += compute + TOKENS / PER_SECOND / 10.0;
                run.prompts.push_back((compute, seconds(second) + at));
            }
            run.prefill(second);
            run.decode(second, &mut random);
            run.follow(second, self.start, self.places);
            if second.is_multiple_of(TICK) {
                let pools = run.seen(self, second, &mut random);
                let now = Timestamp::from_origin(Duration::from_secs(second as u64));
                let [prefill, decode] = &pools;
                let decision = scaler.decide(&self.settings, [prefill, decode], now);
                run.scale(decision, second);
            }
            run.judge(self, second);
        }
        run.end(self)
    }
}

impl Run {
    /// A second of computing prompts.
    fn prefill(&mut self, second: usize) {
        let now = seconds(second);
        for pod in self.pools[0]
            .iter_mut()
            .filter(|pod| !pod.draining || !pod.work.is_empty())
        {
            let mut left = 1.0;
            while pod.ready.is_some_and(|ready| ready <= second) && left > 0.0 {
                let Some((compute, at)) = self.prompts.front_mut() else {
                    break;
                };
                let spent = compute.min(left);
                *compute -= spent;
                left -= spent;
                pod.busy += spent;
                if *compute <= 0.0 {
                    let anchor = now + (1.0 - left) + TRANSFER;
                    let time = (anchor - *at).max(TRANSFER);
                    self.served += 1;
                    self.slow += usize::from(time > SLOW);
                    self.travelling.push_back((anchor, time));
                    self.prompts.pop_front();
                }
            }
        }
    }

    /// A second of answering.
    fn decode(&mut self, second: usize, random: &mut Random) {
        let now = seconds(second);
        while self.travelling.front().is_some_and(|(at, _)| *at <= now) {
            let takes = |pod: &&mut Pod| !pod.draining && pod.ready.is_some_and(|at| at <= second);
            let pods = self.pools[1].iter_mut().filter(takes);
            let Some(pod) = pods.min_by_key(|pod| pod.work.len()) else {
                break;
            };
            let (_, time) = self.travelling.pop_front().unwrap();
            pod.anchors.0 += time;
            pod.anchors.1 += 1.0;
            let tokens = TOKENS * (0.5 + random.unit());
            pod.work.push_back(tokens / PER_SECOND);
        }
        for pod in &mut self.pools[1] {
            for work in pod.work.iter_mut().take(AT_ONCE) {
                pod.verified += PER_SECOND * work.min(1.0);
                *work -= 1.0;
            }
            pod.work.retain(|work| *work > 0.0);
        }
    }

    /// Pods come and go as the spec says: victims are drained first, those without a place go at once.
    fn follow(&mut self, second: usize, start: usize, places: usize) {
        for pool in 0..2 {
            let wanted = usize::try_from(self.spec[pool]).unwrap();
            self.pools[pool]
                .retain(|pod| !(pod.draining && pod.work.is_empty()) || pod.since + 5 > second);
            let mut staying = self.pools[pool].iter().filter(|pod| !pod.draining).count();
            while staying > wanted {
                let pods = self.pools[pool].iter_mut().filter(|pod| !pod.draining);
                let victim = pods
                    .min_by_key(|pod| (pod.ready.is_some(), pod.work.len()))
                    .unwrap();
                victim.draining = true;
                victim.since = second;
                staying -= 1;
            }
            while staying < wanted {
                self.pools[pool].push(Pod {
                    since: second,
                    ..Pod::default()
                });
                staying += 1;
            }
        }
        let placed = |pods: &[Pod]| pods.iter().filter(|pod| pod.ready.is_some()).count();
        let mut free = places.saturating_sub(placed(&self.pools[0]) + placed(&self.pools[1]));
        for pod in self
            .pools
            .iter_mut()
            .flatten()
            .filter(|pod| pod.ready.is_none())
        {
            if free > 0 {
                (pod.ready, pod.since) = (Some(second + start), second);
                free -= 1;
            }
        }
    }

    fn seen(&mut self, world: &World, second: usize, random: &mut Random) -> [Pool; 2] {
        let silent = world.lost > 0.0 && (3600..4200).contains(&second);
        let count = |count: usize| u32::try_from(count).unwrap();
        let at = |second: usize| Timestamp::from_origin(Duration::from_secs(second as u64));
        let prompts = self.prompts.len();
        let mut pools = [Pool::default(), Pool::default()];
        for (pool, seen) in pools.iter_mut().enumerate() {
            let pods = &mut self.pools[pool];
            let computing = pods
                .iter()
                .filter(|pod| pod.ready.is_some_and(|at| at <= second))
                .count();
            let share = f64::from(count(prompts)) / f64::from(count(computing.max(1)));
            let unplaced: Vec<_> = pods
                .iter()
                .filter(|pod| pod.ready.is_none())
                .map(|pod| pod.since)
                .collect();
            seen.replicas = self.spec[pool];
            seen.holding = count(pods.len());
            seen.unplaced = count(unplaced.len());
            seen.unplaced_since = unplaced.into_iter().min().map(at);
            for pod in pods.iter_mut().filter(|pod| !pod.draining) {
                let Some(ready) = pod.ready.filter(|ready| *ready <= second) else {
                    continue;
                };
                // A report stands for ten seconds, then the agent is silent.
                let known = pod.report.filter(|(_, heard)| second - heard <= 10);
                if silent || random.unit() < world.lost {
                    seen.loads.extend(known.map(|(load, _)| load));
                    continue;
                }
                let running = pod.work.len().min(AT_ONCE);
                let load = Load {
                    ready_since: Some(at(ready)),
                    running: if pool == 0 {
                        share + pod.busy / seconds(TICK)
                    } else {
                        f64::from(count(running))
                    },
                    waiting: f64::from(count(pod.work.len() - running)),
                    pending_kv: 0.0,
                    verified: pod.verified / 2.0,
                    time_to_anchor: (pod.anchors.1 > 0.0).then(|| pod.anchors.0 / pod.anchors.1),
                };
                pod.report = Some((load, second));
                seen.loads.push(load);
            }
            for pod in pods.iter_mut() {
                (pod.verified, pod.anchors, pod.busy) = (0.0, (0.0, 0.0), 0.0);
            }
        }
        pools
    }

    fn scale(&mut self, decision: Decision, second: usize) {
        for (pool, next) in decision.replicas.into_iter().enumerate() {
            if next != self.spec[pool] {
                self.spec[pool] = next;
                self.changes[pool].push((second, next));
            }
        }
    }

    fn judge(&mut self, world: &World, second: usize) {
        let held: Vec<_> = self.pools.iter().map(Vec::len).collect();
        self.pod_seconds += f64::from(u32::try_from(held[0] + held[1]).unwrap());
        if let Some(budget) = world.settings.budget {
            let gpus = held[0] * budget.prefill as usize + held[1] * budget.decode as usize;
            self.outcome.over_budget += gpus.saturating_sub(budget.gpus as usize);
        }
        let oldest = self
            .prompts
            .front()
            .is_some_and(|(_, at)| seconds(second) - at > SLOW);
        let waiting: usize = self.pools[1]
            .iter()
            .map(|pod| pod.work.len().saturating_sub(AT_ONCE))
            .sum();
        if oldest || waiting > 0 {
            let since = *self.slow_since.get_or_insert(second);
            self.outcome.slow_for = self.outcome.slow_for.max(second - since);
        } else {
            self.slow_since = None;
        }
    }

    fn end(self, world: &World) -> Outcome {
        let window = usize::try_from(world.settings.down.as_secs()).unwrap();
        let late =
            |changes: &Vec<(usize, u32)>| changes.iter().filter(|(at, _)| *at > SETTLED).count();
        let swings = |(pool, changes): (usize, &Vec<(usize, u32)>)| {
            let first = u32::try_from(world.begin[pool]).unwrap();
            let mut sizes = vec![(0, first)];
            sizes.extend(changes);
            let up = |pair: &[(usize, u32)]| pair[0].1 < pair[1].1;
            let turns = sizes.windows(4).filter(|four| {
                up(&four[..2])
                    && !up(&four[1..3])
                    && up(&four[2..])
                    && four[3].0 - four[1].0 <= window
            });
            turns.count()
        };
        let changes = self.changes[0].len() + self.changes[1].len();
        Outcome {
            changes_an_hour: f64::from(u32::try_from(changes).unwrap()) / 4.0,
            changes_once_settled: self.changes.iter().map(late).max().unwrap(),
            swings: self.changes.iter().enumerate().map(swings).sum(),
            slow_share: seconds(self.slow) / seconds(self.served.max(1)),
            pods_over_work: self.pod_seconds / self.work,
            ..self.outcome
        }
    }
}

fn seconds(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}
