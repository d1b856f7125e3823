//! A pool's pods, as autoscaling counts them.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff;
use lynx_units::Timestamp;
use std::time::Duration;

/// What the last look at a pool's pods found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    /// Those that hold their devices, or will: on their way in and out too.
    pub holding: u32,
    /// Those that the scheduler found no place for.
    pub unplaced: u32,
    /// Since when it has looked for the longest of them.
    pub unplaced_since: Option<Timestamp>,
    /// Those that the kubelet calls ready.
    pub ready: u32,
}

impl Pods {
    /// Counts `pods`, those that are being deleted included, at a moment that both clocks tell.
    pub fn count<'a>(
        pods: impl IntoIterator<Item = &'a Pod>,
        (wall, now): (jiff::Timestamp, Timestamp),
    ) -> Self {
        let mut counted = Self::default();
        for pod in pods {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_ref());
            // An evicted pod stays to be looked at, and holds nothing.
            if phase.is_some_and(|phase| phase == "Failed" || phase == "Succeeded") {
                continue;
            }
            counted.holding += 1;
            counted.ready += u32::from(says(pod, "Ready", "True").is_some());
            if let Some(since) = says(pod, "PodScheduled", "False") {
                counted.unplaced += 1;
                let waited = u64::try_from(wall.as_second() - since.as_second()).unwrap_or(0);
                let since = now
                    .since_origin()
                    .saturating_sub(Duration::from_secs(waited));
                let since = Timestamp::from_origin(since);
                let longest = counted
                    .unplaced_since
                    .map_or(since, |other| other.min(since));
                counted.unplaced_since = Some(longest);
            }
        }
        counted
    }
}

/// Since when a condition has this status; `None` where it has another.
fn says(pod: &Pod, kind: &str, status: &str) -> Option<jiff::Timestamp> {
    let mut conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter());
    let condition = conditions.find_map(|all| {
        all.iter()
            .find(|one| one.type_ == kind && one.status == status)
    })?;
    let since = condition.last_transition_time.as_ref();
    Some(since.map_or(jiff::Timestamp::MAX, |time| time.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(phase: &str, condition: (&str, &str), since: i64) -> Pod {
        let since = jiff::Timestamp::from_second(since).unwrap();
        let (kind, status) = condition;
        let conditions =
            json!([{"type": kind, "status": status, "lastTransitionTime": since.to_string()}]);
        serde_json::from_value(json!({"status": {"phase": phase, "conditions": conditions}}))
            .unwrap()
    }

    #[test]
    fn who_waits_for_a_place_is_counted_from_when_it_was_first_refused_one() {
        let pods = [
            pod("Running", ("Ready", "True"), 0),
            pod("Pending", ("PodScheduled", "False"), 940),
            pod("Pending", ("PodScheduled", "False"), 970),
            pod("Failed", ("Ready", "False"), 0),
            Pod::default(),
        ];
        let wall = jiff::Timestamp::from_second(1000).unwrap();
        let now = Timestamp::from_origin(Duration::from_secs(100));
        let counted = Pods::count(&pods, (wall, now));
        let expected = Pods {
            holding: 4,
            unplaced: 2,
            unplaced_since: Some(Timestamp::from_origin(Duration::from_secs(40))),
            ready: 1,
        };
        assert_eq!(counted, expected);
    }
}
