//! Two pools of pods, second by second: agents that report, drains by the operator's plan, and a Deployment controller that
//! deletes by cost.

use std::collections::VecDeque;
use std::time::Duration;

use lynx_crds::LynxDeployment;
use lynx_proto::operator::v1::{Hello, Report, Role};
use lynx_units::Timestamp;

use super::super::{Autoscaler, Reason};
use crate::rollout::Standing;
use crate::scaling::drain::{self, AgentView, PodView};
use crate::scaling::pods::Pods;
use crate::streams::{Key, Registry, StreamId};

const TICK: u64 = 2;
/// Seconds for which a prompt is computed, its KV travels, and it is answered.
const PROMPT: f64 = 0.5;
const TRANSFER: f64 = 0.2;
const ANSWER: f64 = 6.0;
/// Tokens that a pod verifies for one answer in a second.
const PER_SECOND: u64 = 30;
const AT_ONCE: usize = 16;
/// Seconds that a pod has to drain.
const PATIENCE: i64 = 120;

/// A load in requests a second, and when reports are lost.
pub(super) struct Trace {
    pub(super) load: fn(u64) -> f64,
    pub(super) lost: fn(u64) -> bool,
    /// Seconds until a new pod is ready.
    pub(super) start: u64,
    pub(super) places: usize,
}

#[derive(Default)]
struct Pod {
    name: String,
    ready_at: Option<u64>,
    since: u64,
    stream: Option<StreamId>,
    mark: Option<drain::Mark>,
    /// Seconds of work that are left of each request, and when it came.
    work: VecDeque<(f64, f64)>,
    verified: u64,
    anchors: Vec<f64>,
}

impl Pod {
    fn is_ready(&self, second: u64) -> bool {
        self.ready_at.is_some_and(|at| at <= second)
    }

    fn takes_work(&self, second: u64) -> bool {
        self.mark.is_none() && self.is_ready(second)
    }
}

/// A write of the spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) second: u64,
    pub(super) from: [u32; 2],
    pub(super) to: [u32; 2],
}

pub(super) struct World {
    object: LynxDeployment,
    trace: Trace,
    registry: Registry,
    key: Key,
    autoscaler: Autoscaler,
    pools: [Vec<Pod>; 2],
    deployments: [u32; 2],
    prompts: VecDeque<f64>,
    travelling: VecDeque<(f64, f64)>,
    due: f64,
    made: u32,
    second: u64,
    /// Requests of pods that were deleted with them.
    pub(super) lost: usize,
    pub(super) served: usize,
    pub(super) late: usize,
    pub(super) writes: Vec<Write>,
    pub(super) reasons: Vec<Reason>,
    pub(super) most_gpus: usize,
}

impl World {
    pub(super) fn new(object: LynxDeployment, trace: Trace) -> Self {
        let mut world = Self {
            key: crate::reconcile::key(&object),
            object,
            trace,
            registry: Registry::default(),
            autoscaler: Autoscaler::default(),
            pools: Default::default(),
            deployments: [0, 0],
            prompts: VecDeque::new(),
            travelling: VecDeque::new(),
            due: 0.0,
            made: 0,
            second: 0,
            lost: 0,
            served: 0,
            late: 0,
            writes: Vec::new(),
            reasons: Vec::new(),
            most_gpus: 0,
        };
        world.follow();
        world
    }

    pub(super) fn replicas(&self) -> [u32; 2] {
        let spec = &self.object.spec;
        [&spec.prefill.pool, &spec.decode.pool].map(|pool| u32::try_from(pool.replicas).unwrap())
    }

    /// Until so many seconds have passed in all.
    pub(super) fn run(&mut self, until: u64) {
        while self.second < until {
            self.arrive();
            self.compute();
            self.answer();
            if self.second.is_multiple_of(TICK) {
                self.report();
                self.decide();
            }
            self.follow();
            self.judge();
            self.second += 1;
        }
    }

    fn now(&self) -> f64 {
        Duration::from_secs(self.second).as_secs_f64()
    }

