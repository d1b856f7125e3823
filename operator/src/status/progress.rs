//! How far a rollout is, and what keeps pods from being ready.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use lynx_crds::{LynxDeployment, RolloutStatus};

use crate::rollout::{Step, Target, Wait};

/// A message of the scheduler or a kubelet is cut to this length.
const LONGEST: usize = 300;
/// Ways to wait that are no trouble.
const HARMLESS: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// How far a rollout is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// As the status has it; `None` where no rollout is going on.
    pub status: Option<RolloutStatus>,
    /// Whether it has not come further for longer than the spec allows.
    pub stalled: bool,
    /// What keeps new pods from being ready, in sentences.
    pub troubles: Vec<String>,
    waits: Option<Wait>,
}

impl Progress {
    /// From what was seen and what the last status says, by which time goes on over a change of leader. `targets` are those
    /// of prefill and decode.
    pub fn new(
        object: &LynxDeployment,
        step: Option<(Step, [&Target; 2])>,
        troubles: Vec<String>,
        now: &Time,
    ) -> Self {
        let old = object
            .status
            .as_ref()
            .and_then(|status| status.rollout.as_ref());
        let status = step.map(|(step, [prefill, decode])| {
            let next = RolloutStatus {
                prefill: prefill.revision.clone(),
                decode: decode.revision.clone(),
                old_prefill: number(step.old_prefill),
                old_decode: number(step.old_decode),
                new_prefill: number(step.new_prefill),
                new_decode: number(step.new_decode),
                since: now.clone(),
            };
            match old {
                Some(old) if same(old, &next) => old.clone(),
                _ => next,
            }
        });
        let patience = object.spec.rollout.progress_deadline.duration();
        let stalled = status.as_ref().is_some_and(|status| {
            let waited = now.0.as_second().saturating_sub(status.since.0.as_second());
            u64::try_from(waited).is_ok_and(|waited| Duration::from_secs(waited) >= patience)
        });
        Self {
            waits: step.map(|(step, _)| step.waits),
            status,
            stalled,
            troubles,
        }
    }

    /// All of it, for people.
    pub fn sentence(&self) -> String {
        let (Some(status), Some(waits)) = (&self.status, self.waits) else {
            return "no rollout is going on".into();
        };
        let waits = match waits {
            Wait::Pods => "new pods are not ready yet",
            Wait::Links => "new decode pods have no link to a new prefill pod yet",
            Wait::Agents => "agents of ready pods have not joined the operator yet",
            Wait::Drains => "old pods finish what they have",
        };
        let mut sentence = format!(
            "{} prefill and {} decode pods of the newest revision work, {} and {} older ones are left; {waits}",
            status.new_prefill, status.new_decode, status.old_prefill, status.old_decode
        );
        if self.stalled {
            sentence.push_str(&format!(
                ", since {}; the older pods go on answering: mend the spec, or change it back",
                status.since.0
            ));
        }
        for trouble in &self.troubles {
            sentence.push_str("; ");
            sentence.push_str(trouble);
        }
        sentence
    }
}

/// All but the time.
fn same(old: &RolloutStatus, next: &RolloutStatus) -> bool {
    let next = RolloutStatus {
        since: old.since.clone(),
        ..next.clone()
    };
    *old == next
}

fn number(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// What keeps a pod from being ready, where the scheduler or the kubelet says so.
pub fn trouble(pod: &Pod) -> Option<String> {
    let name = pod.name_any();
    let status = pod.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    let unscheduled = conditions.find(|one| one.type_ == "PodScheduled" && one.status == "False");
    if let Some(condition) = unscheduled {
        let why = condition.message.as_deref().unwrap_or("no node fits");
        return Some(format!("{name} is not scheduled: {}", short(why)));
    }
    let init = status.init_container_statuses.iter().flatten();
    let containers = status.container_statuses.iter().flatten();
    init.chain(containers)
        .find_map(|container| of_container(&name, container))
}

fn of_container(pod: &str, status: &ContainerStatus) -> Option<String> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref()?;
    if HARMLESS.contains(&reason) {
        return None;
    }
    let why = waiting.message.as_deref().unwrap_or_default();
    let mut trouble = format!("{pod}, {}: {reason} {}", status.name, short(why));
    if let Some(words) = last_words(status) {
        trouble.push_str(&format!(" (its last words: {})", short(&words)));
    }
    Some(trouble)
}

