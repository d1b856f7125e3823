use super::*;

fn pod(name: &str, in_flight: u32) -> PodView {
    PodView {
        name: name.into(),
        ready: true,
        standing: Standing::Works,
        agent: Some(AgentView {
            draining: false,
            in_flight,
        }),
        drain_until: None,
        cost: None,
    }
}

fn marked(mut pod: PodView, until: i64) -> PodView {
    pod.drain_until = Some(until);
    pod.cost = Some(DRAINING);
    if let Some(agent) = &mut pod.agent {
        agent.draining = true;
    }
    pod
}

#[test]
fn a_new_deployment_gets_what_is_asked_for() {
    let plan = plan(3, None, &[], 60, 0);
    assert_eq!(plan.replicas, 3);
    assert!(plan.marks.is_empty());
}

#[test]
fn the_pod_with_the_least_to_lose_drains_and_the_number_waits() {
    let pods = [pod("a", 5), pod("b", 2), pod("c", 9)];
    let plan = plan(2, Some(3), &pods, 60, 100);
    assert_eq!(plan.replicas, 3);
    assert_eq!(plan.draining.keys().collect::<Vec<_>>(), ["b"]);
    let mark = Mark {
        until: 160,
        cost: DRAINING,
    };
    assert_eq!(plan.marks["b"], Some(mark));
    assert_eq!(plan.look_again, Some(160));
}

#[test]
fn an_empty_victim_is_ranked_first_and_the_number_follows() {
    let pods = [
        marked(pod("a", 0), 160),
        marked(pod("b", 2), 160),
        pod("c", 0),
    ];
    let plan = plan(1, Some(3), &pods, 60, 110);
    assert_eq!(plan.replicas, 2);
    let mark = Mark {
        until: 160,
        cost: FINISHED,
    };
    assert_eq!(plan.marks["a"], Some(mark));
    assert!(!plan.marks.contains_key("b"));
}

#[test]
fn who_is_out_of_time_goes_with_what_it_has() {
    let pods = [marked(pod("a", 7), 160), pod("b", 0)];
    assert_eq!(plan(1, Some(2), &pods, 60, 159).replicas, 2);
    assert_eq!(plan(1, Some(2), &pods, 60, 160).replicas, 1);
}

#[test]
fn an_idle_agent_that_has_not_heard_of_the_drain_is_not_finished() {
    let mut idle = marked(pod("a", 0), 160);
    idle.agent = Some(AgentView {
        draining: false,
        in_flight: 0,
    });
    let pods = [idle, pod("b", 3)];
    assert_eq!(plan(1, Some(2), &pods, 60, 110).replicas, 2);
}

#[test]
fn a_marked_pod_whose_stream_was_lost_keeps_its_time() {
    let mut lost = marked(pod("a", 0), 160);
    lost.agent = None;
    lost.ready = false;
    let pods = [lost, pod("b", 3)];
    assert_eq!(plan(1, Some(2), &pods, 60, 110).replicas, 2);
}

#[test]
fn a_pod_that_never_came_up_goes_first_and_at_once() {
    let mut starting = pod("z", 0);
    starting.ready = false;
    starting.standing = Standing::Idle;
    starting.agent = None;
    let pods = [pod("a", 0), starting];
    let plan = plan(1, Some(2), &pods, 60, 0);
    assert_eq!(plan.replicas, 1);
    assert_eq!(plan.draining.keys().collect::<Vec<_>>(), ["z"]);
}

#[test]
fn pods_that_were_never_made_need_no_drain() {
    let plan = plan(1, Some(3), &[pod("a", 4)], 60, 0);
    assert_eq!(plan.replicas, 1);
    assert!(plan.draining.is_empty());
}

#[test]
fn more_replicas_cancel_a_drain() {
    let pods = [marked(pod("a", 1), 160), pod("b", 3)];
    let plan = plan(2, Some(2), &pods, 60, 110);
    assert_eq!(plan.replicas, 2);
    assert_eq!(plan.marks["a"], None);
    assert!(plan.draining.is_empty());
}

#[test]
fn a_pod_that_the_deployment_is_about_to_delete_keeps_its_mark() {
    let mut done = marked(pod("a", 0), 160);
    done.cost = Some(FINISHED);
    let plan = plan(1, Some(1), &[done, pod("b", 0)], 60, 110);
    assert_eq!(plan.replicas, 1);
    assert!(plan.marks.is_empty(), "{plan:?}");
    assert_eq!(plan.draining.keys().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn the_number_lies_between_what_is_and_what_is_asked_for() {
    bolero::check!()
        .with_type::<(u8, u8, Vec<(u8, bool, bool)>)>()
        .for_each(|(desired, current, pods)| {
            let pods: Vec<_> = pods
                .iter()
                .enumerate()
                .map(|(index, (in_flight, ready, draining))| {
                    let mut pod = pod(&format!("pod-{index}"), u32::from(*in_flight));
                    pod.ready = *ready;
                    if *draining {
                        marked(pod, i64::from(*in_flight))
                    } else {
                        pod
                    }
                })
                .collect();
            let (desired, current) = (u32::from(*desired), u32::from(*current));
            let plan = plan(desired, Some(current), &pods, 60, 100);
            assert!(plan.replicas >= desired);
            assert!(plan.replicas <= current.max(desired));
        });
}
