extern crate std;

use std::collections::HashSet;

use super::*;

#[test]
fn names_are_prometheus_names_that_say_kind_and_unit() {
    for metric in all() {
        let name = metric.name;
        let is_word = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(name.chars().all(is_word), "{name}");
        let own = ["lynx_", "process_"];
        assert!(own.iter().any(|own| name.starts_with(own)), "{name}");
        let ends = |end| name.ends_with(end);
        assert_eq!(ends("_total"), metric.kind == Kind::Counter, "{name}");
        assert_eq!(ends("_info"), metric.kind == Kind::Info, "{name}");
        match metric.unit.suffix() {
            Some(unit) => assert!(metric.family().ends_with(unit), "{name} {unit}"),
            None => assert_eq!(metric.stem(), metric.family()),
        }
        assert!(!metric.help.ends_with('.'), "{name}");
    }
}

#[test]
fn each_name_is_there_once_and_each_label_once_in_a_metric() {
    let mut names = HashSet::new();
    for metric in all() {
        assert!(names.insert(metric.name), "{} twice", metric.name);
        let labels: HashSet<_> = metric.labels.iter().map(|label| label.name).collect();
        assert_eq!(labels.len(), metric.labels.len(), "{}", metric.name);
    }
}

#[test]
fn buckets_rise_and_times_reach_from_a_millisecond_to_a_minute() {
    for metric in all() {
        if let Kind::Histogram(bounds) = metric.kind {
            assert!(
                bounds.windows(2).all(|two| two[0] < two[1]),
                "{}",
                metric.name
            );
        }
    }
    assert_eq!((TIMES[0], TIMES[TIMES.len() - 1]), (0.001, 60.0));
}

#[test]
fn a_query_finds_a_histogram_by_its_parts_and_nothing_by_another_name() {
    let found = find("lynx_time_to_anchor_seconds_bucket").unwrap();
    assert_eq!(found, &agent::TIME_TO_ANCHOR);
    assert_eq!(agent::KV_BYTES.stem(), "lynx_kv");
    assert_eq!(agent::KV_BYTES.family(), "lynx_kv_bytes");
    assert_eq!(find("lynx_kv_bytes_total_bucket"), None);
    assert_eq!(find("lynx_kv_bytes"), None);
}