/// What a container that ended with an error said last: the last line of its log, or the message of one in JSON.
fn last_words(status: &ContainerStatus) -> Option<String> {
    let ended = status.last_state.as_ref()?.terminated.as_ref()?;
    let mut lines = ended.message.as_deref()?.lines().map(str::trim);
    let line = lines.rfind(|line| !line.is_empty())?;
    let entry: Option<serde_json::Value> = serde_json::from_str(line).ok();
    let message = entry.as_ref().and_then(|entry| entry["message"].as_str());
    Some(message.unwrap_or(line).to_owned())
}

fn short(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LONGEST))
        .unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Time {
        Time(Timestamp::from_second(seconds).unwrap())
    }

    fn object() -> LynxDeployment {
        serde_json::from_value(json!({
            "apiVersion": "lynx.dev/v1alpha1", "kind": "LynxDeployment",
            "metadata": {"name": "smol"},
            "spec": {
                "model": {"name": "smol", "source": {"hostPath": {"path": "/m"}}},
                "engine": {"type": "Embedded"},
                "rollout": {"progressDeadline": "1m"},
            },
        }))
        .unwrap()
    }

    fn step(new_decode: u32) -> Step {
        Step {
            old_prefill: 1,
            old_decode: 1,
            new_prefill: 1,
            new_decode,
            waits: Wait::Pods,
        }
    }

    #[test]
    fn a_rollout_stalls_when_it_comes_no_further_and_each_step_gives_it_time() {
        let mut object = object();
        let target = Target {
            revision: "b".into(),
            generation: "g".into(),
            replicas: 1,
        };
        let mut look = |step: Option<Step>, now: i64| {
            let step = step.map(|step| (step, [&target, &target]));
            let progress = Progress::new(&object, step, vec!["p: ErrImagePull".into()], &at(now));
            let status = object.status.get_or_insert_default();
            status.rollout = progress.status.clone();
            progress
        };
        assert!(!look(Some(step(0)), 100).stalled);
        assert!(!look(Some(step(0)), 159).stalled);
        let stalled = look(Some(step(0)), 160);
        assert!(stalled.stalled);
        assert!(
            stalled.sentence().contains("ErrImagePull"),
            "{}",
            stalled.sentence()
        );
        assert!(!look(Some(step(1)), 161).stalled, "it came further");
        assert!(look(None, 500).status.is_none());
    }

    #[test]
    fn what_the_scheduler_and_the_kubelet_say_is_told_and_a_start_is_not() {
        let pod = |status: serde_json::Value| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap()
        };
        let pending = pod(
            json!({"conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}]}),
        );
        assert_eq!(
            trouble(&pending).unwrap(),
            "p is not scheduled: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
        );
        let container = |reason: &str| {
            json!({"containerStatuses": [{"name": "engine", "image": "x", "imageID": "", "ready": false,
                "restartCount": 0, "state": {"waiting": {"reason": reason, "message": "back-off"}}}]})
        };
        assert_eq!(
            trouble(&pod(container("ImagePullBackOff"))).unwrap(),
            "p, engine: ImagePullBackOff back-off"
        );
        assert_eq!(trouble(&pod(container("ContainerCreating"))), None);
    }

    #[test]
    fn an_agent_that_ends_again_and_again_is_told_with_its_last_words() {
        let told = |log: &str| {
            let ended = json!({"terminated": {"exitCode": 1, "message": log}});
            let agent = json!({"name": "agent", "image": "x", "imageID": "", "ready": false, "restartCount": 3,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}, "lastState": ended});
            let pod =
                json!({"metadata": {"name": "p"}, "status": {"initContainerStatuses": [agent]}});
            trouble(&serde_json::from_value(pod).unwrap()).unwrap()
        };
        let log = "{\"level\":\"INFO\",\"message\":\"starting\"}\n\
            {\"level\":\"ERROR\",\"message\":\"links can't be made: this build has no RDMA\"}\n";
        assert_eq!(
            told(log),
            "p, agent: CrashLoopBackOff back-off (its last words: links can't be made: this build has no RDMA)"
        );
        let plain = told("lynx-agent: transfer.rails: 9 is no number from 1 to 4\n\n");
        assert!(
            plain.ends_with(
                "(its last words: lynx-agent: transfer.rails: 9 is no number from 1 to 4)"
            ),
            "{plain}"
        );
        assert_eq!(told(" \n"), "p, agent: CrashLoopBackOff back-off");
        // A line of the log that was cut at its beginning is no JSON.
        assert!(told("essage\":\"x\"}").ends_with("(its last words: essage\":\"x\"})"));
    }
}