    fn arrive(&mut self) {
        self.due += (self.trace.load)(self.second);
        while self.due >= 1.0 {
            self.due -= 1.0;
            self.prompts.push_back(self.now());
        }
    }

    fn compute(&mut self) {
        let now = self.now();
        for pod in &mut self.pools[0] {
            let mut left = 1.0;
            while left > 0.0 && pod.is_ready(self.second) {
                if pod.work.is_empty() {
                    if !pod.takes_work(self.second) {
                        break;
                    }
                    let Some(came) = self.prompts.pop_front() else {
                        break;
                    };
                    pod.work.push_back((PROMPT, came));
                }
                let (work, came) = &mut pod.work[0];
                let spent = work.min(left);
                *work -= spent;
                left -= spent;
                if *work <= 0.0 {
                    let anchor = now + (1.0 - left) + TRANSFER;
                    self.travelling.push_back((anchor, anchor - *came));
                    pod.work.pop_front();
                }
            }
        }
    }

    fn answer(&mut self) {
        let (now, second) = (self.now(), self.second);
        while self.travelling.front().is_some_and(|(at, _)| *at <= now) {
            let pods = self.pools[1].iter_mut();
            let taking = pods.filter(|pod| pod.takes_work(second));
            let Some(pod) = taking.min_by_key(|pod| pod.work.len()) else {
                break;
            };
            let (_, time) = self.travelling.pop_front().unwrap();
            self.served += 1;
            self.late += usize::from(time > 3.0);
            pod.anchors.push(time);
            pod.work.push_back((ANSWER, now));
        }
        for pod in &mut self.pools[1] {
            for (work, _) in pod.work.iter_mut().take(AT_ONCE) {
                *work -= 1.0;
                pod.verified += PER_SECOND;
            }
            pod.work.retain(|(work, _)| *work > 0.0);
        }
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(self.second))
    }

    fn report(&mut self) {
        let at = self.at();
        let queued = self.prompts.len();
        let computing = self.pools[0]
            .iter()
            .filter(|pod| pod.takes_work(self.second));
        let share = queued / computing.count().max(1);
        for (pool, role) in [Role::Prefill, Role::Decode].into_iter().enumerate() {
            for pod in &mut self.pools[pool] {
                if !pod.is_ready(self.second) {
                    continue;
                }
                let verified = std::mem::take(&mut pod.verified);
                let anchors = std::mem::take(&mut pod.anchors);
                if (self.trace.lost)(self.second) {
                    continue;
                }
                let stream = *pod.stream.get_or_insert_with(|| {
                    let hello = Hello {
                        namespace: self.key.namespace.clone(),
                        deployment: self.key.name.clone(),
                        pod: pod.name.clone(),
                        role: role.into(),
                        ..Hello::default()
                    };
                    self.registry.join(hello, at)
                });
                let count = u32::try_from(pod.work.len()).unwrap();
                let running = count.min(u32::try_from(AT_ONCE).unwrap());
                let mean = anchors.iter().sum::<f64>() / number(anchors.len().max(1));
                let mean = Duration::from_secs_f64(mean).as_nanos();
                let report = Report {
                    ready: pod.mark.is_none(),
                    draining: pod.mark.is_some(),
                    in_flight: count,
                    running: if pool == 0 {
                        count.max(u32::from(queued > 0))
                    } else {
                        running
                    },
                    waiting: if pool == 0 {
                        u32::try_from(share).unwrap()
                    } else {
                        count - running
                    },
                    verified_tokens: verified,
                    time_to_anchor_ns: u64::try_from(mean).unwrap(),
                    ..Report::default()
                };
                self.registry.report(stream, report, at);
            }
        }
    }

    fn counted(&self, pool: usize) -> Pods {
        let mut counted = Pods::default();
        for pod in &self.pools[pool] {
            counted.holding += 1;
            counted.ready += u32::from(pod.is_ready(self.second));
            if pod.ready_at.is_none() {
                let since = Timestamp::from_origin(Duration::from_secs(pod.since));
                counted.unplaced += 1;
                let longest = counted
                    .unplaced_since
                    .map_or(since, |other| other.min(since));
                counted.unplaced_since = Some(longest);
            }
        }
        counted
    }

    fn decide(&mut self) {
        let at = self.at();
        let loads = self.registry.take_loads(&self.key, at);
        let pods = [self.counted(0), self.counted(1)];
        let decision = self.autoscaler.decide(&self.object, pods, loads, at);
        let decision = decision.expect("the spec has autoscaling");
        if self.reasons.last() != Some(&decision.reason) {
            self.reasons.push(decision.reason);
        }
        if decision.is_change() {
            let [prefill, decode] = decision.replicas.map(|pods| i32::try_from(pods).unwrap());
            self.object.spec.prefill.pool.replicas = prefill;
            self.object.spec.decode.pool.replicas = decode;
            self.writes.push(Write {
                second: self.second,
                from: decision.before,
                to: decision.replicas,
            });
        }
    }

    /// The operator's drains and the Deployments' pods.
    fn follow(&mut self) {
        let wall = i64::try_from(self.second).unwrap();
        for pool in 0..2 {
            let views: Vec<_> = self.pools[pool].iter().map(|pod| self.view(pod)).collect();
            let wanted = self.replicas()[pool];
            let plan = drain::plan(wanted, Some(self.deployments[pool]), &views, PATIENCE, wall);
            for pod in &mut self.pools[pool] {
                if let Some(mark) = plan.marks.get(&pod.name) {
                    pod.mark = *mark;
                }
            }
            self.deployments[pool] = plan.replicas;
            let wanted = usize::try_from(plan.replicas).unwrap();
            while self.pools[pool].len() > wanted {
                let pods = self.pools[pool].iter().enumerate();
                let cost = |pod: &Pod| pod.mark.map_or(0, |mark| mark.cost);
                let (place, _) = pods
                    .min_by_key(|(_, pod)| (cost(pod), pod.is_ready(self.second)))
                    .unwrap();
                let gone = self.pools[pool].remove(place);
                self.lost += gone.work.len();
                if let Some(stream) = gone.stream {
                    self.registry.leave(stream);
                }
            }
            while self.pools[pool].len() < wanted {
                self.made += 1;
                self.pools[pool].push(Pod {
                    name: format!("pod-{}", self.made),
                    since: self.second,
                    ..Pod::default()
                });
            }
        }
        let all = self.pools.iter().flatten();
        let placed = all.filter(|pod| pod.ready_at.is_some()).count();
        let free = self.trace.places.saturating_sub(placed);
        let waiting = self.pools.iter_mut().flatten();
        let waiting = waiting.filter(|pod| pod.ready_at.is_none());
        for pod in waiting.take(free) {
            pod.ready_at = Some(self.second + self.trace.start);
        }
    }

    fn view(&self, pod: &Pod) -> PodView {
        let ready = pod.is_ready(self.second);
        PodView {
            name: pod.name.clone(),
            ready,
            standing: if ready {
                Standing::Works
            } else {
                Standing::Idle
            },
            agent: pod.stream.map(|_| AgentView {
                draining: pod.mark.is_some(),
                in_flight: u32::try_from(pod.work.len()).unwrap(),
            }),
            drain_until: pod.mark.map(|mark| mark.until),
            cost: pod.mark.map(|mark| mark.cost),
        }
    }

    fn judge(&mut self) {
        let gpus = |pool: &lynx_crds::spec::Pool| {
            let gpus = pool.gpus.as_ref();
            gpus.map_or(0, |gpus| usize::try_from(gpus.count).unwrap())
        };
        let spec = &self.object.spec;
        let held = self.pools[0].len() * gpus(&spec.prefill.pool)
            + self.pools[1].len() * gpus(&spec.decode.pool);
        self.most_gpus = self.most_gpus.max(held);
    }
}

pub(super) fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}
