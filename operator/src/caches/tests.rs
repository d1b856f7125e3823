use std::collections::BTreeMap;
use std::time::Duration;

use bolero::TypeGenerator;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::ObjectMeta;

use super::feed::{Pauses, lean};
use super::table::Kept as _;
use super::*;
use crate::build::names::DEPLOYMENT;

fn object(name: u8, version: u64) -> ObjectMeta {
    let owner = if name.is_multiple_of(2) {
        "even"
    } else {
        "odd"
    };
    ObjectMeta {
        name: Some(format!("o{name}")),
        namespace: Some("team".into()),
        resource_version: Some(version.to_string()),
        labels: Some(BTreeMap::from([(DEPLOYMENT.into(), owner.into())])),
        ..ObjectMeta::default()
    }
}

/// By name.
fn versions(table: &Table<ObjectMeta>) -> BTreeMap<String, u64> {
    let shelves = ["even", "odd"].map(|name| Key {
        namespace: "team".into(),
        name: name.into(),
    });
    let objects = shelves.iter().flat_map(|key| table.of(key));
    objects
        .map(|(name, object)| (name, version(object.metadata()).unwrap()))
        .collect()
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Op {
    /// Somebody writes an object.
    Write { name: u8, ours: bool },
    /// Somebody removes it.
    Remove { name: u8 },
    /// The watch brings the next event.
    Hear,
    /// The watch reads a new list.
    Read,
    /// That list has come.
    List,
}

/// The API server, and a watch of it that is late.
#[derive(Default)]
struct Server {
    now: u64,
    objects: BTreeMap<u8, u64>,
    /// What the watch hasn't brought yet: the name, the version, and whether the object went.
    waiting: std::collections::VecDeque<(u8, u64, bool)>,
    /// A list on its way: no event overtakes it.
    list: Option<BTreeMap<u8, u64>>,
}

impl Server {
    /// The list arrives; false where none is on its way.
    fn deliver(&mut self, table: &mut Table<ObjectMeta>) -> bool {
        let Some(list) = self.list.take() else {
            return false;
        };
        let all = list.into_iter();
        let all: Vec<_> = all.map(|(name, at)| object(name, at)).collect();
        table.replace(Some("team"), &all);
        table.replace(Some("others"), &[]);
        true
    }
}

/// Our own writes are learned at once, the watch is late and lists anew at any time: an object never goes back to an
/// older version, and once the watch has brought everything the table is what there is.
#[test]
fn however_late_the_watch_is_no_object_grows_older_and_all_agree_in_the_end() {
    bolero::check!().with_type::<Vec<Op>>().for_each(|ops| {
        let mut server = Server::default();
        let mut table = Table::default();
        for op in ops {
            let before = versions(&table);
            let (mut heard, mut listed) = (None, false);
            match *op {
                Op::Write { name, ours } => {
                    let name = name % 4;
                    server.now += 1;
                    server.objects.insert(name, server.now);
                    server.waiting.push_back((name, server.now, false));
                    if ours {
                        table.learn(&object(name, server.now));
                    }
                }
                Op::Remove { name } => {
                    let name = name % 4;
                    if server.objects.remove(&name).is_some() {
                        server.now += 1;
                        server.waiting.push_back((name, server.now, true));
                    }
                }
                Op::Hear if server.list.is_some() => {}
                Op::Hear => {
                    heard = server.waiting.pop_front();
                    hear(&mut table, heard);
                }
                Op::Read => {
                    server.waiting.clear();
                    server.list = Some(server.objects.clone());
                }
                Op::List => listed = server.deliver(&mut table),
            }
            let after = versions(&table);
            for (name, version) in &before {
                let gone = listed || heard.is_some_and(|(_, _, gone)| gone);
                match after.get(name) {
                    Some(now) => assert!(now >= version, "{name} grew older"),
                    None => assert!(gone, "{name} went by itself"),
                }
            }
        }
        server.deliver(&mut table);
        while let Some(event) = server.waiting.pop_front() {
            hear(&mut table, Some(event));
        }
        let there = server.objects.iter();
        let there: BTreeMap<_, _> = there.map(|(name, at)| (format!("o{name}"), *at)).collect();
        assert_eq!(versions(&table), there);
    });
}

fn hear(table: &mut Table<ObjectMeta>, event: Option<(u8, u64, bool)>) {
    match event {
        Some((name, version, true)) => drop(table.delete(&object(name, version))),
        Some((name, version, false)) => drop(table.learn(&object(name, version))),
        None => {}
    }
}

#[test]
fn a_list_of_one_namespace_leaves_the_others_alone_and_says_whose_objects_went() {
    let mut table = Table::default();
    let mut other = object(1, 3);
    other.namespace = Some("others".into());
    table.learn(&object(0, 1));
    table.learn(&other);
    let touched = table.replace(Some("team"), &[object(1, 2)]);
    let names: Vec<_> = touched.iter().map(|key| key.name.as_str()).collect();
    assert_eq!(names, ["even", "odd"]);
    let elsewhere = Key {
        namespace: "others".into(),
        name: "odd".into(),
    };
    assert_eq!(table.of(&elsewhere).count(), 1);
}

#[test]
fn caches_are_complete_when_every_feed_has_listed_and_end_with_the_leadership() {
    let caches = Caches::new();
    caches.begin(2);
    caches.listed();
    assert!(!caches.is_complete());
    caches.listed();
    assert!(caches.is_complete());
    caches.end();
    assert!(!caches.is_complete());
}

#[test]
fn what_the_api_server_answers_is_known_before_the_watch_brings_it() {
    let caches = Caches::new();
    let answer = serde_json::json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "smol-decode-1", "namespace": "team", "resourceVersion": "7",
            "labels": {DEPLOYMENT: "smol"}, "managedFields": [{"manager": "x"}],
        },
        "spec": {"replicas": 3, "selector": {}, "template": {"spec": {"containers": []}}},
    });
    caches.learn(&serde_json::from_value(answer).unwrap());
    let key = Key {
        namespace: "team".into(),
        name: "smol".into(),
    };
    let existing = caches.of(&key);
    let deployment = &existing.deployments["smol-decode-1"];
    let spec = deployment.spec.as_ref().unwrap();
    assert_eq!(spec.replicas, Some(3));
    assert!(spec.template.spec.is_none(), "nobody reads it");
    assert!(deployment.metadata.managed_fields.is_none());
}

#[test]
fn a_cached_pod_is_without_what_nobody_reads() {
    let pod = lean(Pod {
        metadata: ObjectMeta {
            managed_fields: Some(vec![ManagedFieldsEntry::default()]),
            ..object(1, 1)
        },
        spec: Some(PodSpec {
            node_name: Some("n".into()),
            containers: vec![Container::default()],
            ..PodSpec::default()
        }),
        status: None,
    });
    let spec = pod.spec.unwrap();
    assert_eq!(spec.node_name.as_deref(), Some("n"));
    assert!(spec.containers.is_empty() && pod.metadata.managed_fields.is_none());
}

#[test]
fn a_watch_that_fails_is_opened_again_within_three_seconds_however_often() {
    let mut pauses = Pauses::default();
    let all: Vec<_> = pauses.by_ref().take(100).collect();
    assert!(all.iter().all(|pause| *pause <= Duration::from_secs(3)));
    let first = all.iter().take(4).sum::<Duration>();
    assert!(
        first >= Duration::from_secs(2),
        "not at once, either: {first:?}"
    );
    kube::runtime::utils::Backoff::reset(&mut pauses);
    assert_eq!(pauses.next(), Some(Duration::from_millis(200)));
}

#[test]
fn the_charts_role_lets_the_operator_list_and_watch_every_kind_that_it_watches() {
    let rules = include_str!("../../../charts/lynx/templates/_helpers.tpl");
    let watched = |plural: &str| {
        let lines: Vec<_> = rules.lines().collect();
        let mut pairs = lines.windows(2);
        pairs.any(|pair| match pair {
            [resources, verbs] => {
                let names: Vec<_> = resources
                    .trim()
                    .trim_start_matches("resources: [")
                    .trim_end_matches(']')
                    .split(", ")
                    .collect();
                names.contains(&plural) && verbs.contains("get, list, watch")
            }
            _ => false,
        })
    };
    for kind in Kind::MADE.into_iter().chain([Kind::Pod]) {
        let plural = kind.resource().plural;
        assert!(watched(&plural), "{plural}");
    }
    assert!(!watched("secrets"), "each is read by its name");
}
